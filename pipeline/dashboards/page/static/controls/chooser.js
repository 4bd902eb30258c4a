// One or several of many names: typing finds those that contain what is typed, Enter takes all of them.

import { byId, make } from "../dom.js";
import { place } from "./popover.js";

const LISTED = 100;
const MOST = 200;

// `chosen()`: the names chosen now; `choose(names)`: called with others.
export function chooser(id, word, chosen, choose) {
  const input = byId(id), list = byId(id + "-list");
  let names = [], active = -1;

  const summary = () => {
    const now = chosen();
    return now.length > 1 ? `${now[0]} and ${now.length - 1} more` : now[0] ?? "";
  };
  const parts = () => input.value.split(",").map((part) => part.trim().toLowerCase()).filter(Boolean);
  const matches = () => {
    const wanted = parts();
    return wanted.length ? names.filter((name) => wanted.some((part) => name.toLowerCase().includes(part))) : names;
  };
  const isOpen = () => list.matches(":popover-open");

  function open(typed = "") {
    if (isOpen()) return;
    input.value = typed;
    input.placeholder = summary() || `All ${word}s`;
    active = -1;
    list.showPopover();
    input.ariaExpanded = "true";
    fill();
  }
  function close() {
    if (isOpen()) list.hidePopover();
    input.ariaExpanded = "false";
    input.value = summary();
    input.placeholder = `All ${word}s`;
  }
  function toggle(name) {
    const now = chosen();
    choose(now.includes(name) ? now.filter((each) => each !== name) : [...now, name].slice(-MOST));
    fill();
  }

  function fill() {
    const found = matches(), now = new Set(chosen());
    const wanted = parts().length > 0;
    const first = wanted ? [] : names.filter((name) => now.has(name));
    const shown = [...first, ...found.filter((name) => !first.includes(name))].slice(0, LISTED);
    active = Math.min(active, shown.length - 1);
    const options = shown.map((name, index) => {
      const option = make("div", { role: "option", id: `${id}-${index}`, textContent: name, ariaSelected: String(now.has(name)) });
      option.classList.toggle("active", index === active);
      option.addEventListener("click", () => toggle(name));
      return option;
    });
    list.replaceChildren(...heads(found, wanted, now), ...options, ...feet(found, shown));
    input.setAttribute("aria-activedescendant", active >= 0 ? `${id}-${active}` : "");
    place(input, list);
  }
  function heads(found, wanted, now) {
    if (!found.length) return [make("p", { textContent: wanted ? `No ${word} contains this.` : `No ${word}s yet.` })];
    if (wanted && found.length > MOST) return [make("p", { textContent: `${found.length.toLocaleString()} match; up to ${MOST} can be chosen: type more.` })];
    if (wanted && found.length > 1) return [button(`Choose all ${found.length} that match (Enter)`, () => { choose(found); close(); })];
    return now.size ? [button(`All ${word}s`, () => { choose([]); close(); })] : [];
  }
  function feet(found, shown) {
    return found.length > shown.length ? [make("p", { textContent: `and ${(found.length - shown.length).toLocaleString()} more: type to find them` })] : [];
  }
  function button(text, done) {
    const element = make("button", { type: "button", textContent: text });
    element.addEventListener("click", done);
    return element;
  }

  function enter() {
    const found = matches(), wanted = parts();
    const exact = names.filter((name) => wanted.includes(name.toLowerCase()));
    const options = list.querySelectorAll("[role=option]");
    if (active >= 0 && options[active]) return toggle(options[active].textContent);
    // Names that are typed in full are meant alone, though others may contain them.
    if (wanted.length && exact.length === wanted.length) choose(exact);
    else if (wanted.length && found.length && found.length <= MOST) choose(found);
    else if (!wanted.length) choose([]);
    else return undefined;
    return close();
  }

  list.popover = "manual";
  for (const kind of ["focus", "click", "beforeinput"]) input.addEventListener(kind, () => open());
  input.addEventListener("input", () => { open(input.value); active = -1; fill(); });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") enter();
    else if (event.key === "Escape") close();
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      active = Math.max(-1, active + (event.key === "ArrowDown" ? 1 : -1));
      fill();
      list.querySelector(".active")?.scrollIntoView({ block: "nearest" });
    } else return;
    event.preventDefault();
    event.stopPropagation();
  });
  input.addEventListener("blur", close);
  // The list keeps the focus in the box.
  list.addEventListener("mousedown", (event) => event.preventDefault());

  return {
    offer(found) { names = found; if (isOpen()) fill(); },
    update() { if (!isOpen()) input.value = summary(); },
  };
}
