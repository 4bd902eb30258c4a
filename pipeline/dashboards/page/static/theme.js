// Light or dark, before anything is painted: as the viewer chose, or else as the system has it.

window.kvlensTheme = (() => {
  const KEY = "kvlens-theme";
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let chosen = "";
  try { chosen = localStorage.getItem(KEY) ?? ""; } catch { /* a browser that keeps nothing */ }
  const apply = () => {
    document.documentElement.dataset.theme = chosen || (dark.matches ? "dark" : "light");
    dispatchEvent(new CustomEvent("theme"));
  };
  dark.addEventListener("change", apply);
  apply();
  return {
    get chosen() { return chosen; },
    choose(theme) {
      chosen = theme;
      try { localStorage.setItem(KEY, theme); } catch { /* it holds until the page is left */ }
      apply();
    },
  };
})();
