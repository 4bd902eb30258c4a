// Tables: sorted by a click on a column's head, searched by typing, a hundred rows at a time.

import { make } from "../dom.js";
import { figure } from "../format.js";
import { named } from "../links.js";
import { current, write } from "../state.js";
import { moment } from "../time.js";

// A name may be any text, such as “constructor”.
export const TRUST = { __proto__: null, complete: "green", partial: "yellow", degraded: "red" };
const LEADING = new Set(["model", "replica", "source"]);
const PERCENT = /%/;
const BYTES = /\bbytes$/;
const ROWS = 100;
const SEARCHED_FROM = 10;

// What a viewer chose of a table, by the panel's id: it stays when new figures come.
const choices = new Map();

export function drawTable(body, panel, answer, view) {
  const chosen = choices.get(panel.id) ?? { words: "", column: null, down: true, rows: ROWS };
  choices.set(panel.id, chosen);
  const count = answer.columns[0].length;
  const again = () => view.redraw(panel.id);
  search(body, panel, chosen, count, again);
  const found = sorted(matching(answer, chosen.words), answer, chosen);
  const scroll = make("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: panel.title });
  const table = make("table");
  const trust = trustOfAll(answer);
  // What all rows have in common is said once, below them.
  const places = answer.names.map((_, index) => index).filter((index) => !(trust && answer.names[index] === "trust"));
  const numeric = answer.columns.map((column, index) => !answer.times.includes(answer.names[index]) && (PERCENT.test(answer.names[index]) || column.some((value) => typeof value === "number")));
  heads(table, answer.names, places, numeric, chosen, again);
  const rows = table.createTBody();
  for (const row of found.slice(0, chosen.rows)) {
    const line = rows.insertRow();
    for (const index of places) fill(line.insertCell(), answer.columns[index][row], answer.names[index], numeric[index], answer.times);
  }
  scroll.append(table);
  body.append(scroll);
  if (trust) body.append(make("p", { className: "extent", textContent: `Each of these figures rests on all streams that can hold it, and one or more of them is ${trust}: ` }, healthLink()));
  if (found.length > chosen.rows || found.length < count) body.append(extent(chosen, found.length, count, again));
  return () => {};
}

function search(body, panel, chosen, count, again) {
  const tools = body.parentElement.querySelector(".tools");
  const box = tools.querySelector("input");
  // Words that still count are seen, and can be taken back.
  if (box || (count < SEARCHED_FROM && !chosen.words)) return;
  const input = make("input", { type: "search", placeholder: "Search", ariaLabel: `Search in ${panel.title}`, size: 18, spellcheck: false, value: chosen.words });
  input.addEventListener("input", () => { chosen.words = input.value; chosen.rows = ROWS; again(); });
  tools.prepend(input);
}

// The rows in whose texts every word occurs.
function matching(answer, words) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = answer.columns.filter((column) => column.some((value) => typeof value === "string"));
  const rows = answer.columns[0].map((_, row) => row);
  if (!wanted.length) return rows;
  return rows.filter((row) => {
    const text = texts.map((column) => column[row] ?? "").join("\n").toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
}

function sorted(rows, answer, { column, down }) {
  const values = answer.columns[answer.names.indexOf(column)];
  if (!values) return rows;
  const compared = (one, other) => (typeof one === "string" ? one.localeCompare(other, undefined, { numeric: true }) : one - other);
  const nothing = (value) => value === null || value === undefined;
  return rows.sort((one, other) => {
    const [first, second] = [values[one], values[other]];
    // What has no figure comes last, whichever way.
    if (nothing(first) || nothing(second)) return nothing(first) - nothing(second);
    return compared(first, second) * (down ? -1 : 1);
  });
}

function heads(table, names, places, numeric, chosen, again) {
  const head = table.createTHead().insertRow();
  places.forEach((index) => {
    const name = names[index];
    const button = make("button", { type: "button", textContent: name.replaceAll("_", " ") });
    button.addEventListener("click", () => {
      // Figures begin with the largest, names with the first.
      chosen.down = chosen.column === name ? !chosen.down : numeric[index];
      chosen.column = name;
      again();
    });
    const cell = make("th", { scope: "col", className: numeric[index] ? "number" : "" }, button);
    if (chosen.column === name) cell.ariaSort = chosen.down ? "descending" : "ascending";
    head.append(cell);
  });
}

function fill(cell, value, name, numeric, times) {
  if (numeric) cell.className = "number";
  cell.append(typeof value === "string" ? named(LEADING.has(name) ? name : "", value) : cellText(value, name, times));
  if (PERCENT.test(name)) {
    cell.classList.add("share");
    cell.style.setProperty("--share", `${Math.min(100, value ?? 0)}%`);
  }
  if (TRUST[value]) cell.classList.add(TRUST[value]);
}

// What all rows have in common is said once: a column of red words would look like as many troubles.
function trustOfAll(answer) {
  const [first, ...others] = answer.columns[answer.names.indexOf("trust")] ?? [];
  return first in TRUST && first !== "complete" && others.length && others.every((trust) => trust === first) ? first : null;
}

function healthLink() {
  return make("a", { href: write({ ...current(), board: "health", full: null }), textContent: "see Pipeline health" });
}

function cellText(value, name, times) {
  if (value === null || value === undefined) return "–";
  if (times.includes(name)) return moment(value, true);
  if (typeof value === "number" && BYTES.test(name)) return figure(value, "bytes");
  if (typeof value === "number") return value.toLocaleString();
  return value ? "yes" : "no";
}

function extent(chosen, found, count, again) {
  const text = found < count ? `${found.toLocaleString()} of ${count.toLocaleString()} rows match` : `${count.toLocaleString()} rows`;
  const line = make("p", { className: "extent", textContent: chosen.rows < found ? `First ${chosen.rows}; ${text}. ` : `${text}. ` });
  if (chosen.rows < found) {
    const more = make("button", { type: "button", textContent: `Show ${Math.min(ROWS, found - chosen.rows)} more` });
    more.addEventListener("click", () => { chosen.rows += ROWS; again(); });
    line.append(more);
  }
  return line;
}
