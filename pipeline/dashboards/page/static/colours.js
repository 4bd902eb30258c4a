// Colours of series: as many as a chart names series, so that none stands for two of them. The first ones are
// told apart most easily, and are taken first. Those of causes and of trust are not among them.

const PALETTE = [
  "#27a5b5", "#c74b7a", "#7fae3c", "#5468c9", "#b59a2c", "#d662c4", "#a6553a", "#4a8a5c", "#e394a8", "#6c7fa8",
  "#8a8f2e", "#a14fa0", "#c9a56a", "#39708f", "#9c6b2f", "#5fc2c9", "#7a4a6b", "#b8c46a", "#3f6b3a", "#c98fd0",
];
const PLAIN = 10;
const OTHERS = "#8b95a1";

// A series keeps its colour whatever else is shown, unless one before it in the alphabet has taken it.
export function coloursOf(names, given) {
  const found = new Map(names.map((name) => [name, Object.hasOwn(given, name) ? given[name] : name === "others" ? OTHERS : null]));
  const taken = new Set(found.values());
  for (const name of [...names].sort()) {
    if (found.get(name)) continue;
    const first = hash(name) % PLAIN;
    const order = [...PALETTE.slice(first, PLAIN), ...PALETTE.slice(0, first), ...PALETTE.slice(PLAIN)];
    const colour = order.find((each) => !taken.has(each)) ?? order[0];
    found.set(name, colour);
    taken.add(colour);
  }
  return names.map((name) => found.get(name));
}

function hash(name) {
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return sum;
}
