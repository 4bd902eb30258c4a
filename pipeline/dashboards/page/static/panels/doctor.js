// What the doctor finds, above the panels of the board on the pipeline itself.

import { json } from "../ask.js";
import { make, worded } from "../dom.js";
import { named } from "../links.js";
import { moment } from "../time.js";

const AGAIN_SECONDS = 30;
const SHOWN = 5;
const FINDINGS_SHOWN = 6;
const COLOURS = { problem: "red", unknown: "yellow", note: "" };

// Returns {element, end}: it looks again and again until `end()`.
export function doctor() {
  const list = make("div", { className: "body" }, make("p", { className: "note", textContent: "Looking at engines, Kafka, worker and tables…" }));
  const verdict = make("small");
  const element = make("div", { className: "panel doctor", role: "region", ariaLabel: "Findings" },
    make("h3", {}, make("span", { textContent: "Findings" }), make("span", { className: "tools" }, verdict)), list);
  let timer = null, ended = false;
  async function look() {
    try {
      const found = await json("api/findings");
      verdict.textContent = `${found.verdict}, as of ${moment(found.at, true)}; the same as “kvlens doctor”`;
      const open = Boolean(list.querySelector("details[open]"));
      list.replaceChildren(...(found.findings.length ? lines(found.findings, open) : [make("p", { className: "note", textContent: "Healthy: nothing was found." })]));
      element.dataset.verdict = found.verdict;
    } catch (error) {
      list.replaceChildren(make("p", { className: "note problem", textContent: `The findings could not be read: ${error.message}` }));
    }
    if (!ended) timer = setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", look, { once: true }) : look()), AGAIN_SECONDS * 1000);
  }
  look();
  return { element, end() { ended = true; clearTimeout(timer); } };
}

// The first ones, and the others on demand: no box that ends in the middle of one.
function lines(findings, open) {
  const others = findings.slice(FINDINGS_SHOWN);
  const more = make("details", { open }, make("summary", { textContent: `${others.length} more` }), ...others.map(line));
  return [...findings.slice(0, FINDINGS_SHOWN).map(line), ...(others.length ? [more] : [])];
}

function line({ code, severity, message, remedy, subjects, as_of: asOf }) {
  const more = subjects.length - SHOWN;
  return make("div", { className: "finding" },
    make("p", {}, make("b", { className: COLOURS[severity], textContent: severity }), ` ${message}`, make("code", { textContent: code, title: "See docs/operations.md" }), ...(asOf ? [make("small", { textContent: ` as of ${moment(asOf, true)}` })] : [])),
    ...(subjects.length ? [make("p", { className: "at" }, ...subjects.slice(0, SHOWN).map((each) => named(/\/\d+$/.test(each) ? "source" : "", each)), more > 0 ? ` and ${more} more` : "")] : []),
    ...(remedy ? [make("p", { className: "do" }, ...worded(remedy))] : []));
}
