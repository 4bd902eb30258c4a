// Elements in one line.

export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

export const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name);

export function note(text, problem) {
  return make("p", { className: problem ? "note problem" : "note", textContent: text });
}
