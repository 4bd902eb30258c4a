// States over time, a strip for each name.

import { dot, make } from "../dom.js";
import { named } from "../links.js";
import { points } from "./series.js";

export function drawStrips(body, panel, answer, view) {
  const [times, names, states] = answer.columns;
  const along = points(view.from, view.to, answer.step);
  const rows = make("div", { className: "rows" });
  for (const name of new Set(names)) {
    const strip = make("canvas", { className: "strip", width: along.count, height: 1, role: "img" });
    const context = strip.getContext("2d");
    const seen = {};
    for (let row = 0; row < times.length; row += 1) {
      if (names[row] !== name) continue;
      seen[states[row]] = (seen[states[row]] ?? 0) + 1;
      context.fillStyle = panel.colours[states[row]] ?? "#7a8794";
      context.fillRect(along.of(times[row]), 0, 1, 1);
    }
    strip.ariaLabel = Object.entries(seen).map(([state, count]) => `${state} ${count} points`).join(", ");
    rows.append(named(panel.names, name), strip);
  }
  const legend = make("div", { className: "legend" }, ...Object.entries(panel.colours).map(([state, colour]) => make("span", {}, dot(colour), state)));
  body.append(rows, legend);
  return () => {};
}
