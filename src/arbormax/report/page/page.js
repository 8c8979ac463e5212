// The controls of the page: theme, run, tree browser, confusion matrix and threshold.

const states = data.runs.map(({ answers }) => ({
  level: 0, colour: "accuracy", size: "support", fork: 0, tau: answers ? Math.min(50, answers.thresholds.length - 1) : 0,
}));
const drawn = new Map(); // element → kind of figure
const CONFIG = { displayModeBar: false, responsive: true, displaylogo: false, showTips: false, doubleClick: false };
const part = (name, run) => document.querySelector(`[data-${name}="${run}"]`);
const plot = (kind, run) => document.querySelector(`[data-plot="${kind}"][data-run="${run}"]`);
const create = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

function draw(element) {
  const { plot: kind, run } = element.dataset;
  const own = data.runs[run] || null;
  if (kind === "differences" && !narrow()) element.style.height = `${Math.max(10, 4 + 2 * data.differences.length)}rem`;
  if (kind === "matrix") element.style.height = `${Math.max(17, 9 + 1.9 * fitMatrix(own.matrices[states[run].fork]).names.length)}rem`;
  if (kind === "levels") element.style.height = `${Math.min(34, Math.max(17, 4 + 3 * own.levels.length))}rem`;
  const { data: traces, layout: frame } = figures[kind](own, states[run]);
  drawn.set(element, kind);
  if (kind === "icicle") element.onclick = (event) => openBox(run, boxAt(event, element, traces[0], frame)); // also a tap
  return Plotly.react(element, traces, frame, CONFIG).then(() => {
    element.dataset.drawn = "yes";
  });
}

function redraw(kind, run) {
  const element = plot(kind, run);
  if (element && drawn.has(element)) draw(element);
}

// ------------------------------------------------------------ the tree

function boxAt({ clientX, clientY }, element, { x, width, base, y, ids }, { xaxis, yaxis, margin }) {
  const area = element.getBoundingClientRect();
  const across = ((clientX - area.left) / area.width) * xaxis.range[1];
  const down = ((clientY - area.top - margin.t) / (area.height - margin.t)) * yaxis.range[0];
  const at = ids.findIndex((_, i) => Math.abs(across - x[i]) < width[i] / 2 && down >= base[i] && down < base[i] + y[i]);
  return at < 0 ? null : Number(ids[at]);
}

// a box opens, and the strip at the left, which is the open node, goes back to its parent
function openBox(run, at) {
  const next = at === states[run].level ? data.runs[run].tree.parent[at] : at;
  if (next === null || next < 0 || !childrenOf(data.runs[run], next).length) return;
  states[run].level = next;
  browse(run);
  redraw("icicle", run);
}

function open(run, place) {
  states[run].level = place;
  browse(run);
  redraw("icicle", run);
  const first = part("browser", run).querySelector("strong");
  if (first) first.focus();
}

function meter(share) {
  const fill = create("i");
  fill.style.width = Number.isFinite(share) ? `${100 * share}%` : "0";
  return create("span", { className: "meter", ariaHidden: "true" }, fill);
}

function browse(run) {
  const t = data.runs[run].tree, here = states[run].level;
  const path = [];
  for (let at = here; at >= 0; at = t.parent[at]) path.unshift(at);
  const crumbs = create("ol", { className: "crumbs" }, ...path.map((at) =>
    create("li", {}, at === here ? create("strong", { textContent: t.name[at], tabIndex: -1 }) : create("button", { type: "button", textContent: t.name[at], onclick: () => open(run, at) }))));
  const summary = (at) => !at ? `${plural(t.support[0], "test text")}, ${percent(accuracyOf(data.runs[run]))} with the right class` : `${plural(t.support[at], "test text")}, accuracy ${percent(measures.accuracy.of(t, at))}, F1 ${percent(measures.f1.of(t, at))}`;
  const below = [...childrenOf(data.runs[run], here)].sort((a, b) => t.support[b] - t.support[a] || t.predicted[b] - t.predicted[a]);
  const rows = below.slice(0, 200).map((at) => {
    const isInner = childrenOf(data.runs[run], at).length > 0;
    const name = isInner ? create("button", { type: "button", textContent: t.name[at], onclick: () => open(run, at) }) : create("span", { textContent: t.name[at] });
    const folded = t.hidden[at] ? ` (${plural(t.hidden[at], "class", "classes")} folded)` : "";
    const cells = [whole(t.support[at]), null, percent(t.predicted[at] ? t.correct[at] / t.predicted[at] : NaN), percent(measures.f1.of(t, at))];
    const accuracy = measures.accuracy.of(t, at);
    return create("tr", {}, create("th", { scope: "row" }, name, folded), ...cells.map((cell) =>
      create("td", {}, ...(cell === null ? [meter(accuracy), percent(accuracy)] : [cell]))));
  });
  const head = create("tr", {}, ...["Child", "Test texts", "Accuracy", "Precision", "F1"].map((name) => create("th", { scope: "col", textContent: name })));
  const table = create("table", { className: "numbers" }, create("thead", {}, head), create("tbody", {}, ...rows));
  const scroll = create("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `Children of ${t.name[here]}` }, table);
  const more = below.length > 200 ? [create("p", { className: "note", textContent: `… and ${whole(below.length - 200)} more with fewer texts` })] : [];
  part("browser", run).replaceChildren(crumbs, create("p", { className: "note", textContent: summary(here) }), ...(rows.length ? [scroll] : []), ...more);
}

function drawKey(run) {
  const by = states[run].colour, top = data.runs[run].tree.support[0];
  const bar = create("i");
  bar.style.background = `linear-gradient(90deg, ${SCALE.map((_, at) => colourAt(at / (SCALE.length - 1))).join(",")})`;
  const [low, high] = by === "support" ? ["1", whole(top)] : ["0\u202f%", "100\u202f%"];
  part("key", run).replaceChildren(create("span", { textContent: measures[by].name }), create("span", { textContent: low }), bar, create("span", { textContent: high }), create("b"), create("span", { textContent: "no test texts" }));
}

// --------------------------------- confusion matrix and threshold

function showAnswers(run) {
  const a = data.runs[run].answers, at = states[run].tau;
  if (!a) return;
  const answered = a.answered[at], right = a.right[at], sum = answered.reduce((x, y) => x + y, 0);
  const given = sum - answered[0], good = right.slice(1).reduce((x, y) => x + y, 0);
  part("out", run).textContent = percent(a.thresholds[at], 0);
  part("live", run).textContent = `At a required probability of more than ${percent(a.thresholds[at], 0)}, the model answers ${percent(given / sum)} of the texts, and ` +
    `${percent(given ? good / given : NaN)} of these answers are correct. ${percent(a.classes[at] / sum)} of the texts get a class, the others an inner node or no answer.`;
  const rows = answered.map((n, level) => {
    const name = level ? `level ${level}` : "no answer";
    const fill = create("span", { className: "bar", ariaHidden: "true" });
    const parts = level ? [["i", right[level]], ["u", n - right[level]]] : [["s", n]];
    for (const [tag, size] of parts) { const piece = create(tag); piece.style.width = `${(100 * size) / sum}%`; fill.append(piece); }
    const label = `${percent(n / sum)} of texts${level && n ? `, ${percent(right[level] / n)} correct` : ""}`;
    return create("li", {}, create("span", { textContent: name }), fill, create("span", { textContent: label }));
  });
  const legend = create("li", { className: "legend" }, create("span", {}, create("i"), " correct"), create("span", {}, create("u"), " wrong"));
  part("answers", run).replaceChildren(...rows.reverse(), legend);
}

function describeMatrix(run) {
  const element = plot("matrix", run);
  if (!element) return;
  const m = fitMatrix(data.runs[run].matrices[states[run].fork]), note = element.parentElement.querySelector('[data-note="matrix"]');
  const outside = m.outside ? ` ${plural(m.outside, "mistake")} with other children not shown.` : "";
  note.textContent = `${m.label}: n = ${plural(m.texts, "test text")}, ${plural(m.mistakes, "mistake")}, cost ${whole(m.cost)}. Rows are true, columns are predicted; the diagonal is correct.${outside}`;
}

function listen(id, action) {
  const element = document.getElementById(id);
  if (element) element.addEventListener("input", () => action(element.value));
}

data.runs.forEach((run, place) => {
  listen(`colour-${place}`, (value) => { states[place].colour = value; drawKey(place); redraw("icicle", place); });
  listen(`size-${place}`, (value) => { states[place].size = value; redraw("icicle", place); });
  listen(`fork-${place}`, (value) => { states[place].fork = Number(value); describeMatrix(place); redraw("matrix", place); });
  listen(`tau-${place}`, (value) => { states[place].tau = Number(value); showAnswers(place); redraw("risk", place); });
  browse(place);
  drawKey(place);
  showAnswers(place);
  if (run.matrices.length) describeMatrix(place);
});

// ------------------------------------------------------- the whole page

const visible = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) { visible.unobserve(target); draw(target); }
  }
}, { rootMargin: "600px" });
document.querySelectorAll("[data-plot]").forEach((element) => visible.observe(element));

const redrawAll = () => drawn.forEach((_, element) => element.offsetParent && draw(element));
document.querySelectorAll('[name="theme"]').forEach((choice) => choice.addEventListener("change", () => {
  if (choice.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice.value;
  redrawAll();
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
matchMedia("(max-width: 40rem)").addEventListener("change", redrawAll);

listen("run", (value) => {
  document.querySelectorAll(".run").forEach((block) => { block.hidden = block.dataset.run !== value; });
  document.querySelectorAll("nav [data-part]").forEach((link) => { link.href = `#${link.dataset.part}-${value}`; });
  redrawAll();
});

const current = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    const link = document.querySelector(`nav a[href="#${target.id}"]`);
    if (!link) continue;
    if (isIntersecting) {
      document.querySelectorAll("nav [aria-current]").forEach((other) => other.removeAttribute("aria-current"));
      link.setAttribute("aria-current", "true");
    }
  }
}, { rootMargin: "-30% 0px -65% 0px" });
document.querySelectorAll("section").forEach((section) => current.observe(section));
