// Charts with an axis of time, drawn by uPlot.

import { coloursOf } from "../colours.js";
import { dot, make, style } from "../dom.js";
import { figure } from "../format.js";
import { shortened } from "../links.js";
import { moment, onAxis, tick } from "../time.js";
import { legend, picked } from "./legend.js";
import { bundled, drawMarks, labelOf, near } from "./marks.js";
import { largest, newest, pivot, stacked } from "./series.js";

const SHOWN_IN_TIP = 14;
const MARKS_IN_TIP = 4;
const HEAD_PIXELS = 72;
const LABEL_PIXELS = 20;
// Between two points of time that an axis names: on a phone it names more than one, too.
const APART_PIXELS = { wide: 90, narrow: 62 };
const NARROW_PIXELS = 420;
// Seconds between them: two minutes, which uPlot does not know, are what five minutes on a phone need.
const HOUR = 3600, DAY = 86400, MONTH = 30 * DAY, YEAR = 365 * DAY;
const TIMES = [1, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, ...[1, 2, 3, 4, 6, 8, 12].map((each) => each * HOUR),
  ...[1, 2, 3, 5, 10, 15].map((each) => each * DAY), ...[1, 2, 3, 4, 6].map((each) => each * MONTH), YEAR];

export function drawSeries(body, panel, answer, view) {
  const { axis, names, values } = pivot(answer, view.from, view.to);
  const colours = coloursOf(names, panel.colours);
  const shown = picked(panel, names);
  const seen = names.map((_, index) => index).filter((index) => shown.has(names[index]));
  const drawn = { names: seen.map((index) => names[index]), colours: seen.map((index) => colours[index]), values: seen.map((index) => values[index]) };
  const isStacked = panel.kind === "stacked";
  const layers = isStacked ? stacked(drawn.values) : drawn.values;
  // The highest layer first, so that each is painted over by those below it.
  const order = drawn.names.map((_, index) => (isStacked ? drawn.names.length - 1 - index : index));
  const top = scaleOf(panel, isStacked ? largest([], layers) : largest(drawn.names, drawn.values));
  const marks = bundled(view.marks, view.from, view.to);
  const plot = make("div", { className: "plot" });
  plot.dataset.marks = marks.length;
  plot.dataset.top = top;
  body.append(plot);
  const tip = make("div", { className: "tip", hidden: true });
  const chart = new uPlot({
    ...sized(plot, panel),
    tzDate: onAxis,
    padding: [marks.length ? LABEL_PIXELS : null, null, null, null],
    cursor: { sync: { key: "board" }, drag: { setScale: false, x: true, y: false }, points: { show: false } },
    legend: { show: false },
    scales: { x: { time: true, min: view.from, max: view.to }, y: { range: (_, least) => [Math.min(0, least ?? 0), top] } },
    axes: axes((_, splits, __, ___, apart) => {
      plot.dataset.times = splits.length;
      return splits.map((at) => tick(at, apart));
    }, panel.unit, { incrs: TIMES }),
    series: [{}, ...order.map((index) => ({
      label: drawn.names[index], spanGaps: false, points: { show: false },
      // Opaque, because each layer is painted over the higher ones: what is seen is what the legend says.
      ...(isStacked ? { fill: drawn.colours[index], width: 0 } : { stroke: drawn.colours[index], width: 1.75 }),
    }))],
    hooks: {
      setSelect: [(self) => {
        if (self.select.width < 8) return;
        const from = Math.floor(self.posToVal(self.select.left, "x"));
        const to = Math.ceil(self.posToVal(self.select.left + self.select.width, "x"));
        self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        view.narrow(from, to);
      }],
      setCursor: [(self) => showTip(self, tip, axis, drawn, panel, marks)],
      draw: [(self) => drawBeyond(self, panel), (self) => drawMarks(self, marks, style("--bad"))],
    },
  }, [axis, ...order.map((index) => layers[index])], plot);
  chart.over.append(tip);
  chart.over.addEventListener("dblclick", () => view.widen());
  body.append(legend(panel, names, colours, view, { kind: panel.names, amounts: newest(values), top: isStacked ? Infinity : top }), sentence(names, values, panel), markedSentence(marks));
  return followSize(chart, plot, panel);
}

// What is above a threshold cannot be, and is hatched.
function drawBeyond(self, panel) {
  const { ctx, bbox } = self, [threshold] = panel.thresholds;
  if (!threshold || self.scales.y.max <= threshold.at) return;
  const edge = self.valToPos(threshold.at, "y", true), pixels = devicePixelRatio;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, edge - bbox.top);
  ctx.clip();
  ctx.strokeStyle = style("--bad");
  ctx.globalAlpha = 0.35;
  ctx.beginPath();
  for (let at = bbox.left - bbox.height; at < bbox.left + bbox.width; at += 8 * pixels) {
    ctx.moveTo(at, edge);
    ctx.lineTo(at + bbox.height, edge - bbox.height);
  }
  ctx.stroke();
  ctx.restore();
}

function scaleOf(panel, most) {
  return panel.unit === "share" ? Math.max(1, most) : (most || 1) * 1.05;
}

export function axes(labels, unit, more = {}) {
  const line = { stroke: style("--soft"), grid: { stroke: style("--grid"), width: 1 }, ticks: { show: false } };
  return [
    { ...line, space: (_, __, ___, ____, length) => (length < NARROW_PIXELS ? APART_PIXELS.narrow : APART_PIXELS.wide), size: 30, values: labels, ...more },
    { ...line, size: 62, values: (_, splits) => splits.map((value) => figure(value, unit)) },
  ];
}

export function sized(plot, panel) {
  const panelHeight = plot.closest(".full")?.clientHeight ?? panel.height * 34;
  return { width: plot.clientWidth || 400, height: Math.max(120, panelHeight - HEAD_PIXELS) };
}

export function followSize(chart, plot, panel) {
  const observer = new ResizeObserver(() => chart.setSize(sized(plot, panel)));
  observer.observe(plot);
  return () => { observer.disconnect(); chart.destroy(); };
}

function showTip(self, tip, axis, { names, colours, values }, panel, marks) {
  const { idx, left, top } = self.cursor;
  tip.hidden = idx === null || idx === undefined || left < 0;
  if (tip.hidden) return;
  const rows = names.map((name, index) => ({ name, colour: colours[index], value: values[index][idx] }))
    .filter((row) => row.value !== null && row.value !== undefined)
    .sort((one, other) => other.value - one.value).slice(0, SHOWN_IN_TIP);
  const happened = near(self, marks, left);
  const more = happened.length - MARKS_IN_TIP;
  tip.replaceChildren(moment(axis[idx], true), ...rows.map((row) => (
    make("div", {}, dot(row.colour), shortened(row.name), make("b", { textContent: figure(row.value, panel.unit) }))
  )), ...happened.slice(0, MARKS_IN_TIP).map((text) => make("div", { className: "mark", textContent: text })),
  ...(more > 0 ? [make("div", { className: "mark", textContent: `and ${more} more` })] : []));
  const wide = self.over.clientWidth;
  tip.style.left = left > wide / 2 ? "" : left + 14 + "px";
  tip.style.right = left > wide / 2 ? wide - left + 14 + "px" : "";
  tip.style.top = Math.max(0, Math.min(top, self.over.clientHeight - 40)) + "px";
}

function sentence(names, values, panel) {
  const now = newest(values);
  const figures = names.map((name, index) => `${name} ${figure(now[index], panel.unit)}`).join(", ");
  return make("p", { className: "sr", textContent: `${panel.title}, newest: ${figures}` });
}

function markedSentence(marks) {
  if (!marks.length) return "";
  return make("p", { className: "marked", textContent: marks.map((mark, index) => `${index + 1}, ${moment(mark.from, true)}: ${labelOf(mark)}`).join("; ") });
}
