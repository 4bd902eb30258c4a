// Elements in one line.

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

// A dot of a colour, as beside a name in a legend.
export function dot(colour) {
  const element = make("i");
  element.style.background = colour;
  return element;
}

// A figure as text, with what it is of and its exact value: programs that read the page find it by these.
export function figured(tag, name, value, properties) {
  const element = make(tag, properties);
  element.dataset.figure = name;
  if (value !== null) element.dataset.value = value;
  return element;
}

export function svg(tag, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

export const byId = (id) => document.getElementById(id);

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

// What stands between backticks is code, as in Grafana's descriptions.
export const worded = (text) => text.split("`").map((part, index) => (index % 2 ? make("code", { textContent: part }) : part));

export function note(text, problem) {
  return make("p", { className: problem ? "note problem" : "note" }, ...worded(text));
}
