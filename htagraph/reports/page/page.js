const figures = read("figures"), path = read("segments");
const boxes = all("[data-figure]");
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
const isShown = (box) => box.checkVisibility();
const redraw = () => boxes.filter((box) => box.dataset.drawn && isShown(box)).forEach(draw);
dark.addEventListener("change", redraw);
document.getElementById("theme").addEventListener("click", redraw);

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
