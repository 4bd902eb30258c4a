// Names: shortened in the middle, and leading to the board of what they name.

import { make } from "./dom.js";
import { current, write } from "./state.js";

const TAIL = 14;

// A long name gives way in the middle, as its end is what tells replicas apart; all of it shows when pointed at.
export function shortened(name, tag = "span") {
  return make(tag, { className: "name", title: name },
    make("span", { textContent: name.slice(0, -TAIL) }), make("span", { textContent: name.slice(-TAIL) }));
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
    return write({ ...state, board: "model", models: [name], replicas: same ? state.replicas : [] });
  }
  if (kind === "replica") return write({ ...state, board: "replica", replicas: [name] });
  if (kind === "source") return queryOf("replica", name.replace(/\/\d+$/, ""));
  return null;
}
