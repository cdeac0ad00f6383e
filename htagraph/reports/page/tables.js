"use strict";
const read = (name) => JSON.parse(document.getElementById(name)?.textContent ?? "[]");
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const texts = read("texts"), dark = matchMedia("(prefers-color-scheme: dark)");

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.style.colorScheme ? root.style.colorScheme === "dark" : dark.matches;
  root.style.colorScheme = isDark ? "light" : "dark";
});

// Exact values and whole names, where something is hovered over.
document.addEventListener("mouseover", ({ target }) => {
  const cell = target.closest("td[data-value], td[data-whole]");
  if (!cell) return;
  const whole = () => cell.dataset.whole.split(" ").map((number) => texts[number]).join(" → ");
  cell.title ||= cell.dataset.value ?? whole();
});

for (const button of all("button.all")) {
  button.addEventListener("click", () => {
    const table = button.parentNode.previousElementSibling.firstElementChild;
    button.setAttribute("aria-expanded", !table.classList.toggle("short"));
    [button.textContent, button.dataset.other] =
      [button.dataset.other ?? "Show fewer", button.textContent];
  });
}

for (const head of all(".data th")) {
  head.tabIndex = 0;
  head.setAttribute("aria-sort", "none");
  head.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    head.click();
  });
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], at = head.cellIndex;
    const descends = head.getAttribute("aria-sort") !== "descending";
    head.parentNode.querySelectorAll("th").forEach((other) => other.setAttribute("aria-sort", "none"));
    head.setAttribute("aria-sort", descends ? "descending" : "ascending");
    const key = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const isNumber = head.classList.contains("n");
    const compare = (a, b) => isNumber ? key(a) - key(b) : key(a).localeCompare(key(b));
    const rows = [...body.rows].sort((a, b) => (descends ? -1 : 1) * compare(a, b));
    body.append(...rows);
  });
}

// A link to a folded section opens it.
for (const link of all("a[href^='#']")) {
  link.addEventListener("click", () => {
    const part = document.getElementById(link.hash.slice(1));
    if (part?.tagName === "DETAILS") part.open = true;
  });
}

// Search: rows without the words are hidden, and so are tables and sections without rows.
const wholeText = (row) => [row.textContent, ...all("[data-whole]", row)
  .flatMap((cell) => cell.dataset.whole.split(" ").map((number) => texts[number]))].join(" ").toLowerCase();
const folds = all("main details");
let opened = null;
function find(words) {
  opened ??= folds.filter((fold) => fold.open);
  let n = 0;
  for (const table of all("table.data")) {
    const rows = [...table.tBodies[0].rows];
    rows.forEach((row) => { row.hidden = !words.every((word) => wholeText(row).includes(word)); });
    const shown = rows.filter((row) => !row.hidden).length;
    n += shown;
    table.classList.toggle("found", words.length > 0);
    const panel = table.closest(".panel");
    panel.hidden = !shown && !panel.querySelector("[data-flame]");
  }
  for (const fold of folds) {
    const has = all("tbody tr", fold).some((row) => !row.hidden);
    fold.hidden = words.length > 0 && !has;
    fold.open = words.length ? has : opened.includes(fold);
  }
  if (!words.length) opened = null;
  document.getElementById("found").textContent = words.length ? `${n} row${n === 1 ? "" : "s"}` : "";
}
document.getElementById("find").addEventListener("input", ({ target }) => {
  find(target.value.toLowerCase().split(/\s+/).filter(Boolean));
});
