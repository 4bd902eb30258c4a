// Figures as people read them: three significant digits, the panel's unit.

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

function short(value) {
  // As it is shown: 999,999 is 1 M.
  const size = Math.abs(Number(value.toPrecision(3)));
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
