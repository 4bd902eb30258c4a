// Single figures.

import { figured, make } from "../dom.js";
import { figure } from "../format.js";
import { TRUST } from "./table.js";

// Of a figure that does not say it itself.
const UNITS = { "tokens/s": "tokens a second", "blocks/s": "blocks a second", "events/s": "events a second" };

export function drawStat(body, panel, answer) {
  const list = make("div", { className: "figures" });
  answer.names.forEach((name, column) => {
    const value = answer.columns[column].length ? answer.columns[column][0] : null;
    const item = figured("div", name, value, { className: "figure", textContent: figure(value, panel.unit) });
    const level = panel.thresholds.filter((threshold) => value !== null && value >= threshold.at).pop();
    if (level) item.classList.add(level.colour);
    // Nothing degraded is no reason for red.
    if (value === 0) item.classList.add("none");
    else if (TRUST[name]) item.classList.add(TRUST[name]);
    item.append(make("small", { textContent: answer.names.length > 1 ? name : UNITS[panel.unit] ?? "" }));
    list.append(item);
  });
  body.append(list);
  return () => {};
}
