// The range: so long until now, or from one point of time to another.

import { byId } from "../dom.js";
import { current, rangeOf, show } from "../state.js";
import { fromInput, inWords, toInput, zoneName } from "../time.js";
import { popover } from "./popover.js";

export function listenToRange() {
  const range = byId("range"), form = byId("absolute");
  range.addEventListener("change", () => show({ range: Number(range.value), from: null, to: null }));
  const close = popover(byId("span"), form, () => {
    const { from, to } = rangeOf(current(), Date.now() / 1000);
    byId("from").value = toInput(from);
    byId("to").value = toInput(to);
    byId("in-zone").textContent = `Times are in ${zoneName()}.`;
    byId("range-problem").textContent = "";
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const from = fromInput(byId("from").value), to = fromInput(byId("to").value);
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
