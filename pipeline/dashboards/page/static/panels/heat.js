// A heatmap: time to the right, buckets upwards, more blocks in stronger colour.

import { make, style } from "../dom.js";
import { figure } from "../format.js";
import { moment, tick } from "../time.js";
import { points } from "./series.js";

export const FAINTEST = 0.12;
const LABELS = 6;
const PARTS = 10;

export function drawHeat(body, panel, answer, view) {
  const [times, buckets, amounts] = answer.columns;
  const levels = [...new Set(buckets.filter((_, row) => amounts[row] > 0))].sort((one, other) => one - other);
  if (!levels.length) return null;
  const lowest = Math.log2(levels[0]), count = Math.round(Math.log2(levels[levels.length - 1]) - lowest) + 1;
  const along = points(view.from, view.to, answer.step);
  const level = (bucket) => Math.round(Math.log2(bucket) - lowest);
  const most = amounts.reduce((one, other) => Math.max(one, other), 0);
  const canvas = make("canvas", { width: along.count, height: count });
  const frame = make("div", { className: "heat" }, canvas);
  const context = canvas.getContext("2d");
  context.fillStyle = style("--heat");
  for (let row = 0; row < times.length; row += 1) {
    if (!(amounts[row] > 0)) continue;
    context.globalAlpha = FAINTEST + (1 - FAINTEST) * Math.sqrt(amounts[row] / most);
    context.fillRect(along.of(times[row]), count - 1 - level(buckets[row]), 1, 1);
  }
  label(frame, panel, lowest, count);
  timesBelow(frame, view);
  const found = new Map(times.map((at, row) => [`${along.of(at)} ${level(buckets[row])}`, amounts[row]]));
  pointed(frame, canvas, (left, row) => {
    const up = count - 1 - row;
    const range = `${figure(2 ** (lowest + up - 1), panel.unit)} to ${figure(2 ** (lowest + up), panel.unit)}`;
    return `${moment(along.first + left * answer.step, true)}, ${range}: ${figure(found.get(`${left} ${up}`) ?? 0, "blocks")} blocks`;
  });
  const scale = make("div", { className: "legend" }, "fewer", make("i", { className: "scale" }), `more blocks (at most ${figure(most, "blocks")})`);
  const top = figure(buckets[amounts.indexOf(most)], panel.unit);
  body.append(frame, scale, make("p", { className: "sr", textContent: `${panel.title}: ${levels.length} levels, most at ${top}` }));
  return () => {};
}

// Each label stands beside the middle of its row.
function label(frame, panel, lowest, count) {
  for (let up = 0; up < count; up += Math.max(1, Math.ceil(count / LABELS))) {
    const text = make("span", { className: "level", textContent: "≤ " + figure(2 ** (lowest + up), panel.unit) });
    text.style.bottom = `calc(20px + (100% - 20px) * ${(up + 0.5) / count})`;
    frame.append(text);
  }
}

export function timesBelow(frame, view) {
  for (const part of [0, 0.5, 1]) {
    const text = make("span", { textContent: tick(view.from + part * (view.to - view.from), (view.to - view.from) / PARTS) });
    text.style.bottom = "0";
    text.style.left = part === 1 ? "" : `calc(var(--names) + (100% - var(--names)) * ${part})`;
    if (part === 1) text.style.right = "0";
    frame.append(text);
  }
}

// Say what is under the pointer: `told(column, row)`, rows counted from above.
export function pointed(frame, canvas, told) {
  const tip = make("div", { className: "tip", hidden: true });
  frame.append(tip);
  canvas.addEventListener("pointermove", (event) => {
    const left = Math.floor((event.offsetX / canvas.clientWidth) * canvas.width);
    const row = Math.floor((event.offsetY / canvas.clientHeight) * canvas.height);
    tip.hidden = false;
    tip.textContent = told(left, row);
    tip.style.left = `${Math.min(event.offsetX + 78, frame.clientWidth - tip.offsetWidth - 4)}px`;
    tip.style.top = `${Math.max(0, event.offsetY - 34)}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
}
