// A share over time of many names at once: a lane for each, the worst on top, stronger colour where it is worse.

import { dot, figured, make, style } from "../dom.js";
import { figure } from "../format.js";
import { named, shortened } from "../links.js";
import { current, show } from "../state.js";
import { moment } from "../time.js";
import { FAINTEST, pointed, timesBelow } from "./heat.js";
import { points } from "./series.js";

const LABEL_PIXELS = 14;
const NAMED_BELOW = 3;

export function drawLanes(body, panel, answer, view) {
  const lanes = lanesOf(answer);
  const along = points(view.from, view.to, widthOf(lanes, answer.step));
  const canvas = make("canvas", { width: along.count, height: lanes.length, role: "img", ariaLabel: `${panel.title}: ${lanes.length} lanes, the worst first` });
  const frame = make("div", { className: "heat lanes" }, canvas);
  const context = canvas.getContext("2d");
  lanes.forEach(({ cells }, row) => cells.forEach((value, time) => {
    context.fillStyle = style(value > 1 ? "--bad" : "--heat");
    context.globalAlpha = value > 1 ? 1 : FAINTEST + (1 - FAINTEST) * (panel.low_is_bad ? 1 - value : value);
    context.fillRect(along.of(time), row, 1, 1);
  }));
  timesBelow(frame, view);
  body.append(frame, scale(panel, lanes), worst(panel, lanes));
  label(frame, lanes);
  const found = (column, row) => lanes[row]?.cells.get(along.first + column * along.step);
  pointed(frame, canvas, (column, row) => `${lanes[row]?.name ?? ""}, ${moment(along.first + column * along.step, true)}: ${figure(found(column, row) ?? null, panel.unit)}`);
  canvas.addEventListener("click", (event) => {
    const lane = lanes[Math.floor((event.offsetY / canvas.clientHeight) * lanes.length)];
    if (lane && panel.names === "replica") show({ ...current(), full: null, board: "replica", replicas: [lane.name], roles: [] });
  });
  // Whether names have room depends on the height.
  const high = frame.clientHeight;
  const observer = new ResizeObserver(() => { if (frame.clientHeight && frame.clientHeight !== high) view.redraw(panel.id); });
  observer.observe(frame);
  return () => observer.disconnect();
}

// Points of these panels are longer than those of other charts: as long as the least time between two.
function widthOf(lanes, step) {
  const times = [...new Set(lanes.flatMap(({ cells }) => [...cells.keys()]))].sort((one, other) => one - other);
  const between = times.slice(1).map((time, index) => time - times[index]);
  return between.length ? Math.max(step, Math.min(...between)) : step;
}

function lanesOf(answer) {
  const of = (name) => answer.columns[answer.names.indexOf(name)];
  const [times, places, values] = [of("time"), of("place"), of("value")], names = answer.columns[2];
  const lanes = new Map();
  times.forEach((time, row) => {
    if (!lanes.has(places[row])) lanes.set(places[row], { name: names[row], cells: new Map() });
    if (values[row] !== null) lanes.get(places[row]).cells.set(time, values[row]);
  });
  return [...lanes.entries()].sort(([one], [other]) => (one < other ? -1 : 1)).map(([, lane]) => lane);
}

// Names stand beside their lanes where there is room for a line of text; pointing at a lane always tells it.
function label(frame, lanes) {
  if ((frame.clientHeight - 20) / lanes.length < LABEL_PIXELS) {
    frame.classList.add("unnamed");
    return;
  }
  lanes.forEach(({ name }, row) => {
    const text = shortened(name);
    text.classList.add("lane");
    text.style.top = `calc((100% - 20px) * ${(row + 0.5) / lanes.length} - ${LABEL_PIXELS / 2}px)`;
    frame.append(text);
  });
}

function scale(panel, lanes) {
  const beyond = lanes.some(({ cells }) => [...cells.values()].some((value) => value > 1));
  const ends = panel.low_is_bad ? ["100 %", "0 %"] : ["0 %", "100 %"];
  return make("div", { className: "legend" }, ends[0], make("i", { className: "scale" }), ends[1], ...(beyond ? [make("span", {}, dot(style("--bad")), "above 100 %: more is counted than there is")] : []));
}

function worst(panel, lanes) {
  const newest = ({ cells }) => [...cells.values()].at(-1) ?? null;
  const first = lanes.slice(0, NAMED_BELOW).flatMap((lane, index) => {
    const share = figured("b", lane.name, newest(lane), { textContent: figure(newest(lane), panel.unit) });
    return [index ? " · " : "", named(panel.names, lane.name), " ", share];
  });
  return make("p", { className: "extent" }, `Newest figures of the worst of ${lanes.length.toLocaleString()}: `, ...first);
}
