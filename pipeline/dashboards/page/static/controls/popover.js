// Something that opens below a button and closes by itself.

const GAP = 4;

// Makes `content`, which stands beside `button`, open and close with it; returns what closes it.
export function popover(button, content, opening = () => {}) {
  content.popover = "auto";
  button.popoverTargetElement = content;
  content.addEventListener("beforetoggle", (event) => { if (event.newState === "open") opening(); });
  content.addEventListener("toggle", (event) => { if (event.newState === "open") place(button, content); });
  return () => content.hidePopover();
}

// Below its button, inside the window.
export function place(button, content) {
  const at = button.getBoundingClientRect();
  const below = at.bottom + GAP, left = Math.min(at.left, innerWidth - content.offsetWidth - GAP);
  content.style.left = `${Math.max(GAP, left)}px`;
  content.style.top = `${Math.max(GAP, Math.min(below, innerHeight - content.offsetHeight - GAP))}px`;
}
