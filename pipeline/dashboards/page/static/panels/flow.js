// What comes in, and where it goes: bands as wide as their tokens, from above down; the parts are listed below.

import { dot, figured, make, svg } from "../dom.js";
import { figure } from "../format.js";

const BAR = 24;
const FALL = 46;
const GAP = 2;
const LETTER_PIXELS = 6.6;
const PLAIN = "#8b95a1";

export function drawFlow(body, panel, answer, view) {
  const links = answer.columns[0].map((from, row) => ({ from, into: answer.columns[1][row], tokens: answer.columns[2][row] }));
  const root = links[0].from, all = total(links, root);
  const width = body.clientWidth || 400;
  const colour = (name) => panel.colours[name] ?? PLAIN;
  const drawing = svg("svg", { class: "flow", role: "img", "aria-label": `${panel.title}: ${links.filter(({ into }) => !total(links, into)).map(({ into, tokens }) => `${into} ${figure(tokens / all, "share")}`).join(", ")}` });
  const unit = (width - GAP * links.length) / all;
  let row = [{ name: root, left: 0, tokens: all }], top = 0;
  bar(drawing, row[0], top, unit, colour(root), all);
  for (;;) {
    const next = [];
    let free = Math.min(...row.map(({ left }) => left));
    for (const from of row) {
      let begun = from.left;
      for (const { into, tokens } of links.filter((link) => link.from === from.name)) {
        const part = { name: into, left: Math.max(free, begun), tokens };
        drawing.append(band(begun, part.left, tokens * unit, top + BAR, colour(into)));
        begun += tokens * unit;
        free = part.left + tokens * unit + GAP;
        next.push(part);
      }
    }
    if (!next.length) break;
    top += BAR + FALL;
    for (const part of next) bar(drawing, part, top, unit, colour(part.name), all);
    row = next;
  }
  drawing.setAttribute("viewBox", `0 0 ${width} ${top + BAR}`);
  body.append(drawing, listed(links, root, all, colour, panel));
  // Letters keep their size, so another width is another drawing.
  const observer = new ResizeObserver(() => { if (body.clientWidth && body.clientWidth !== width) view.redraw(panel.id); });
  observer.observe(body);
  return () => observer.disconnect();
}

const total = (links, from) => links.reduce((sum, link) => sum + (link.from === from ? link.tokens : 0), 0);

function bar(drawing, { name, left, tokens }, top, unit, colour, all) {
  const wide = tokens * unit, said = `${name} ${figure(tokens / all, "share")}`;
  const box = svg("rect", { x: left, y: top, width: Math.max(wide, 1), height: BAR, rx: 2, fill: colour });
  box.append(svg("title", {}, `${said}, ${figure(tokens, "tokens")} tokens`));
  drawing.append(box);
  if (said.length * LETTER_PIXELS < wide) drawing.append(svg("text", { x: left + 6, y: top + BAR / 2 }, said));
}

function band(from, into, wide, top, colour) {
  const middle = top + FALL / 2, end = top + FALL;
  const path = `M${from},${top} C${from},${middle} ${into},${middle} ${into},${end} H${into + wide} C${into + wide},${middle} ${from + wide},${middle} ${from + wide},${top} Z`;
  return svg("path", { d: path, fill: colour, opacity: 0.35 });
}

// A line for each part, those of a part below it.
function listed(links, from, all, colour, panel, depth = 0) {
  return make("ul", { className: "parts" }, ...links.filter((link) => link.from === from).map(({ into, tokens }) => {
    const share = figured("b", into, tokens, { textContent: figure(tokens / all, "share") });
    const inner = depth < 3 && total(links, into) ? [listed(links, into, all, colour, panel, depth + 1)] : [];
    return make("li", {}, dot(colour(into)), `${into} `, share, ` ${figure(tokens, panel.unit)}`, ...inner);
  }));
}
