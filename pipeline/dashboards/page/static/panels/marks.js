// What happened at points of time, such as restarts: numbered on charts, named there where there is room, and listed
// once above them.

import { make } from "../dom.js";
import { moment } from "../time.js";

const MOST = 10;
const NEAR_PIXELS = 8;

// Above MOST marks, those of a MOST-th of the range are one: {from, to, texts}.
export function bundled(marks, from, to) {
  const inside = marks.filter(({ time }) => time >= from && time <= to).sort((one, other) => one.time - other.time);
  const points = new Set(inside.map(({ time }) => time)).size;
  const place = points > MOST ? (time) => Math.floor(((time - from) / (to - from + 1)) * MOST) : (time) => time;
  const bundles = new Map();
  for (const { time, text } of inside) {
    const bundle = bundles.get(place(time)) ?? { from: time, to: time, texts: [] };
    bundle.to = time;
    bundle.texts.push(text);
    bundles.set(place(time), bundle);
  }
  return [...bundles.values()];
}

export const labelOf = ({ from, to, texts }) => (to > from ? `${texts.length} events` : texts.join("; "));

// The list of the numbers: when, and what.
export function listed(bundles) {
  const items = bundles.flatMap((each, index) => [
    make("b", { textContent: `${index + 1} ` }), `${moment(each.from, true)} ${labelOf(each)}${index + 1 < bundles.length ? " · " : ""}`]);
  return make("p", { className: "marks" }, "Marked on the charts: ", ...items);
}

// A dashed line where it begins, a bar above the chart as long as it lasts, its number, and its label if all of it fits.
export function drawMarks(self, bundles, colour) {
  const { ctx, bbox } = self;
  const pixels = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.font = `${11 * pixels}px system-ui, sans-serif`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  ctx.setLineDash([4 * pixels, 4 * pixels]);
  const edges = bundles.map(({ from, to }) => [self.valToPos(from, "x", true), self.valToPos(to, "x", true)]);
  edges.forEach(([left, right], index) => {
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillRect(left, bbox.top - 2 * pixels, right - left, 2 * pixels);
    const room = (index + 1 < edges.length ? edges[index + 1][0] : bbox.left + bbox.width) - left - 6 * pixels;
    const number = String(index + 1), whole = `${number} ${labelOf(bundles[index])}`;
    ctx.fillText(ctx.measureText(whole).width <= room ? whole : number, left, bbox.top - 3 * pixels);
  });
  ctx.restore();
}

// The texts at so many pixels from the left.
export function near(self, bundles, left) {
  const close = ({ from, to }) => self.valToPos(from, "x") - NEAR_PIXELS <= left && left <= self.valToPos(to, "x") + NEAR_PIXELS;
  return bundles.filter(close).flatMap(({ texts }) => texts);
}
