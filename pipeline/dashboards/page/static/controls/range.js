// The range: so long until now, or from one point of time to another.

import { byId } from "../dom.js";
import { current, rangeOf, show } from "../state.js";
import { fromInput, inWords, toInput, zoneName } from "../time.js";
import { popover } from "./popover.js";

// What the boxes were filled with: while nobody changes it, it is that moment, also in the hour that clocks show twice.
const filled = new Map();

function fill(id, seconds) {
  byId(id).value = toInput(seconds);
  filled.set(id, { text: byId(id).value, seconds });
}

function taken(id) {
  const { text, seconds } = filled.get(id);
  return byId(id).value === text ? seconds : fromInput(byId(id).value);
}

export function listenToRange() {
  const range = byId("range"), form = byId("absolute");
  range.addEventListener("change", () => show({ range: Number(range.value), from: null, to: null }));
  const close = popover(byId("span"), form, () => {
    const { from, to } = rangeOf(current(), Date.now() / 1000);
    fill("from", from);
    fill("to", to);
    byId("in-zone").textContent = `Times are in ${zoneName()}.`;
    byId("range-problem").textContent = "";
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const from = taken("from"), to = taken("to");
    if (from === null || to === null || from >= to) {
      byId("range-problem").textContent = from === null || to === null ? "Give both times." : "“From” must be before “To”.";
      return;
    }
    close();
    show({ from, to });
  });
}

export function updateRange() {
  const state = current(), range = byId("range"), words = range.querySelector("[value=custom]");
  const listed = [...range.options].some((option) => option.value === String(state.range));
  words.hidden = state.from === null && listed;
  if (state.from !== null) words.textContent = inWords(state.from, state.to);
  else if (!listed) words.textContent = `Last ${state.range} seconds`;
  range.value = words.hidden ? String(state.range) : "custom";
}
