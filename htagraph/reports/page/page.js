"use strict";
const figures = JSON.parse(document.getElementById("figures").textContent);
const config = {
  responsive: true, displaylogo: false, doubleClick: "reset",
  // Nothing leaves the page: no button that sends the chart to Plotly, and nowhere to send it.
  showSendToCloud: false, showEditInChartStudio: false, plotlyServerURL: "",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};

// Text and paper of figures follow the page; the colors of data are the same on light and dark.
function themed(layout) {
  const style = getComputedStyle(document.body);
  const card = getComputedStyle(document.querySelector(".panel") || document.body);
  const axis = { gridcolor: "rgba(134, 148, 168, 0.25)", zeroline: false };
  return {
    ...layout,
    font: { family: style.fontFamily, size: 12, color: style.color },
    hoverlabel: {
      ...layout.hoverlabel, bgcolor: card.backgroundColor, font: { color: style.color },
    },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#8694a8", activecolor: style.color },
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  };
}

function draw(box) {
  const figure = figures[box.dataset.figure];
  const done = Plotly.react(box, figure.data, themed(figure.layout), config);
  done.then(() => { box.dataset.drawn = "yes"; });
}

// Figures are drawn when they come near: the page is there at once however many there are.
const boxes = [...document.querySelectorAll("[data-figure]")];
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
  }
}, { rootMargin: "600px" });
boxes.forEach((box) => near.observe(box));
addEventListener("beforeprint", () => boxes.filter((box) => !box.dataset.drawn).forEach(draw));

const redraw = () => boxes.filter((box) => box.dataset.drawn).forEach(draw);
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", redraw);
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.style.colorScheme ? root.style.colorScheme === "dark" : dark.matches;
  root.style.colorScheme = isDark ? "light" : "dark";
  redraw();
});

for (const cell of document.querySelectorAll("td[data-value]")) cell.title = cell.dataset.value;

for (const head of document.querySelectorAll(".data th")) {
  head.addEventListener("click", () => {
    const body = head.closest("table").tBodies[0], at = head.cellIndex;
    const descends = head.getAttribute("aria-sort") !== "descending";
    head.parentNode.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", descends ? "descending" : "ascending");
    const key = (row) => row.cells[at].dataset.value ?? row.cells[at].textContent;
    const isNumber = head.classList.contains("n");
    const compare = (a, b) => isNumber ? key(a) - key(b) : key(a).localeCompare(key(b));
    const rows = [...body.rows].sort((a, b) => (descends ? -1 : 1) * compare(a, b));
    body.append(...rows);
  });
}

for (const button of document.querySelectorAll(".copy")) {
  button.addEventListener("click", () => {
    const done = navigator.clipboard.writeText(button.dataset.text);
    done.then(() => { button.textContent = "copied"; });
  });
}

const inside = [...document.querySelectorAll("nav a[href^='#']")];
const links = new Map(inside.map((link) => [link.hash.slice(1), link]));
const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    links.forEach((link) => link.classList.remove("here"));
    links.get(target.id)?.classList.add("here");
  }
}, { rootMargin: "-10% 0px -80% 0px" });
document.querySelectorAll("header, section").forEach((section) => seen.observe(section));
