// Light or dark before anything is drawn: what the reader chose here, else what the system says.
"use strict";
(() => {
  const stored = (() => {
    try { return localStorage.getItem("theme"); } catch { return null; }
  })();
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = stored || (dark ? "dark" : "light");
})();
