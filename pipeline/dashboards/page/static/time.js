// Points of time in words, in the viewer's zone or in UTC.

const LOCAL = Intl.DateTimeFormat().resolvedOptions().timeZone;
const DAY = 86400;
const CLOCK = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
let utc = false;

export function useUtc(chosen) { utc = chosen; }

export const zoneName = () => (utc ? "UTC" : LOCAL);
export const localName = () => LOCAL;

const zoned = (options) => ({ ...options, timeZone: zoneName() });

export function moment(seconds, long) {
  const at = new Date(seconds * 1000);
  return long
    ? at.toLocaleString([], zoned({ ...CLOCK, day: "numeric", month: "short", second: "2-digit" }))
    : at.toLocaleTimeString([], zoned(CLOCK));
}

// Of an axis whose marks are so many seconds apart.
export function tick(seconds, apart) {
  const at = new Date(seconds * 1000);
  if (apart >= DAY) return at.toLocaleDateString([], zoned({ month: "short", day: "numeric" }));
  return at.toLocaleTimeString([], zoned({ ...CLOCK, second: apart < 60 ? "2-digit" : undefined }));
}

// Such as “Nov 22, 14:00 to 14:20”: the second date only where it is another one.
export function inWords(from, to) {
  const date = (at) => new Date(at * 1000).toLocaleDateString([], zoned({ month: "short", day: "numeric", year: aged(from) ? "numeric" : undefined }));
  const clock = (at) => new Date(at * 1000).toLocaleTimeString([], zoned({ ...CLOCK, second: to - from < 600 ? "2-digit" : undefined }));
  const end = date(from) === date(to) ? clock(to) : `${date(to)}, ${clock(to)}`;
  return `${date(from)}, ${clock(from)} to ${end}`;
}

const aged = (at) => Date.now() / 1000 - at > 300 * DAY;

// What <input type=datetime-local> shows and says: a wall clock without a zone.
export function toInput(seconds) {
  const parts = Object.fromEntries(new Intl.DateTimeFormat("en-GB", zoned({
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
  })).formatToParts(seconds * 1000).map(({ type, value }) => [type, value]));
  return `${parts.year}-${parts.month}-${parts.day}T${parts.hour}:${parts.minute}:${parts.second}`;
}

export function fromInput(text) {
  const at = Date.parse(utc ? text + "Z" : text);
  return Number.isNaN(at) ? null : Math.floor(at / 1000);
}

export const onAxis = (seconds) => (utc ? uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC") : new Date(seconds * 1000));
