// What to do, and what it is worth: the answer as cards, the findings as a list.

import { make } from "../dom.js";
import { current, write } from "../state.js";
import { sparkline } from "./sparkline.js";

export function drawAnswer(body, panel, answer, view) {
  const [titles, figures, details, changes] = answer.columns;
  const curve = (title) => (panel.trend?.title === title ? sparkline(panel.trend, view) : null);
  body.append(make("div", { className: "cards" }, ...titles.map((title, row) => make("div", { className: "card" },
    make("span", { className: "soft", textContent: title }), make("strong", { textContent: figures[row] }, curve(title) ?? ""),
    make("span", { textContent: details[row] }), ...(changes[row] ? [make("span", { className: "soft", textContent: changes[row] })] : [])))));
  return () => {};
}

export function drawFindings(body, panel, answer) {
  const [places, findings, actions, worths, buts, models, replicas, boards] = answer.columns;
  body.append(make("ol", { className: "advice" }, ...places.map((place, row) => make("li", { value: place },
    make("a", { href: there(boards[row], models[row], replicas[row]), textContent: findings[row] }),
    make("span", { className: "do", textContent: actions[row] }), make("span", { className: "soft", textContent: worths[row] }),
    ...(buts[row] ? [make("span", { className: "yellow", textContent: buts[row] })] : [])))));
  return () => {};
}

// The board that shows it, with the range that is shown here.
function there(board, model, replica) {
  return write({ ...current(), full: null, board, models: model ? [model] : [], replicas: replica && board === "replica" ? [replica] : [], roles: [] });
}
