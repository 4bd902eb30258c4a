// A figure against an amount that doubles from point to point, with its knee. Figures are lower bounds: steps.

import { coloursOf } from "../colours.js";
import { figured, make, style } from "../dom.js";
import { figure } from "../format.js";
import { shortened } from "../links.js";
import { axes, followSize, sized } from "./lines.js";
import { picked, legend } from "./legend.js";

const KNEE_PIXELS = 4;

export function drawCurve(body, panel, answer, view) {
  const [curves, unknown] = curvesOf(answer);
  body.append(...unknown.map(({ name, most }) => make("p", { className: "note" }, make("b", {}, shortened(name)), `: not known how much cache saves what; all of it saves at most ${figure(most, "share")} of the prefill`)));
  if (!curves.size) return () => {};
  const names = [...curves.keys()];
  const colours = coloursOf(names, panel.colours);
  const shown = picked(panel, names);
  const amounts = [...new Set([...curves.values()].flatMap((points) => points.map(({ amount }) => amount)))].sort((one, other) => one - other);
  const axis = [amounts[0] / 2, ...amounts];
  const seen = names.filter((name) => shown.has(name));
  const most = Math.max(...seen.flatMap((name) => curves.get(name).map(({ share }) => share)));
  const plot = make("div", { className: "plot", role: "img", ariaLabel: `${panel.title}: ${names.length} curves; their knees are named below` });
  body.append(plot);
  const chart = new uPlot({
    ...sized(plot, panel),
    cursor: { drag: { x: false, y: false }, points: { show: false } },
    legend: { show: false },
    scales: { x: { time: false, distr: 3, log: 2, range: () => [axis[0], axis[axis.length - 1] * 1.2] }, y: { range: () => [0, most * 1.1] } },
    axes: axes((_, splits) => splits.map((value) => (value ? "+" + figure(value, "tokens") : "")), panel.unit),
    series: [{}, ...seen.map((name) => ({
      label: name, stroke: colours[names.indexOf(name)], width: 2, points: { show: false }, paths: uPlot.paths.stepped({ align: 1 }),
    }))],
    hooks: { draw: [(self) => seen.forEach((name) => drawKnee(self, curves.get(name), colours[names.indexOf(name)]))] },
  }, [axis, ...seen.map((name) => shares(curves.get(name), axis))], plot);
  body.append(legend(panel, names, colours, view, { kind: panel.names }));
  const knees = make("ul", { className: "knees" });
  for (const name of seen) knees.append(make("li", {}, make("b", {}, shortened(name)), ":", ...told(name, curves.get(name))));
  body.append(knees);
  return followSize(chart, plot, panel);
}

function curvesOf(answer) {
  const [labels, amounts, bytes, , percents, mosts, knees] = answer.columns;
  const curves = new Map(), unknown = [];
  labels.forEach((label, row) => {
    if (amounts[row] === null) {
      unknown.push({ name: label, most: mosts[row] / 100 });
      return;
    }
    if (!curves.has(label)) curves.set(label, []);
    curves.get(label).push({ amount: amounts[row], bytes: bytes[row], share: percents[row] / 100, most: mosts[row] / 100, knee: Boolean(knees[row]) });
  });
  return [curves, unknown];
}

// Of each amount on the axis what the largest one of the curve up to there saves.
function shares(points, axis) {
  return axis.map((amount) => points.filter((point) => point.amount <= amount).pop()?.share ?? 0);
}

const sizeOf = ({ amount, bytes }) => `+${figure(amount, "tokens")} tokens` + (bytes ? ` (${figure(bytes, "bytes")})` : "");

function told(name, points) {
  const knee = points.find((point) => point.knee), last = points[points.length - 1];
  const share = figured("b", `${name}: knee`, knee.share, { textContent: `≥ ${figure(knee.share, "share")}` });
  const more = last === knee ? "" : `; ${sizeOf(last)} would save ≥ ${figure(last.share, "share")}`;
  const rest = `${more}; any size saves at most ${figure(last.most, "share")}`;
  return [` ${sizeOf(knee)} a replica saves `, share, " of the prefill", rest];
}

function drawKnee(self, points, colour) {
  const knee = points.find((point) => point.knee);
  const { ctx } = self;
  ctx.save();
  ctx.fillStyle = colour;
  ctx.strokeStyle = style("--card");
  ctx.lineWidth = 2 * devicePixelRatio;
  ctx.beginPath();
  ctx.arc(self.valToPos(knee.amount, "x", true), self.valToPos(knee.share, "y", true), KNEE_PIXELS * devicePixelRatio, 0, 2 * Math.PI);
  ctx.fill();
  ctx.stroke();
  ctx.restore();
}
