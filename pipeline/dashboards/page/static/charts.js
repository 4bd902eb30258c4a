// Pictures with an axis of time, drawn by uPlot.

import { coloursOf, figure, moment, tick } from "./format.js";
import { pivot, stacked } from "./series.js";

const SHOWN_IN_TIP = 14;
const MARKS_IN_TIP = 4;
const NEAR_PIXELS = 12;
const FAINTEST = 0.12;

export function drawSeries(body, panel, answer, view) {
  const { axis, names, values } = pivot(answer, view.from, view.to);
  const isStacked = panel.kind === "stacked";
  const colours = coloursOf(names, panel.colours);
  // The highest layer first, so that each is painted over by those below it.
  const layers = isStacked ? stacked(values) : values;
  const order = isStacked ? names.map((_, index) => names.length - 1 - index) : names.map((_, index) => index);
  const style = getComputedStyle(document.documentElement);
  const soft = style.getPropertyValue("--soft"), grid = style.getPropertyValue("--grid");
  const plot = document.createElement("div");
  body.append(plot);
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  const height = () => Math.max(120, panel.height * 34 - 72);
  const chart = new uPlot({
    width: plot.clientWidth || 400,
    height: height(),
    cursor: { sync: { key: "board" }, drag: { setScale: false, x: true, y: false }, points: { show: false } },
    legend: { show: false },
    scales: {
      x: { time: true, min: view.from, max: view.to },
      y: { range: (_, least, most) => [Math.min(0, least ?? 0), panel.unit === "share" ? Math.max(1, most ?? 1) : (most || 1) * 1.05] },
    },
    axes: [
      { stroke: soft, grid: { stroke: grid, width: 1 }, ticks: { show: false }, space: 90, size: 30,
        values: (_, splits, __, ___, apart) => splits.map((at) => tick(at, apart)) },
      { stroke: soft, grid: { stroke: grid, width: 1 }, ticks: { show: false }, size: 62,
        values: (_, splits) => splits.map((value) => figure(value, panel.unit)) },
    ],
    series: [{}, ...order.map((index) => ({
      label: names[index], spanGaps: false, points: { show: false },
      // Opaque, because each layer is painted over the higher ones: what is seen is what the legend says.
      ...(isStacked ? { fill: colours[index], width: 0 } : { stroke: colours[index], width: 1.75 }),
    }))],
    hooks: {
      setSelect: [(self) => {
        if (self.select.width < 8) return;
        const from = Math.floor(self.posToVal(self.select.left, "x"));
        const to = Math.ceil(self.posToVal(self.select.left + self.select.width, "x"));
        self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
        view.narrow(from, to);
      }],
      setCursor: [(self) => showTip(self, tip, axis, names, values, colours, panel, view.marks)],
      draw: [(self) => drawMarks(self, view.marks, style.getPropertyValue("--bad"))],
    },
  }, [axis, ...order.map((index) => layers[index])], plot);
  chart.over.append(tip);
  chart.over.addEventListener("dblclick", () => view.widen());
  const observer = new ResizeObserver(() => chart.setSize({ width: plot.clientWidth, height: height() }));
  observer.observe(plot);
  body.append(legend(names, colours, values, panel.unit), sentence(names, values, panel));
  return () => { observer.disconnect(); chart.destroy(); };
}

function drawMarks(self, marks, colour) {
  const { ctx, bbox } = self;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.setLineDash([4, 4]);
  for (const time of new Set(marks.map((mark) => mark.time))) {
    const x = self.valToPos(time, "x", true);
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}

function showTip(self, tip, axis, names, values, colours, panel, marks) {
  const { idx, left, top } = self.cursor;
  tip.hidden = idx === null || idx === undefined || left < 0;
  if (tip.hidden) return;
  const rows = names.map((name, index) => ({ name, colour: colours[index], value: values[index][idx] }))
    .filter((row) => row.value !== null && row.value !== undefined)
    .sort((one, other) => other.value - one.value).slice(0, SHOWN_IN_TIP);
  tip.replaceChildren(moment(axis[idx], true), ...rows.map((row) => {
    const line = document.createElement("div");
    const dot = document.createElement("i");
    dot.style.background = row.colour;
    const amount = document.createElement("b");
    amount.textContent = figure(row.value, panel.unit);
    line.append(dot, shortened(row.name), amount);
    return line;
  }), ...marks.filter((mark) => Math.abs(self.valToPos(mark.time, "x") - left) < NEAR_PIXELS).slice(0, MARKS_IN_TIP).map((mark) => {
    const line = document.createElement("div");
    line.className = "mark";
    line.textContent = mark.text;
    return line;
  }));
  const wide = self.over.clientWidth;
  tip.style.left = left > wide / 2 ? "" : left + 14 + "px";
  tip.style.right = left > wide / 2 ? wide - left + 14 + "px" : "";
  tip.style.top = Math.max(0, Math.min(top, self.over.clientHeight - 40)) + "px";
}

function legend(names, colours, values, unit) {
  const list = document.createElement("div");
  list.className = "legend";
  const now = newest(values);
  names.forEach((name, index) => {
    const item = document.createElement("span");
    const dot = document.createElement("i");
    dot.style.background = colours[index];
    const amount = document.createElement("b");
    amount.textContent = figure(now[index], unit);
    amount.dataset.figure = name;
    if (now[index] !== null) amount.dataset.value = now[index];
    item.append(dot, shortened(name), amount);
    list.append(item);
  });
  return list;
}

const TAIL = 14;

// A long name gives way in the middle, as its end is what tells replicas apart; all of it shows when pointed at.
export function shortened(name) {
  const text = document.createElement("span");
  text.className = "name";
  text.title = name;
  const head = document.createElement("span"), tail = document.createElement("span");
  head.textContent = name.slice(0, -TAIL);
  tail.textContent = name.slice(-TAIL);
  text.append(head, tail);
  return text;
}

function sentence(names, values, panel) {
  const text = document.createElement("p");
  text.className = "sr";
  const now = newest(values);
  text.textContent = `${panel.title}, newest: ` + names.map((name, index) => `${name} ${figure(now[index], panel.unit)}`).join(", ");
  return text;
}

// The figures of the newest time that has any: what a series had before that is not its newest.
function newest(values) {
  for (let index = (values[0]?.length ?? 0) - 1; index >= 0; index -= 1) {
    if (values.some((column) => column[index] !== null)) return values.map((column) => column[index]);
  }
  return values.map(() => null);
}

export function drawHeat(body, panel, answer, view) {
  const [times, buckets, amounts] = answer.columns;
  const levels = [...new Set(buckets.filter((_, row) => amounts[row] > 0))].sort((one, other) => one - other);
  if (!levels.length) return null;
  const lowest = Math.log2(levels[0]), count = Math.round(Math.log2(levels[levels.length - 1]) - lowest) + 1;
  const frame = document.createElement("div");
  frame.className = "heat";
  const canvas = document.createElement("canvas");
  frame.append(canvas);
  body.append(frame);
  const distinct = [...new Set(times)];
  let width = answer.step;
  for (let index = 1; index < distinct.length; index += 1) width = Math.max(answer.step, Math.min(distinct[index] - distinct[index - 1], index === 1 ? Infinity : width));
  const columns = Math.max(1, Math.ceil((view.to - view.from) / width));
  const column = (at) => Math.floor((at - view.from) / width), level = (bucket) => Math.round(Math.log2(bucket) - lowest);
  canvas.width = columns;
  canvas.height = count;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--heat");
  const most = amounts.reduce((one, other) => Math.max(one, other), 0);
  for (let row = 0; row < times.length; row += 1) {
    if (!(amounts[row] > 0)) continue;
    context.globalAlpha = FAINTEST + (1 - FAINTEST) * Math.sqrt(amounts[row] / most);
    context.fillRect(column(times[row]), count - 1 - level(buckets[row]), 1, 1);
  }
  canvas.style.imageRendering = "pixelated";
  const shown = Math.max(1, Math.ceil(count / 6));
  for (let up = 0; up < count; up += shown) {
    const label = document.createElement("span");
    label.textContent = "≤ " + figure(2 ** (lowest + up), panel.unit);
    label.style.bottom = `calc(20px + (100% - 20px) * ${up / count})`;
    frame.append(label);
  }
  for (const part of [0, 0.5, 1]) {
    const label = document.createElement("span");
    label.textContent = moment(view.from + part * (view.to - view.from));
    label.style.bottom = "0";
    label.style.left = part === 1 ? "" : `calc(64px + (100% - 64px) * ${part})`;
    if (part === 1) label.style.right = "0";
    frame.append(label);
  }
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  frame.append(tip);
  const found = new Map(times.map((at, row) => [`${column(at)} ${level(buckets[row])}`, amounts[row]]));
  canvas.addEventListener("pointermove", (event) => {
    const left = Math.floor((event.offsetX / canvas.clientWidth) * columns), up = count - 1 - Math.floor((event.offsetY / canvas.clientHeight) * count);
    const amount = found.get(`${left} ${up}`) ?? 0;
    tip.hidden = false;
    tip.textContent = `${moment(view.from + left * width, true)}, ${figure(2 ** (lowest + up - 1), panel.unit)} to ${figure(2 ** (lowest + up), panel.unit)}: ${figure(amount, "blocks")} blocks`;
    tip.style.left = `${Math.min(event.offsetX + 78, frame.clientWidth - tip.offsetWidth - 4)}px`;
    tip.style.top = `${Math.max(0, event.offsetY - 34)}px`;
  });
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  const scale = document.createElement("div");
  scale.className = "legend";
  const bar = document.createElement("i");
  bar.className = "scale";
  scale.append("fewer", bar, `more blocks (at most ${figure(most, "blocks")})`);
  body.append(scale);
  const text = document.createElement("p");
  text.className = "sr";
  text.textContent = `${panel.title}: ${levels.length} levels, most at ${figure(buckets[amounts.indexOf(most)], panel.unit)}`;
  body.append(text);
  return () => {};
}
