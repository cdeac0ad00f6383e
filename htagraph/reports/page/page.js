"use strict";
const read = (name) => JSON.parse(document.getElementById(name).textContent);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const figures = read("figures"), texts = read("texts");
let printing = false;
const PAPER_PX = 660;
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
  const layout = themed(figure.layout);
  if (printing) layout.width = PAPER_PX;
  const done = Plotly.react(box, figure.data, layout, config);
  done.then(() => {
    if (!box.dataset.drawn) {
      box.on("plotly_click", ({ points: [bar] }) => openSegment(bar.data.meta?.[bar.pointNumber], null));
    }
    box.dataset.drawn = "yes";
  });
}

// Figures are drawn when they come near: the page is there at once however many there are.
const boxes = [...document.querySelectorAll("[data-figure]")];
const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    if (entry.isIntersecting) { near.unobserve(entry.target); draw(entry.target); }
  }
}, { rootMargin: "600px" });
boxes.forEach((box) => near.observe(box));
const redraw = () => boxes.filter((box) => box.dataset.drawn).forEach(draw);
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", redraw);
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.style.colorScheme ? root.style.colorScheme === "dark" : dark.matches;
  root.style.colorScheme = isDark ? "light" : "dark";
  redraw();
});

// On paper everything is open, light, and as wide as the paper; afterwards as it was.
let shut = [], scheme = "";
function onPaper(on) {
  if (on === printing) return;
  printing = on;
  const root = document.documentElement;
  if (on) {
    shut = all("details:not([open])");
    scheme = root.style.colorScheme;
    boxes.forEach((box) => near.unobserve(box));
  }
  shut.forEach((details) => { details.open = on; });
  root.style.colorScheme = on ? "light" : scheme;
  boxes.forEach(draw);
}
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));

// Exact values and whole names, where something is hovered over.
document.addEventListener("mouseover", ({ target }) => {
  const cell = target.closest("td[data-value], td[data-whole]");
  if (!cell) return;
  const whole = () => cell.dataset.whole.split(" ").map((number) => texts[number]).join(" → ");
  cell.title ||= cell.dataset.value ?? whole();
});

for (const button of all("button.all")) {
  button.addEventListener("click", () => {
    const box = button.parentNode.previousElementSibling;
    const isWhole = box.classList.toggle("whole");
    box.firstElementChild.classList.toggle("short", !isWhole);
    button.setAttribute("aria-expanded", isWhole);
    [button.textContent, button.dataset.other] =
      [button.dataset.other ?? "Show fewer rows", button.textContent];
  });
}

for (const head of all(".data th")) {
  head.tabIndex = 0;
  head.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    head.click();
  });
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

function copies(button) {
  button.addEventListener("click", () => {
    const done = navigator.clipboard.writeText(button.dataset.text);
    done.then(() => { button.textContent = "copied"; });
  });
}
all(".copy").forEach(copies);

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
