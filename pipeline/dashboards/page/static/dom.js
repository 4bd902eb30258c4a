// Elements in one line.

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

// What stands between backticks is code, as in Grafana's descriptions.
export const worded = (text) => text.split("`").map((part, index) => (index % 2 ? make("code", { textContent: part }) : part));

export function note(text, problem) {
  return make("p", { className: problem ? "note problem" : "note" }, ...worded(text));
}
