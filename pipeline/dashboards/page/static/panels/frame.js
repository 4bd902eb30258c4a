// The frame of a panel: title, what it means, what can be done with it, and the body that is drawn anew.

import { make, note, worded } from "../dom.js";
import { show, current } from "../state.js";
import { popover } from "../controls/popover.js";
import { text } from "../ask.js";

// `asked()`: the fields of the question that the panel shows at present.
export function frame(panel, asked) {
  const element = make("section", { className: "panel", id: panel.id });
  element.dataset.kind = panel.kind;
  element.style.setProperty("--w", panel.width);
  element.style.setProperty("--h", panel.height);
  element.setAttribute("aria-labelledby", panel.id + "-title");
  const meaning = make("details", {},
    make("summary", { textContent: "?", ariaLabel: `What ${panel.title} means` }), make("p", {}, ...worded(panel.description)));
  element.append(
    make("h3", {}, make("span", { id: panel.id + "-title", textContent: panel.title }), make("span", { className: "tools" }, meaning, menu(panel, asked))),
    make("div", { className: "body" }, note("Loading…")),
  );
  return element;
}

function menu(panel, asked) {
  const button = make("button", { type: "button", className: "more", textContent: "⋯", ariaLabel: `More for ${panel.title}` });
  const full = make("button", { type: "button", textContent: "Full screen" });
  const file = make("a", { textContent: "Download CSV" });
  const sql = make("button", { type: "button", textContent: "Show SQL" });
  const list = make("div", { className: "menu" }, full, file, sql);
  const close = popover(button, list, () => {
    full.textContent = current().full === panel.id ? "Leave full screen" : "Full screen";
    file.href = `api/panels/${panel.id}/csv?${asked()}`;
  });
  full.addEventListener("click", () => { close(); show({ full: current().full === panel.id ? null : panel.id }); });
  file.addEventListener("click", close);
  sql.addEventListener("click", async () => { close(); await showSql(panel, asked()); });
  return make("span", {}, button, list);
}

async function showSql(panel, fields) {
  const code = make("pre", { tabIndex: 0, textContent: "Loading…" });
  const copy = make("button", { type: "button", textContent: "Copy" });
  const close = make("button", { type: "button", textContent: "Close" });
  const dialog = make("dialog", { className: "sql", ariaLabel: `SQL of ${panel.title}` },
    make("h3", { textContent: panel.title }), make("p", { textContent: "Run it with clickhouse-client, or as it is in any SQL client." }), code, make("p", { className: "buttons" }, copy, close));
  // Only pages from HTTPS or from this machine may write to the clipboard.
  copy.hidden = !navigator.clipboard;
  copy.addEventListener("click", async () => { await navigator.clipboard.writeText(code.textContent); copy.textContent = "Copied"; });
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  try {
    code.textContent = await text(`api/panels/${panel.id}/sql`, fields);
  } catch (error) {
    code.textContent = error.message;
  }
}

// One panel over the whole window, as long as the address says so.
export function showFull(id) {
  for (const element of document.querySelectorAll(".panel.full")) if (element.id !== id) element.classList.remove("full");
  const element = id && document.getElementById(id);
  document.body.classList.toggle("covered", Boolean(element?.classList.contains("panel")));
  element?.classList.add("full");
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && current().full && !document.querySelector("dialog[open], [popover]:popover-open")) show({ full: null });
});
