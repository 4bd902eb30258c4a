// Colours of series: as many as a chart names series, so that none stands for two of them. The first ones are
// told apart most easily, and are taken first.

const PALETTE = [
  "#3f7fdb", "#d9822b", "#2f9e6e", "#8f6bd6", "#c74b7a", "#27a5b5", "#b59a2c", "#a6553a", "#5fae3c", "#d662c4",
  "#e0574f", "#5468c9", "#8a8f2e", "#39b08f", "#b07adf", "#9c6b2f", "#6fa8e8", "#e394a8", "#4a8a5c", "#a14fa0",
  "#c9a56a", "#6c7fa8", "#97c45a", "#d97a5f",
];
const PLAIN = 10;
const OTHERS = "#8b95a1";

// A series keeps its colour whatever else is shown, unless one before it in the alphabet has taken it.
export function coloursOf(names, given) {
  const found = new Map(names.map((name) => [name, given?.[name] ?? (name === "others" ? OTHERS : null)]));
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
