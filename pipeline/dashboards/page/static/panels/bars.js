// Bars: parts of a whole beside each name, or shares below each other.

import { coloursOf } from "../colours.js";
import { figured, make } from "../dom.js";
import { figure } from "../format.js";
import { named, shortened } from "../links.js";
import { legend, picked } from "./legend.js";
import { largest } from "./series.js";

export function drawBars(body, panel, answer, view) {
  const [labels, ...figures] = answer.columns;
  const names = answer.names.slice(1);
  const colours = coloursOf(names, panel.colours);
  const apart = panel.unit === "share";
  const shown = apart ? new Set(names) : picked(panel, names);
  const seen = names.map((_, index) => index).filter((index) => shown.has(names[index]));
  const total = (row) => seen.reduce((sum, index) => sum + (figures[index][row] ?? 0), 0);
  const most = apart ? 1 : largest(labels, labels.map((_, row) => [total(row)])) || 1e-9;
  const grid = make("div", { className: "bars scroll", tabIndex: 0, role: "group", ariaLabel: panel.title });
  labels.forEach((label, row) => {
    const head = named(panel.names, label);
    if (apart) {
      head.classList.add("head");
      grid.append(head);
    }
    for (const indices of apart ? seen.map((index) => [index]) : [seen]) {
      const value = apart ? figures[indices[0]][row] : total(row);
      const bar = barOf(indices.map((index) => [names[index], colours[index], figures[index][row] ?? 0]), Math.max(most, value ?? 0), panel.unit);
      if (value > most) bar.classList.add("beyond");
      const of = apart ? `${label}: ${names[indices[0]]}` : label;
      const shownValue = figured("span", of, value, { className: "amount", textContent: figure(value, panel.unit) });
      if (value > most) shownValue.append(make("small", { textContent: "above the scale" }));
      grid.append(apart ? shortened(names[indices[0]]) : head, bar, shownValue);
    }
  });
  body.append(grid);
  if (!apart) body.append(legend(panel, names, colours, view));
  return () => {};
}

function barOf(parts, whole, unit) {
  const bar = make("div", { className: "bar" });
  for (const [name, colour, value] of parts) {
    const piece = make("span", { title: `${name}: ${figure(value, unit)}` });
    piece.style.background = colour;
    piece.style.width = (100 * value) / whole + "%";
    bar.append(piece);
  }
  return bar;
}
