// What is shown, kept in the URL so that it can be sent to a colleague.

export const DEFAULT_BOARD = "fleet";
const DEFAULTS = { range: 3600, refresh: 10 };
// Of browsers' timers: one that is longer ends at once.
const LONGEST_REFRESH = 86400;

export function read(search) {
  const fields = new URLSearchParams(search);
  const whole = (name, otherwise) => (/^\d{1,10}$/.test(fields.get(name) ?? "") ? Number(fields.get(name)) : otherwise);
  const [from, to] = [whole("from", null), whole("to", null)];
  const apart = from !== null && to !== null;
  return {
    board: fields.get("board") ?? DEFAULT_BOARD,
    range: whole("range", DEFAULTS.range),
    from: apart ? from : null,
    to: apart ? to : null,
    refresh: Math.min(whole("refresh", DEFAULTS.refresh), LONGEST_REFRESH),
    models: fields.getAll("model"),
    replicas: fields.getAll("replica"),
    roles: fields.getAll("role"),
    utc: fields.get("zone") === "utc",
    full: fields.get("full"),
  };
}

export function write(state) {
  const fields = new URLSearchParams();
  fields.set("board", state.board);
  if (state.from !== null) {
    fields.set("from", state.from);
    fields.set("to", state.to);
  } else {
    fields.set("range", state.range);
  }
  fields.set("refresh", state.refresh);
  for (const model of state.models) fields.append("model", model);
  for (const replica of state.replicas) fields.append("replica", replica);
  for (const role of state.roles) fields.append("role", role);
  if (state.utc) fields.set("zone", "utc");
  if (state.full) fields.set("full", state.full);
  return "?" + fields;
}

let now = read(location.search);
const followers = [];

export const current = () => now;

// Calls `changed(before)` whenever something else is to be shown.
export const follow = (changed) => followers.push(changed);

export function show(changes) {
  adopt({ ...now, ...changes }, true);
}

export function adopt(next, written = false) {
  const before = now;
  now = next;
  if (written) history.pushState(null, "", write(now));
  for (const changed of followers) changed(before);
}

addEventListener("popstate", () => adopt(read(location.search)));

const WINDOW = 10;
const LATE = 3;

// The range in whole seconds. One that ends now moves on with the clock, window by window: the newest one
// is that whose rows have come, as a half-filled window would look like a fall.
export function rangeOf(state, clock) {
  if (state.from !== null) return { from: state.from, to: state.to };
  const end = Math.floor((clock - LATE) / WINDOW) * WINDOW;
  return { from: end - state.range, to: end - 1 };
}
