// Pictures without an axis of time: figures, bars, tables; and states over time as strips.

import { shortened } from "./charts.js";
import { coloursOf, figure, moment } from "./format.js";

const TRUST = { complete: "green", partial: "yellow", degraded: "red" };
// Of a figure that does not say it itself.
const UNITS = { "tokens/s": "tokens a second", "blocks/s": "blocks a second", "events/s": "events a second" };

export function drawStat(body, panel, answer) {
  const list = document.createElement("div");
  list.className = "figures";
  answer.names.forEach((name, column) => {
    const value = answer.columns[column].length ? answer.columns[column][0] : null;
    const item = document.createElement("div");
    item.className = "figure";
    item.dataset.figure = name;
    if (value !== null) item.dataset.value = value;
    const level = panel.thresholds.filter((threshold) => value !== null && value >= threshold.at).pop();
    if (level) item.classList.add(level.colour);
    // Nothing degraded is no reason for red.
    if (value === 0) item.classList.add("none");
    else if (TRUST[name]) item.classList.add(TRUST[name]);
    item.textContent = figure(value, panel.unit);
    item.append(small(answer.names.length > 1 ? name : UNITS[panel.unit] ?? ""));
    list.append(item);
  });
  body.append(list);
  return () => {};
}

export function drawBars(body, panel, answer) {
  const [labels, ...figures] = answer.columns;
  const names = answer.names.slice(1);
  const colours = coloursOf(names, panel.colours);
  const apart = panel.unit === "share";
  const total = (row) => figures.reduce((sum, column) => sum + (column[row] ?? 0), 0);
  const most = apart ? 1 : Math.max(...labels.map((_, row) => total(row)), 1e-9);
  const grid = document.createElement("div");
  grid.className = "bars scroll";
  grid.tabIndex = 0;
  labels.forEach((label, row) => {
    if (apart) {
      const head = shortened(label);
      head.classList.add("head");
      grid.append(head);
    }
    const lines = apart ? names.map((name, index) => [name, [index]]) : [[label, names.map((_, index) => index)]];
    for (const [title, indices] of lines) {
      const bar = document.createElement("div");
      bar.className = "bar";
      for (const index of indices) {
        const piece = document.createElement("span");
        piece.style.background = colours[index];
        piece.style.width = (100 * (figures[index][row] ?? 0)) / most + "%";
        piece.title = `${names[index]}: ${figure(figures[index][row], panel.unit)}`;
        bar.append(piece);
      }
      const amount = document.createElement("span");
      amount.className = "amount";
      const value = apart ? figures[indices[0]][row] : total(row);
      amount.textContent = figure(value, panel.unit);
      amount.dataset.figure = apart ? `${label}: ${title}` : label;
      if (value !== null) amount.dataset.value = value;
      grid.append(shortened(title), bar, amount);
    }
  });
  body.append(grid);
  if (!apart) {
    const legend = document.createElement("div");
    legend.className = "legend";
    names.forEach((name, index) => {
      const item = document.createElement("span");
      const dot = document.createElement("i");
      dot.style.background = colours[index];
      item.append(dot, name);
      legend.append(item);
    });
    body.append(legend);
  }
  return () => {};
}

const TIMES = new Set(["opened", "closed", "since", "last_window", "seen"]);
const PERCENT = /%/;
const BYTES = /\bbytes$/;

export function drawTable(body, panel, answer) {
  const scroll = document.createElement("div");
  scroll.className = "scroll";
  scroll.tabIndex = 0;
  const table = document.createElement("table");
  const numeric = answer.columns.map((column, index) => !TIMES.has(answer.names[index]) && column.some((value) => typeof value === "number"));
  const head = table.createTHead().insertRow();
  answer.names.forEach((name, index) => {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = name.replaceAll("_", " ");
    if (numeric[index]) cell.className = "number";
    head.append(cell);
  });
  const rows = table.createTBody();
  for (let row = 0; row < answer.columns[0].length; row += 1) {
    const line = rows.insertRow();
    answer.columns.forEach((column, index) => {
      const cell = line.insertCell();
      const value = column[row];
      if (numeric[index]) cell.className = "number";
      cell.append(typeof value === "string" ? shortened(value) : cellText(value, answer.names[index]));
      if (PERCENT.test(answer.names[index])) {
        cell.classList.add("share");
        cell.style.setProperty("--share", `${Math.min(100, value ?? 0)}%`);
      }
      if (TRUST[value]) cell.classList.add(TRUST[value]);
    });
  }
  scroll.append(table);
  body.append(scroll);
  return () => {};
}

function cellText(value, name) {
  if (value === null || value === undefined) return "–";
  if (TIMES.has(name)) return moment(value, true);
  if (typeof value === "number" && BYTES.test(name)) return figure(value, "bytes");
  if (typeof value === "number") return value.toLocaleString();
  return value ? "yes" : "no";
}

export function drawStrips(body, panel, answer, view) {
  const [times, names, states] = answer.columns;
  const rows = document.createElement("div");
  rows.className = "rows";
  for (const name of new Set(names)) {
    const strip = document.createElement("canvas");
    strip.className = "strip";
    const count = Math.max(1, Math.ceil((view.to - view.from) / answer.step));
    strip.width = count;
    strip.height = 1;
    const context = strip.getContext("2d");
    const seen = {};
    for (let row = 0; row < times.length; row += 1) {
      if (names[row] !== name) continue;
      seen[states[row]] = (seen[states[row]] ?? 0) + 1;
      context.fillStyle = panel.colours[states[row]] ?? "#7a8794";
      context.fillRect(Math.floor((times[row] - view.from) / answer.step), 0, 1, 1);
    }
    strip.style.imageRendering = "pixelated";
    strip.role = "img";
    strip.ariaLabel = Object.entries(seen).map(([state, points]) => `${state} ${points} points`).join(", ");
    rows.append(shortened(name), strip);
  }
  body.append(rows);
  const legend = document.createElement("div");
  legend.className = "legend";
  for (const [state, colour] of Object.entries(panel.colours)) {
    const item = document.createElement("span");
    const dot = document.createElement("i");
    dot.style.background = colour;
    item.append(dot, state);
    legend.append(item);
  }
  body.append(legend);
  return () => {};
}

function small(text) {
  const note = document.createElement("small");
  note.textContent = text;
  return note;
}
