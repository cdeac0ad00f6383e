"use strict";
const read = (name) => JSON.parse(document.getElementById(name).textContent);
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
const figures = read("figures"), texts = read("texts"), path = read("segments");
const boxes = all("[data-figure]");
const dark = matchMedia("(prefers-color-scheme: dark)");
let printing = false;
const PAPER_PX = 660;
const config = {
  responsive: true, displaylogo: false, doubleClick: "reset",
  // Nothing leaves the page: no button that sends the chart to Plotly, and nowhere to send it.
  showSendToCloud: false, showEditInChartStudio: false, plotlyServerURL: "",
  modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
};

// The script that draws is large: it is unpacked when the headline has been painted.
let drawing = null;
async function unpack() {
  const packed = atob(document.getElementById("plotly").textContent);
  const bytes = Uint8Array.from(packed, (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  document.head.append(element("script", await new Response(stream).text()));
}
const ready = () => drawing ??= unpack();

function element(name, text, attributes = {}) {
  const made = document.createElement(name);
  made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

// Text and paper of figures follow the page; the colors of data are the same on light and dark.
// Always a copy: plotly writes the zoom into what it is given.
function layoutOf(name) {
  const layout = structuredClone(figures[name].layout);
  const style = getComputedStyle(document.body);
  const card = getComputedStyle(document.querySelector(".panel") || document.body);
  const axis = { gridcolor: "rgba(134, 148, 168, 0.25)", zeroline: false };
  return {
    ...layout, ...(printing ? { width: PAPER_PX } : {}), uirevision: "kept",
    font: { family: style.fontFamily, size: 12, color: style.color },
    hoverlabel: {
      ...layout.hoverlabel, bgcolor: card.backgroundColor, font: { color: style.color },
    },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#8694a8", activecolor: style.color },
    xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
  };
}

// What the reader zoomed to stays when a figure is drawn again.
function draw(box) {
  const name = box.dataset.figure;
  const plot = box.dataset.drawn ? Plotly.react : Plotly.newPlot;
  return plot(box, figures[name].data, layoutOf(name), config).then(() => {
    if (!printing) Plotly.Plots.resize(box);
    // The drawing is one image: its buttons are not part of it, so the box cannot be.
    all(".main-svg", box).forEach((layer, number) => {
      if (number) return layer.setAttribute("aria-hidden", "true");
      layer.setAttribute("role", "img");
      layer.setAttribute("aria-label", box.getAttribute("aria-label"));
    });
    box.removeAllListeners("plotly_click");
    box.on("plotly_click", ({ points: [bar] }) => openSegment(bar.data.meta?.[bar.pointNumber], null));
    box.dataset.drawn = "yes";
  });
}

// Figures are drawn when they come near: the page is there at once however many there are.
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    ready().then(() => draw(target)).catch(() => {
      target.replaceWith(element("p", "This browser cannot draw figures: see the table.", { class: "note" }));
    });
  }
}, { rootMargin: "600px" });
boxes.forEach((box) => near.observe(box));

// One in a folded section has no size: it is drawn when the section is opened.
const isShown = (box) => box.offsetParent !== null;
const redraw = () => boxes.filter((box) => box.dataset.drawn && isShown(box)).forEach(draw);
dark.addEventListener("change", () => redraw());
document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const isDark = root.style.colorScheme ? root.style.colorScheme === "dark" : dark.matches;
  root.style.colorScheme = isDark ? "light" : "dark";
  redraw();
});

// On paper open figures are light and as wide as the paper; afterwards all are as they were.
let scheme = "";
function onPaper(on) {
  if (on === printing) return;
  printing = on;
  const root = document.documentElement;
  if (on) scheme = root.style.colorScheme;
  root.style.colorScheme = on ? "light" : scheme;
  if (typeof Plotly === "undefined") return;
  boxes.filter(isShown).forEach((box) => { near.unobserve(box); draw(box); });
}
addEventListener("beforeprint", () => onPaper(true));
addEventListener("afterprint", () => onPaper(false));
(self.requestIdleCallback ?? setTimeout)(() => ready().catch(() => {}));

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

// Files next to the page have moved with it.
const folder = location.protocol === "file:" ? decodeURIComponent(location.pathname)
  .replace(/^\/(?=[A-Za-z]:)/, "").replace(/[^/]*$/, "") : "";
function beside(file, written) {
  if (!folder) return written;
  const whole = folder + file;
  return /^[\w@%+=:,./-]+$/.test(whole) ? whole : `'${whole.replaceAll("'", `'"'"'`)}'`;
}
for (const code of all("code[data-beside]")) {
  code.textContent = `htagraph view ${beside(code.dataset.beside, path.file)}`;
}

// Browsers keep the clipboard from some pages: there, selected text is copied.
async function copy(button) {
  const code = button.parentNode.querySelector("code"), selection = getSelection();
  let isCopied = true;
  try {
    await navigator.clipboard.writeText(code.textContent);
  } catch {
    selection.selectAllChildren(code);
    isCopied = document.execCommand("copy");
    if (isCopied) selection.removeAllRanges();
  }
  button.textContent = isCopied ? "copied" : "selected: press Ctrl+C";
}
document.addEventListener("click", ({ target }) => {
  const button = target.closest("button.copy");
  if (button) copy(button);
});

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
    table.closest(".panel").hidden = !shown;
  }
  for (const fold of folds) {
    const has = all("tbody tr", fold).some((row) => !row.hidden);
    fold.hidden = !has;
    fold.open = words.length ? has : opened.includes(fold);
  }
  if (!words.length) opened = null;
  document.getElementById("found").textContent = words.length ? `${n} row${n === 1 ? "" : "s"}` : "";
}
document.getElementById("find").addEventListener("input", ({ target }) => {
  find(target.value.toLowerCase().split(/\s+/).filter(Boolean));
});
