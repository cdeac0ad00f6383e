// The path as a flame graph: a box is as wide as its time, and below the box that called it.
const flames = read("flames"), BAR_PX = 20, LEAST_WIDTH = 0.001, LEAST_TEXT_PX = 28;
// The function of a frame first, as its folder may be long.
const called = (name) => name.replace(/^(?:.*[/\\])?([^/\\]*\(\d+\)): (.*)$/s, "$2 $1");

function flame(box) {
  const nodes = flames[box.dataset.flame], note = box.previousElementSibling;
  const left = [], depth = [], filled = { "-1": 0 };
  nodes.forEach(([parent, , ns], at) => {
    depth[at] = parent < 0 ? 0 : depth[parent] + 1;
    filled[at] = left[at] = filled[parent];
    filled[parent] += ns;
  });
  const whole = filled[-1], share = (ns) => `${(100 * ns / whole).toFixed(1)}%`;
  let top = -1, words = [];

  const matches = ([, name]) => words.every((word) => name.toLowerCase().includes(word));
  // Of nested boxes that match, the outer one has the time of all.
  function found() {
    const inside = [];
    return nodes.reduce((sum, node, at) => {
      const isIn = inside[node[0]];
      inside[at] = isIn || matches(node);
      return sum + (!isIn && inside[at] ? node[2] : 0);
    }, 0);
  }

  function show() {
    const start = top < 0 ? 0 : left[top], span = top < 0 ? whole : nodes[top][2];
    const bars = nodes.flatMap((node, at) => {
      const [, name, ns, bound, hidden] = node;
      const from = Math.max(left[at] - start, 0), to = Math.min(left[at] + ns - start, span);
      if (to - from < LEAST_WIDTH * span) return [];
      const isAbove = top >= 0 && depth[at] < depth[top];
      const told = hidden > 0.01 ? `, ${share(ns * hidden)} of it hidden` : "";
      const text = (to - from) * box.clientWidth < LEAST_TEXT_PX * span ? "" : called(name);
      const bar = element("button", text, {
        type: "button", "data-key": bound, "data-node": at, title: `${name}: ${share(ns)}${told}`,
        class: `bar${isAbove ? " above" : words.length && !matches(node) ? " other" : ""}`,
        style: `left:${100 * from / span}%;width:${100 * (to - from) / span}%;top:${BAR_PX * depth[at]}px`,
      });
      if (hidden > 0.01) bar.append(element("i", "", { style: `width:${100 * hidden}%` }));
      return [bar];
    });
    const deepest = Math.max(...bars.map((bar) => parseFloat(bar.style.top)), 0);
    box.style.height = `${deepest + BAR_PX + 2}px`;
    box.replaceChildren(...bars);
    const zoomed = top < 0 ? "Click a box to zoom in" : `${called(nodes[top][1])}: ${share(span)} of the path; click above it to zoom out`;
    note.textContent = words.length ? `${share(found())} of the path has ${words.join(" ")}. ${zoomed}.` : `${zoomed}.`;
  }
  box.addEventListener("click", ({ target }) => {
    const at = Number(target.closest(".bar")?.dataset.node ?? -1);
    top = at === top ? -1 : at;
    show();
  });
  document.getElementById("find").addEventListener("input", ({ target }) => {
    words = target.value.toLowerCase().split(/\s+/).filter(Boolean);
    show();
  });
  show();
}
all("[data-flame]").forEach(flame);
