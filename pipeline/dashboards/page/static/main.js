// The page: boards, controls, and the panels' answers fetched and drawn again and again.

import { json } from "./ask.js";
import { listen, offerChoices, updateHead } from "./controls/head.js";
import { byId, make, note } from "./dom.js";
import { drawAnswer, drawFindings } from "./panels/advice.js";
import { drawBars } from "./panels/bars.js";
import { drawCurve } from "./panels/curve.js";
import { doctor } from "./panels/doctor.js";
import { frame, showFull } from "./panels/frame.js";
import { drawFlow } from "./panels/flow.js";
import { drawHeat } from "./panels/heat.js";
import { drawLanes } from "./panels/lanes.js";
import { drawSeries } from "./panels/lines.js";
import { bundled, listed } from "./panels/marks.js";
import { drawStat } from "./panels/stat.js";
import { drawStrips } from "./panels/strips.js";
import { drawTable } from "./panels/table.js";
import { adopt, current, follow, rangeOf, read, show } from "./state.js";
import { moment, useUtc, zoneName } from "./time.js";

const DRAW = { stat: drawStat, timeseries: drawSeries, stacked: drawSeries, heatmap: drawHeat, bar: drawBars, table: drawTable, state_timeline: drawStrips, curve: drawCurve, lanes: drawLanes, flow: drawFlow, answer: drawAnswer, findings: drawFindings };
const EMPTY = "No data for this range and these filters. Rows come about two seconds after an engine publishes: choose a longer range, fewer filters, or run “kvlens doctor”.";
const RETRY_MILLISECONDS = 5_000;
// A store that has too much to do is asked less often.
const BUSY_RETRY_MILLISECONDS = 15_000;

let boards = [];
let undo = new Map();
let answers = new Map();
let round = 0;
let timer = null;
// Ends the questions of a round that another one has overtaken.
let leave = new AbortController();
let marks = [];

const board = () => boards.find((each) => each.id === current().board) ?? boards[0];

// The fields of a question about what is shown now.
function asked() {
  const state = current(), { from, to } = rangeOf(state, Date.now() / 1000);
  const fields = new URLSearchParams({ from, to });
  if (board().choices.includes("model")) for (const model of state.models) fields.append("model", model);
  if (board().choices.includes("replica")) for (const replica of state.replicas) fields.append("replica", replica);
  if (board().choices.includes("role")) for (const role of state.roles) fields.append("role", role);
  return fields;
}

function build() {
  for (const end of undo.values()) end();
  undo = new Map();
  answers = new Map();
  document.title = `${board().title} · kvlens`;
  const diagnosis = board().findings ? doctor() : null;
  if (diagnosis) undo.set("doctor", diagnosis.end);
  byId("board").replaceChildren(make("p", { className: "about", textContent: board().description }), make("div", { id: "marks" }), ...(diagnosis ? [diagnosis.element] : []), ...board().sections.flatMap((section) => [
    make("h2", { textContent: section.title }),
    make("div", { className: "grid" }, ...section.panels.map((panel) => frame(panel, asked))),
  ]));
}

async function refresh() {
  clearTimeout(timer);
  leave.abort();
  leave = new AbortController();
  const left = leave.signal;
  const mine = ++round;
  const fields = asked();
  const view = {
    from: Number(fields.get("from")), to: Number(fields.get("to")), get marks() { return marks; },
    narrow: (start, end) => show({ from: start, to: Math.max(end, start + 20) }),
    widen: () => show({ from: null, to: null }),
    redraw,
    // What another panel was answered for the same range, once it was.
    answer: (id) => (answers.get(id)?.view === view ? answers.get(id).answer : null),
  };
  const problems = new Set();
  let busy = false;
  // What concerns all figures stands above them, as soon as it is known; what concerns one panel, in that panel.
  const noted = (error) => {
    if (mine !== round) return;
    if (error.busy) busy = true;
    else tell([...problems.add(error.message)].join(" · "));
  };
  marks = await annotations(fields, noted, left);
  if (mine !== round) return;
  const bundles = bundled(marks, view.from, view.to);
  byId("marks").replaceChildren(...(bundles.length ? [listed(bundles)] : []));
  await Promise.all(board().sections.flatMap((section) => section.panels).map(async (panel) => {
    const body = byId(panel.id)?.querySelector(".body");
    try {
      const answer = await json(`api/panels/${panel.id}`, fields, left);
      if (mine !== round) return;
      body.classList.remove("stale", "loading");
      late(body, null);
      draw(panel, body, answer, view);
      // Not what is still asked, or could not be read: it stays dimmed.
      for (const each of answers.values()) if (each.view === view && each.panel.trend?.panel === panel.id) redraw(each.panel.id);
    } catch (error) {
      noted(error);
      if (mine === round) failed(panel, body, error);
    }
  }));
  if (mine !== round) return;
  tell([...problems].join(" · "));
  const behind = problems.size > 0 || busy;
  byId("status").textContent = behind ? "Some figures could not be read; trying again." : `As of ${moment(Date.now() / 1000, true)}`;
  document.body.dataset.ready = String(!behind);
  document.body.dataset.round = mine;
  const state = current();
  if (state.refresh && state.from === null) timer = setTimeout(again, state.refresh * 1000);
  else if (behind) timer = setTimeout(again, problems.size ? RETRY_MILLISECONDS : BUSY_RETRY_MILLISECONDS);
}

function tell(problem) {
  byId("banner").hidden = !problem;
  byId("banner").textContent = problem;
}

// A page that nobody sees asks nothing until it is seen.
function again() {
  if (document.hidden) document.addEventListener("visibilitychange", again, { once: true });
  else refresh();
}

async function annotations(fields, noted, left) {
  const found = [];
  for (const annotation of board().annotations) {
    try {
      const answer = await json(`api/annotations/${annotation.id}`, fields, left);
      if (answer.columns.length) answer.columns[0].forEach((time, row) => found.push({ time, text: answer.columns[1][row] }));
    } catch (error) {
      noted(error);
    }
  }
  return found;
}

function draw(panel, body, answer, view) {
  answers.set(panel.id, { panel, answer, view });
  undo.get(panel.id)?.();
  undo.delete(panel.id);
  const reading = reader(body);
  body.replaceChildren();
  const nothing = answer.columns.length === 0 || answer.columns[0].length === 0;
  // What says why there is nothing needs no chart's room for it.
  body.parentElement.classList.toggle("quiet", nothing && Boolean(panel.empty));
  const end = nothing ? null : DRAW[panel.kind](body, panel, answer, view);
  if (end) undo.set(panel.id, end);
  else body.append(note(panel.empty || EMPTY));
  fold(body.closest(".grid"));
  reading();
}

// A section in which every panel has only to say why it has nothing says it once.
function fold(grid) {
  const panels = [...grid.querySelectorAll(".panel")];
  for (const each of grid.querySelectorAll(":scope > .note")) each.remove();
  const folded = panels.every((each) => each.classList.contains("quiet") && !each.classList.contains("full"));
  grid.classList.toggle("folded", folded);
  if (!folded) return;
  const said = new Map(panels.map((each) => each.querySelector(".note")).map((each) => [each.textContent, each]));
  grid.append(...[...said.values()].map((each) => each.cloneNode(true)));
}

// Draw one panel, or all, once more from the answers that are there; what is dimmed stays so.
function redraw(id) {
  for (const [each, { panel, answer, view }] of answers) {
    if (id === undefined || id === each) draw(panel, byId(each).querySelector(".body"), answer, view);
  }
}

// Who scrolled through a panel, or stands in it with the keyboard, still does after it was drawn again.
function reader(body) {
  const before = body.querySelector(".scroll");
  const focusable = () => [...body.querySelectorAll("button, a, [tabindex]")];
  const place = focusable().indexOf(document.activeElement);
  const { scrollTop, scrollLeft } = before ?? {};
  return () => {
    if (before) body.querySelector(".scroll")?.scrollTo(scrollLeft, scrollTop);
    if (place >= 0) focusable()[place]?.focus({ preventScroll: true });
  };
}

// Figures that were there stay, dimmed: old ones say more than none.
function failed(panel, body, error) {
  const told = error.busy ? `${error.message} Trying again.` : "Not answered; trying again. See the error above.";
  const old = undo.has(panel.id);
  body.classList.remove("loading");
  if (old) body.classList.add("stale");
  else body.replaceChildren(note(told, !error.busy));
  late(body, old && error.busy ? told : null);
}

// Say above the old figures of a panel why they are old, or nothing any more.
function late(body, text) {
  body.parentElement.querySelector(".late")?.remove();
  if (text) body.before(make("p", { className: "late", textContent: text }));
}

function changed(before) {
  const state = current();
  useUtc(state.utc);
  if (state.board !== before.board) build();
  if (String(state.models) !== String(before.models)) offerChoices();
  updateHead(boards, board());
  showFull(state.full);
  byId("hint").textContent = `Drag across a chart to zoom, double-click to reset. Times in ${zoneName()}.`;
  document.body.dataset.ready = "false";
  // Until its answer is there, a panel shows what was asked before.
  for (const body of document.querySelectorAll("section.panel > .body")) body.classList.add("loading");
  return refresh();
}

// Links to another board, or to what a name names, change the page in place.
function follows(event) {
  const link = event.target.closest('a[href^="?"]');
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  adopt(read(link.search), true);
  byId("board").focus();
}

async function start() {
  for (;;) {
    try {
      boards = await json("api/boards");
      break;
    } catch (error) {
      tell(`The page's server does not answer (${error.message}); trying again.`);
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
  listen(refresh);
  document.addEventListener("click", follows);
  addEventListener("theme", () => redraw());
  follow(changed);
  build();
  await offerChoices();
  await changed(current());
}

start();
