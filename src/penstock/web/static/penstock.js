// Keys, copying, confirming, light and dark: what every page has. Pages work without it, but for these.
"use strict";

const theme = localStorage.getItem("penstock-theme");
if (theme) document.documentElement.dataset.theme = theme;

// On a phone the navigation scrolls: bring the current page into view.
document.querySelector(".top nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" });

document.addEventListener("click", (event) => {
  const element = event.target.closest("button");
  if (element === null) return;
  if (element.dataset.copy !== undefined && navigator.clipboard) {
    navigator.clipboard.writeText(element.dataset.copy).then(() => { element.textContent = "Copied"; });
  } else if (element.dataset.themeSwitch !== undefined) {
    const dark = document.documentElement.dataset.theme
      ? document.documentElement.dataset.theme === "dark"
      : matchMedia("(prefers-color-scheme: dark)").matches;
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem("penstock-theme", document.documentElement.dataset.theme);
    document.dispatchEvent(new Event("penstock-theme"));
  } else if (element.dataset.confirm !== undefined && !confirm(element.dataset.confirm)) {
    event.preventDefault();
  }
});

function rows() {
  return [...document.querySelectorAll("tr[data-row]")];
}

function choose(step) {
  const all = rows();
  if (all.length === 0) return;
  const now = all.findIndex((row) => row.classList.contains("chosen"));
  const next = Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + step));
  all.forEach((row, index) => row.classList.toggle("chosen", index === next));
  all[next].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog[open]");
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    const filter = document.querySelector("[data-filter]");
    if (filter) filter.focus();
    else location.href = document.body.dataset.root + "/jobs";
    event.preventDefault();
  } else if (event.key === "j") choose(1);
  else if (event.key === "k") choose(-1);
  else if (event.key === "Enter") (document.querySelector("tr.chosen a.open") ?? document.querySelector("tr.chosen a"))?.click();
  else if (event.key === "?") document.getElementById("keys")?.showModal();
  else if (/^[0-9]$/.test(event.key)) document.querySelectorAll(".top nav a")[(Number(event.key) + 9) % 10]?.click();
});
