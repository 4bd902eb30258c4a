// The head of the page: boards, and what to show of them.

import { byId, make } from "../dom.js";
import { current, show, write } from "../state.js";
import { json } from "../ask.js";
import { localName } from "../time.js";
import { chooser } from "./chooser.js";
import { popover } from "./popover.js";
import { listenToRange, updateRange } from "./range.js";

const CHOICES_SECONDS = 60;
let models, roles, replicas;

export function listen(refresh) {
  models = chooser("model", "model", () => current().models, (names) => show({ models: names }));
  roles = chooser("role", "role", () => current().roles, (names) => show({ roles: names }));
  replicas = chooser("replica", "replica", () => current().replicas, (names) => show({ replicas: names }));
  listenToRange();
  popover(byId("display"), byId("display-list"));
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("refresh").addEventListener("change", (event) => show({ refresh: Number(event.target.value) }));
  byId("zone").addEventListener("change", (event) => show({ utc: event.target.value === "utc" }));
  byId("theme").addEventListener("change", (event) => window.kvlensTheme.choose(event.target.value));
  byId("now").addEventListener("click", () => { offerChoices(); refresh(); });
  byId("zone").options[0].textContent = `Your own: ${localName()}`;
  setInterval(() => { if (!document.hidden) offerChoices(); }, CHOICES_SECONDS * 1000);
}

// Let the choosers offer what there is now, unless other models were chosen meanwhile.
export async function offerChoices() {
  const { models: chosen } = current();
  try {
    const found = await json("api/choices", new URLSearchParams(chosen.map((name) => ["model", name])));
    if (String(chosen) !== String(current().models)) return;
    models.offer(found.model);
    roles.offer(found.role);
    replicas.offer(found.replica);
  } catch {
    // The panels say what is wrong; the next look asks again.
  }
}

export function updateHead(boards, board) {
  const state = current();
  byId("boards").replaceChildren(...boards.map((each) => {
    const link = make("a", { href: write({ ...state, board: each.id, full: null }), textContent: each.title });
    if (each === board) link.setAttribute("aria-current", "page");
    return link;
  }));
  byId("boards").querySelector("[aria-current]").scrollIntoView({ block: "nearest", inline: "nearest" });
  for (const choice of document.querySelectorAll("[data-choice]")) choice.hidden = !board.choices.includes(choice.dataset.choice);
  updateRange();
  byId("refresh").value = String(state.refresh);
  byId("zone").value = state.utc ? "utc" : "";
  byId("theme").value = window.kvlensTheme.chosen;
  models.update();
  roles.update();
  replicas.update();
}
