// The page: boards, controls, and the panels' answers fetched and drawn again and again.

import { drawHeat, drawSeries } from "./charts.js";
import { moment } from "./format.js";
import { rangeOf, read, write } from "./state.js";
import { drawBars, drawStat, drawStrips, drawTable } from "./tables.js";

const DRAW = { stat: drawStat, timeseries: drawSeries, stacked: drawSeries, heatmap: drawHeat, bar: drawBars, table: drawTable, state_timeline: drawStrips };
const EMPTY = "Nothing in this range yet. Rows come about two seconds after an engine publishes: choose a longer range, fewer filters, or run “kvlens doctor”.";
const TIMEOUT_MILLISECONDS = 30_000;
const RETRY_MILLISECONDS = 5_000;

const byId = (id) => document.getElementById(id);
let boards = [];
let state = read(location.search);
let drawn = new Map();
let round = 0;
let timer = null;
let marks = [];

async function fetched(path, fields) {
  const answer = await fetch(path + "?" + fields, { signal: AbortSignal.timeout(TIMEOUT_MILLISECONDS) });
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.problem ?? answer.statusText);
  return content;
}

function chosen() {
  const fields = new URLSearchParams();
  const board = current();
  if (board.choices.includes("model")) for (const model of state.models) fields.append("model", model);
  if (board.choices.includes("replica")) for (const replica of state.replicas) fields.append("replica", replica);
  return fields;
}

const current = () => boards.find((board) => board.id === state.board) ?? boards[0];

function show(changes) {
  const before = state.board;
  state = { ...state, ...changes };
  history.pushState(null, "", write(state));
  if (state.board !== before) build();
  controls();
  refresh();
}

function build() {
  for (const undo of drawn.values()) undo();
  drawn = new Map();
  const board = current();
  document.title = `${board.title} · kvlens`;
  const about = document.createElement("p");
  about.className = "about";
  about.textContent = board.description;
  byId("board").replaceChildren(about, ...board.sections.flatMap((section) => {
    const title = document.createElement("h2");
    title.textContent = section.title;
    const grid = document.createElement("div");
    grid.className = "grid";
    grid.append(...section.panels.map(frame));
    return [title, grid];
  }));
}

function frame(panel) {
  const element = document.createElement("section");
  element.className = "panel";
  element.id = panel.id;
  element.dataset.kind = panel.kind;
  element.style.setProperty("--w", panel.width);
  element.style.setProperty("--h", panel.height);
  element.setAttribute("aria-labelledby", panel.id + "-title");
  const title = document.createElement("h3");
  const text = document.createElement("span");
  text.id = panel.id + "-title";
  text.textContent = panel.title;
  const details = document.createElement("details");
  const summary = document.createElement("summary");
  summary.textContent = "?";
  summary.ariaLabel = `What ${panel.title} means`;
  const meaning = document.createElement("p");
  meaning.textContent = panel.description;
  details.append(summary, meaning);
  title.append(text, details);
  const body = document.createElement("div");
  body.className = "body";
  body.append(note("Loading…"));
  element.append(title, body);
  return element;
}

function note(text, problem) {
  const element = document.createElement("p");
  element.className = problem ? "note problem" : "note";
  element.textContent = text;
  return element;
}

async function refresh() {
  clearTimeout(timer);
  const mine = ++round;
  const board = current();
  const { from, to } = rangeOf(state, Date.now() / 1000);
  const fields = chosen();
  fields.set("from", from);
  fields.set("to", to);
  const view = {
    from, to, get marks() { return marks; },
    narrow: (start, end) => show({ from: start, to: Math.max(end, start + 20) }),
    widen: () => show({ from: null, to: null }),
  };
  const problems = new Set();
  marks = await annotations(board, fields, problems);
  await Promise.all(board.sections.flatMap((section) => section.panels).map(async (panel) => {
    const body = byId(panel.id)?.querySelector(".body");
    try {
      const answer = await fetched(`/api/panels/${panel.id}`, fields);
      if (mine === round) draw(panel, body, answer, view);
    } catch (error) {
      problems.add(error.message);
      if (mine === round) failed(panel, body);
    }
  }));
  if (mine !== round) return;
  const banner = byId("banner");
  banner.hidden = problems.size === 0;
  if (problems.size) banner.textContent = [...problems].join(" · ");
  byId("status").textContent = problems.size ? "Some figures could not be read; trying again." : `As of ${moment(Date.now() / 1000, true)}`;
  document.body.dataset.ready = String(problems.size === 0);
  document.body.dataset.round = mine;
  if (state.refresh && state.from === null) timer = setTimeout(again, state.refresh * 1000);
  else if (problems.size) timer = setTimeout(again, RETRY_MILLISECONDS);
}

// A page that nobody sees asks nothing until it is seen.
function again() {
  if (document.hidden) document.addEventListener("visibilitychange", again, { once: true });
  else refresh();
}

async function annotations(board, fields, problems) {
  const found = [];
  for (const annotation of board.annotations) {
    try {
      const answer = await fetched(`/api/annotations/${annotation.id}`, fields);
      if (answer.columns.length) answer.columns[0].forEach((time, row) => found.push({ time, text: answer.columns[1][row] }));
    } catch (error) {
      problems.add(error.message);
    }
  }
  return found;
}

function draw(panel, body, answer, view) {
  drawn.get(panel.id)?.();
  drawn.delete(panel.id);
  const reading = reader(body);
  body.classList.remove("stale");
  body.replaceChildren();
  const nothing = answer.columns.length === 0 || answer.columns[0].length === 0;
  const undo = nothing ? null : DRAW[panel.kind](body, panel, answer, view);
  if (undo) drawn.set(panel.id, undo);
  else body.append(note(panel.empty || EMPTY));
  reading();
}

// Who scrolled through a table, or stands in it with the keyboard, still does after it was drawn again.
function reader(body) {
  const before = body.querySelector(".scroll");
  if (!before) return () => {};
  const { scrollTop, scrollLeft } = before, focused = before === document.activeElement;
  return () => {
    const after = body.querySelector(".scroll");
    after?.scrollTo(scrollLeft, scrollTop);
    if (focused) after?.focus({ preventScroll: true });
  };
}

// Figures that were there stay, dimmed: old ones say more than none.
function failed(panel, body) {
  if (drawn.has(panel.id)) body.classList.add("stale");
  else body.replaceChildren(note("ClickHouse did not answer; trying again. The top of the page says what is wrong.", true));
}

function controls() {
  const board = current();
  byId("boards").replaceChildren(...boards.map((each) => {
    const link = document.createElement("a");
    link.href = write({ ...state, board: each.id });
    link.textContent = each.title;
    if (each === board) link.setAttribute("aria-current", "page");
    link.addEventListener("click", (event) => {
      if (event.metaKey || event.ctrlKey) return;
      event.preventDefault();
      show({ board: each.id });
      byId("board").focus();
    });
    return link;
  }));
  for (const label of document.querySelectorAll("[data-choice]")) label.hidden = !board.choices.includes(label.dataset.choice);
  const range = byId("range");
  range.querySelector("[value=custom]").hidden = state.from === null;
  range.value = state.from !== null ? "custom" : String(state.range);
  byId("refresh").value = String(state.refresh);
  byId("model").value = state.models[0] ?? "";
  byId("replica").value = state.replicas.join(", ");
}

async function choices() {
  const fields = new URLSearchParams(state.models.map((model) => ["model", model]));
  try {
    const found = await fetched("/api/choices", fields);
    const option = (value, text) => Object.assign(document.createElement("option"), { value, textContent: text ?? value });
    byId("model").replaceChildren(option("", "All"), ...[...new Set([...found.model, ...state.models])].map((name) => option(name)));
    byId("replicas").replaceChildren(...found.replica.map((name) => option(name)));
    byId("model").value = state.models[0] ?? "";
  } catch {
    // The panels say what is wrong; the next look asks again.
  }
}

function listen() {
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  byId("model").addEventListener("change", (event) => { show({ models: event.target.value ? [event.target.value] : [] }); choices(); });
  byId("replica").addEventListener("change", (event) => {
    show({ replicas: event.target.value.split(",").map((name) => name.trim()).filter(Boolean) });
  });
  byId("range").addEventListener("change", (event) => show({ range: Number(event.target.value), from: null, to: null }));
  byId("refresh").addEventListener("change", (event) => show({ refresh: Number(event.target.value) }));
  byId("now").addEventListener("click", () => { choices(); refresh(); });
  addEventListener("popstate", () => { state = read(location.search); build(); controls(); refresh(); });
}

async function start() {
  listen();
  for (;;) {
    try {
      boards = await fetched("/api/boards", "");
      break;
    } catch (error) {
      byId("banner").hidden = false;
      byId("banner").textContent = `The page's server does not answer (${error.message}); trying again.`;
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  build();
  controls();
  await choices();
  controls();
  await refresh();
  setInterval(choices, 60_000);
}

start();
