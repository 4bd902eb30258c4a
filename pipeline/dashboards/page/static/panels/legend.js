// The names of a chart's series. A click shows one alone, with Ctrl or Shift several; a click on it shows all again.

import { dot, figured, make } from "../dom.js";
import { figure } from "../format.js";
import { arrow, shortened } from "../links.js";

const alone = new Map();

// The names of a panel that are shown: those picked, as far as they are still there, or all.
export function picked(panel, names) {
  const wanted = alone.get(panel.id);
  const kept = names.filter((name) => wanted?.has(name));
  return new Set(kept.length ? kept : names);
}

function pick(panel, names, name, more) {
  const now = alone.get(panel.id) ?? new Set();
  const next = new Set(more ? now : []);
  if (now.has(name)) next.delete(name);
  else next.add(name);
  if (next.size === 0 || next.size === names.length) alone.delete(panel.id);
  else alone.set(panel.id, next);
}

// `kind`: what the names stand for; `amounts`: the figures beside them, if any; `top`: where the scale ends.
export function legend(panel, names, colours, view, { kind = "", amounts = null, top = Infinity } = {}) {
  const shown = picked(panel, names);
  const list = make("div", { className: "legend" });
  names.forEach((name, index) => {
    const item = make("button", { type: "button", className: "item", ariaPressed: String(shown.has(name) && shown.size < names.length),
      title: shown.size < names.length && shown.has(name) ? "Show all" : `Show ${name} alone` }, dot(colours[index]), shortened(name));
    item.classList.toggle("off", !shown.has(name));
    item.addEventListener("click", (event) => {
      pick(panel, names, name, event.ctrlKey || event.metaKey || event.shiftKey);
      view.redraw(panel.id);
    });
    if (amounts) {
      item.append(figured("b", name, amounts[index], { textContent: figure(amounts[index], panel.unit) }));
      if (amounts[index] > top) item.append(make("small", { textContent: "above the scale" }));
    }
    list.append(make("span", {}, item, arrow(kind, name)));
  });
  return list;
}
