// What happened at points of time, such as restarts, marked on charts: each by name, or many together by number.

const MOST = 10;
const ROOM_PIXELS = 34;
const NEAR_PIXELS = 8;

// Above MOST marks, those of a MOST-th of the range are one: {from, to, texts}.
export function bundled(marks, from, to) {
  const inside = marks.filter(({ time }) => time >= from && time <= to).sort((one, other) => one.time - other.time);
  const points = new Set(inside.map(({ time }) => time)).size;
  const place = points > MOST ? (time) => Math.floor(((time - from) / (to - from + 1)) * MOST) : (time) => time;
  const bundles = new Map();
  for (const { time, text } of inside) {
    const bundle = bundles.get(place(time)) ?? { from: time, to: time, texts: [] };
    bundle.to = time;
    bundle.texts.push(text);
    bundles.set(place(time), bundle);
  }
  return [...bundles.values()];
}

export const labelOf = ({ from, to, texts }) => (to > from ? `${texts.length} events` : texts.join("; "));
const shortOf = ({ from, to, texts }) => (to > from ? String(texts.length) : texts.join("; "));

// A dashed line where it begins, a bar above the chart as long as it lasts, and as much of its label as fits there.
export function drawMarks(self, bundles, colour) {
  const { ctx, bbox } = self;
  const pixels = devicePixelRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = colour;
  ctx.font = `${11 * pixels}px system-ui, sans-serif`;
  ctx.textBaseline = "bottom";
  ctx.textAlign = "left";
  ctx.setLineDash([4 * pixels, 4 * pixels]);
  const edges = bundles.map(({ from, to }) => [self.valToPos(from, "x", true), self.valToPos(to, "x", true)]);
  edges.forEach(([left, right], index) => {
    ctx.beginPath();
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
    ctx.stroke();
    ctx.fillRect(left, bbox.top - 2 * pixels, right - left, 2 * pixels);
    const room = (index + 1 < edges.length ? edges[index + 1][0] : bbox.left + bbox.width) - left - 6 * pixels;
    if (room > ROOM_PIXELS * pixels) ctx.fillText(fitted(ctx, [labelOf, shortOf].map((each) => each(bundles[index])), room), left, bbox.top - 3 * pixels);
  });
  ctx.restore();
}

// The first of the texts that fits, or what fits of the last.
function fitted(ctx, texts, room) {
  const whole = texts.find((each) => ctx.measureText(each).width <= room);
  if (whole !== undefined) return whole;
  const text = texts.at(-1);
  let length = text.length - 1;
  while (length > 1 && ctx.measureText(text.slice(0, length) + "…").width > room) length -= 1;
  return text.slice(0, length) + "…";
}

// The texts at so many pixels from the left.
export function near(self, bundles, left) {
  const close = ({ from, to }) => self.valToPos(from, "x") - NEAR_PIXELS <= left && left <= self.valToPos(to, "x") + NEAR_PIXELS;
  return bundles.filter(close).flatMap(({ texts }) => texts);
}
