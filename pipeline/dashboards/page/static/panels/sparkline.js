// A curve as small as a word: what share some series have of all, over the range.

import { svg } from "../dom.js";
import { figure } from "../format.js";
import { pivot } from "./series.js";

const WIDTH = 96;
const HEIGHT = 24;
const EDGE = 2;

// Null until the panel that has the series is answered for this range, or where it has no two points to join.
export function sparkline(trend, view) {
  const answer = view.answer(trend.panel);
  if (!answer?.columns.length) return null;
  const shares = sharesOf(pivot(answer, view.from, view.to), trend);
  const known = shares.filter((share) => share !== null);
  if (known.length < 2) return null;
  const most = Math.max(...known) || 1;
  const at = (share, index) => `${round((index / (shares.length - 1)) * WIDTH)},${round(HEIGHT - EDGE - (share / most) * (HEIGHT - 2 * EDGE))}`;
  const drawing = svg("svg", { class: "sparkline", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": sentence(known) });
  for (const run of runs(shares)) drawing.append(svg("polyline", { points: run.map((index) => at(shares[index], index)).join(" ") }));
  return drawing;
}

function sharesOf({ axis, names, values }, { series, without }) {
  const sum = (index, counts) => values.reduce((all, column, each) => all + (counts(names[each]) ? column[index] ?? 0 : 0), 0);
  return axis.map((_, index) => {
    const all = sum(index, (name) => !without.includes(name));
    return all ? sum(index, (name) => series.includes(name)) / all : null;
  });
}

// Indices that follow each other and have a figure: nothing is drawn across a gap. One alone is a dot.
function runs(shares) {
  const found = [[]];
  shares.forEach((share, index) => (share === null ? found.push([]) : found.at(-1).push(index)));
  return found.filter((run) => run.length).map((run) => (run.length === 1 ? [run[0], run[0]] : run));
}

function sentence(known) {
  const said = (share) => figure(share, "share");
  return `Over the range: ${said(known[0])} first, ${said(known.at(-1))} last, ${said(Math.min(...known))} to ${said(Math.max(...known))}`;
}

const round = (pixels) => Math.round(pixels * 10) / 10;
