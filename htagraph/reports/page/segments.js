
// A segment of the path: what is known of it, and where to see it in the trace.
const dialog = document.getElementById("segment");
const shown = Object.keys(path.rows).map(Number).sort((a, b) => a - b);
let current = -1, opener = null;

// The server of `htagraph view` has the trace beside the page, a file has not.
const isServed = location.protocol === "http:" && /^\/[\w-]{43}\/report\.html$/.test(location.pathname) &&
  ["127.0.0.1", "localhost"].includes(location.hostname);

function described(field, text, row) {
  const about = element("dd", field === "waited for" ? "" : text);
  if (field === "bound") about.dataset.key = text.replaceAll(" ", "_");
  if (field !== "waited for") return about;
  if (!(row - 1 in path.rows)) { about.textContent = text; return about; }
  const button = element("button", text, { type: "button", class: "opens" });
  button.addEventListener("click", () => openSegment(row - 1, opener));
  about.append(button);
  return about;
}

function command(label, text) {
  const line = element("span", label, { class: "command" });
  line.append(element("code", text), " ", element("button", "copy", { type: "button", class: "copy" }));
  return line;
}

function place(start, dur, event) {
  const from = start + path.offset, lines = [];
  if (event) lines.push(command("All it waited for: ", `${path.why} ${event}`));
  if (isServed) {
    const link = `./?ts=${from}&dur=${dur}`;
    lines.push(element("a", "Open in Perfetto at this time", { href: link, target: "_blank" }));
  } else if (path.file) {
    lines.push(command("In Perfetto: ",
      `htagraph view ${beside(path.beside, path.file)} --at ${from}:${from + dur}`));
  }
  return lines.flatMap((line, at) => at ? [element("br"), line] : [line]);
}

function openSegment(row, from) {
  if (!(row in path.rows)) return;
  const [start, dur, name, whole, event, ...told] = path.rows[row];
  current = Number(row);
  opener = from;
  const heading = document.getElementById("segment-name");
  heading.textContent = texts[name];
  heading.title = texts[whole];
  dialog.querySelector("dl").replaceChildren(...path.fields.flatMap((field, at) => told[at] < 0
    ? [] : [element("dt", field), described(field, texts[told[at]], current)]));
  dialog.querySelector(".where").replaceChildren(...place(start, dur, event));
  const at = shown.indexOf(current);
  dialog.querySelector("[data-go='-1']").disabled = at === 0;
  dialog.querySelector("[data-go='1']").disabled = at === shown.length - 1;
  if (!dialog.open) dialog.show();
}

function closeSegment() {
  dialog.close();
  opener?.focus();
}

for (const button of all("[data-go]", dialog)) {
  const by = Number(button.dataset.go);
  button.addEventListener("click", () => by === 0
    ? closeSegment() : openSegment(shown[shown.indexOf(current) + by], opener));
}
addEventListener("keydown", ({ key }) => { if (key === "Escape" && dialog.open) closeSegment(); });
document.addEventListener("click", ({ target }) => {
  const button = target.closest(".opens[data-segment]");
  if (button) openSegment(button.dataset.segment, button);
});
