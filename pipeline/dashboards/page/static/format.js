// Figures as people read them: three significant digits, the panel's unit.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function short(value) {
  const size = Math.abs(value);
  for (const [factor, prefix] of PREFIXES) {
    if (size >= factor) return trim(value / factor) + " " + prefix;
  }
  return trim(value);
}

function trim(value) {
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return Number(value.toFixed(digits)).toString();
}

export function duration(seconds) {
  if (seconds === 0) return "0 s";
  if (seconds < 1) return short(seconds * 1000) + " ms";
  if (seconds < 120) return trim(seconds) + " s";
  if (seconds < 7200) return trim(seconds / 60) + " min";
  if (seconds < 172800) return trim(seconds / 3600) + " h";
  return trim(seconds / 86400) + " d";
}

export function figure(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "share") return trim(value * 100) + " %";
  if (unit === "seconds") return duration(value);
  if (unit === "bytes") return short(value) + (Math.abs(value) < 1e3 ? " B" : "B");
  const rate = unit.endsWith("/s") ? "/s" : "";
  return short(value).trim() + rate;
}

export function moment(seconds, long) {
  const at = new Date(seconds * 1000);
  const time = { hour: "2-digit", minute: "2-digit", hour12: false };
  return long ? at.toLocaleString([], { day: "numeric", month: "short", second: "2-digit", ...time }) : at.toLocaleTimeString([], time);
}

const DAY = 86400;

// Of an axis whose marks are so many seconds apart.
export function tick(seconds, apart) {
  const at = new Date(seconds * 1000);
  if (apart >= DAY) return at.toLocaleDateString([], { month: "short", day: "numeric" });
  return at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: apart < 60 ? "2-digit" : undefined, hour12: false });
}

const PALETTE = ["#3f7fdb", "#d9822b", "#2f9e6e", "#8f6bd6", "#c74b7a", "#4db6ac", "#b59a2c", "#7a8794", "#6c8ebf", "#a6553a"];

// A series keeps its colour whatever else is shown: by its name, unless the panel gives it one.
export function colourOf(name, given) {
  if (given && given[name]) return given[name];
  let sum = 7;
  for (const letter of name) sum = (sum * 31 + letter.codePointAt(0)) >>> 0;
  return PALETTE[sum % PALETTE.length];
}

export function coloursOf(names, given) {
  const taken = new Set();
  return names.map((name) => {
    let colour = colourOf(name, given);
    if (!(given && given[name])) {
      for (let next = 0; taken.has(colour) && next < PALETTE.length; next += 1) colour = PALETTE[next];
    }
    taken.add(colour);
    return colour;
  });
}
