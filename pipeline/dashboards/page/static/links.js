// Names: one text each, shortened in the middle for the eye alone, and leading to the board of what they name.

import { make } from "./dom.js";
import { current, write } from "./state.js";

const TAIL = 14;

// Where a name finds too little room, its end is drawn over the part that is cut off: it is what tells replicas apart.
const room = new ResizeObserver((entries) => {
  for (const { target } of entries) {
    if (!target.isConnected) room.unobserve(target);
    else target.classList.toggle("cut", target.scrollWidth > target.clientWidth);
  }
});

// All of the name is one text, which a search of the browser finds and a copy has; it shows when pointed at.
export function shortened(name, tag = "span") {
  const element = make(tag, { className: "name", title: name, textContent: name });
  if (name.length > TAIL) {
    element.dataset.tail = `…${name.slice(-TAIL)}`;
    room.observe(element);
  }
  return element;
}

// A name of a model, of a replica, or of a source (`replica/rank`), with range and filters kept.
export function named(kind, name) {
  const query = queryOf(kind, name);
  if (query === null) return shortened(name);
  const link = shortened(name, "a");
  link.href = query;
  return link;
}

// A small link beside a name that does something else when clicked.
export function arrow(kind, name) {
  const query = queryOf(kind, name);
  if (query === null) return "";
  return make("a", { className: "go", href: query, textContent: "→", ariaLabel: `Open ${name}`, title: `Open ${name}` });
}

function queryOf(kind, name) {
  const state = { ...current(), full: null };
  if (!name || name === "others") return null;
  if (kind === "model") {
    const same = state.models.length === 1 && state.models[0] === name;
    return write({ ...state, board: "model", models: [name], replicas: same ? state.replicas : [], roles: same ? state.roles : [] });
  }
  if (kind === "replica") return write({ ...state, board: "replica", replicas: [name], roles: [] });
  if (kind === "source") return queryOf("replica", name.replace(/\/\d+$/, ""));
  return null;
}
