// What can be pressed and moved: colours, runs, the walk through the tree, forks, and the threshold.

const states = data.runs.map(({ answers }) => ({
  level: 0, colour: "accuracy", size: "support", fork: 0, tau: answers ? Math.min(50, answers.thresholds.length - 1) : 0,
}));
const drawn = new Map(); // element → what was drawn there
const CONFIG = { displayModeBar: false, responsive: true, displaylogo: false, showTips: false, doubleClick: false };
const part = (name, run) => document.querySelector(`[data-${name}="${run}"]`);
const plot = (kind, run) => document.querySelector(`[data-plot="${kind}"][data-run="${run}"]`);
const made = (tag, properties = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
};

function draw(element) {
  const { plot: kind, run } = element.dataset;
  const own = data.runs[run] || null;
  if (kind === "differences" && !narrow()) element.style.height = `${Math.max(10, 4 + 2 * data.differences.length)}rem`;
  if (kind === "matrix") element.style.height = `${Math.max(17, 9 + 1.9 * fitting(own.matrices[states[run].fork]).names.length)}rem`;
  if (kind === "levels") element.style.height = `${Math.min(34, Math.max(17, 4 + 3 * own.levels.length))}rem`;
  const { data: traces, layout: frame } = drawings[kind](own, states[run]);
  const first = !drawn.has(element);
  drawn.set(element, kind);
  return Plotly.react(element, traces, frame, CONFIG).then(() => {
    if (first && kind === "icicle") element.on("plotly_icicleclick", (event) => clicked(run, event));
    element.dataset.drawn = "yes";
  });
}

function redraw(kind, run) {
  const element = plot(kind, run);
  if (element && drawn.has(element)) draw(element);
}

// ------------------------------------------------------------- the tree

function clicked(run, event) {
  const next = event.nextLevel === "" || event.nextLevel === undefined ? 0 : Number(event.nextLevel);
  const point = event.points && event.points[0];
  const leaf = point && !childrenOf(run, Number(point.id)).length && Number(point.id) === next;
  if (!leaf && Number.isInteger(next)) {
    states[run].level = next;
    browse(run);
    redraw("icicle", run);
  }
  return false; // drawn anew, so that list and boxes always agree
}

function childrenOf(run, place) {
  const t = data.runs[run].tree;
  if (!t.below) {
    t.below = t.name.map(() => []);
    t.parent.forEach((parent, child) => parent >= 0 && t.below[parent].push(child));
  }
  return t.below[place];
}

function open(run, place) {
  states[run].level = place;
  browse(run);
  redraw("icicle", run);
  const first = part("browser", run).querySelector("strong");
  if (first) first.focus();
}

function meter(share) {
  const fill = made("i");
  fill.style.width = Number.isFinite(share) ? `${100 * share}%` : "0";
  return made("span", { className: "meter", ariaHidden: "true" }, fill);
}

function browse(run) {
  const t = data.runs[run].tree, here = states[run].level;
  const way = [];
  for (let at = here; at >= 0; at = t.parent[at]) way.unshift(at);
  const crumbs = made("ol", { className: "crumbs" }, ...way.map((at) =>
    made("li", {}, at === here ? made("strong", { textContent: t.name[at], tabIndex: -1 }) : made("button", { type: "button", textContent: t.name[at], onclick: () => open(run, at) }))));
  const sum = (at) => !at ? `${counted(t.support[0], "test text")}, ${percent(rightOf(data.runs[run]))} with the right class` : `${counted(t.support[at], "test text")}, accuracy ${percent(measures.accuracy.of(t, at))}, F1 ${percent(measures.f1.of(t, at))}`;
  const below = [...childrenOf(run, here)].sort((a, b) => t.support[b] - t.support[a] || t.predicted[b] - t.predicted[a]);
  const rows = below.slice(0, 200).map((at) => {
    const deeper = childrenOf(run, at).length > 0;
    const name = deeper ? made("button", { type: "button", textContent: t.name[at], onclick: () => open(run, at) }) : made("span", { textContent: t.name[at] });
    const folds = t.hidden[at] ? ` (${counted(t.hidden[at], "class", "classes")} folded)` : "";
    const cells = [whole(t.support[at]), null, percent(t.predicted[at] ? t.correct[at] / t.predicted[at] : NaN), percent(measures.f1.of(t, at))];
    const accuracy = measures.accuracy.of(t, at);
    return made("tr", {}, made("th", { scope: "row" }, name, folds), ...cells.map((cell) =>
      made("td", {}, ...(cell === null ? [meter(accuracy), percent(accuracy)] : [cell]))));
  });
  const head = made("tr", {}, ...["Below it", "Test texts", "Accuracy", "Precision", "F1"].map((name) => made("th", { scope: "col", textContent: name })));
  const table = made("table", { className: "numbers" }, made("thead", {}, head), made("tbody", {}, ...rows));
  const scroll = made("div", { className: "scroll", tabIndex: 0, role: "region", ariaLabel: `Children of ${t.name[here]}` }, table);
  const more = below.length > 200 ? [made("p", { className: "note", textContent: `… and ${whole(below.length - 200)} more with fewer texts` })] : [];
  part("browser", run).replaceChildren(crumbs, made("p", { className: "note", textContent: sum(here) }), ...(rows.length ? [scroll] : []), ...more);
}

function key(run) {
  const by = states[run].colour, top = data.runs[run].tree.support[0];
  const bar = made("i");
  bar.style.background = `linear-gradient(90deg, ${SCALE.map((_, at) => mixed(at / (SCALE.length - 1))).join(",")})`;
  const [low, high] = by === "support" ? ["1", whole(top)] : ["0\u202f%", "100\u202f%"];
  part("key", run).replaceChildren(made("span", { textContent: measures[by].name }), made("span", { textContent: low }), bar, made("span", { textContent: high }), made("b"), made("span", { textContent: "no test texts" }));
}

// ------------------------------------------------- forks and the threshold

function tell(run) {
  const a = data.runs[run].answers, at = states[run].tau;
  if (!a) return;
  const answered = a.answered[at], right = a.right[at], sum = answered.reduce((x, y) => x + y, 0);
  const given = sum - answered[0], good = right.slice(1).reduce((x, y) => x + y, 0);
  part("out", run).textContent = percent(a.thresholds[at], 0);
  part("live", run).textContent = `If it must be more than ${percent(a.thresholds[at], 0)} sure, it answers ${percent(given / sum)} of the texts and ` +
    `${percent(given ? good / given : NaN)} of these answers are right; ${percent(a.classes[at] / sum)} get a class, the others a branch or nothing.`;
  const rows = answered.map((n, level) => {
    const name = level ? `level ${level}` : "no answer";
    const fill = made("span", { className: "bar", ariaHidden: "true" });
    const parts = level ? [["i", right[level]], ["u", n - right[level]]] : [["s", n]];
    for (const [tag, size] of parts) { const piece = made(tag); piece.style.width = `${(100 * size) / sum}%`; fill.append(piece); }
    const told = `${percent(n / sum)} of texts${level && n ? `, ${percent(right[level] / n)} right` : ""}`;
    return made("li", {}, made("span", { textContent: name }), fill, made("span", { textContent: told }));
  });
  const legend = made("li", { className: "legend" }, made("span", {}, made("i"), " right"), made("span", {}, made("u"), " wrong"));
  part("answers", run).replaceChildren(...rows.reverse(), legend);
}

function noteFork(run) {
  const element = plot("matrix", run);
  if (!element) return;
  const m = fitting(data.runs[run].matrices[states[run].fork]), note = element.parentElement.querySelector('[data-note="matrix"]');
  const outside = m.outside ? ` ${counted(m.outside, "mistake")} with other children ${m.outside === 1 ? "is" : "are"} not drawn.` : "";
  note.textContent = `${m.label}: ${counted(m.mistakes, "mistake")}, cost ${whole(m.cost)}. Rows are the truth; the diagonal is right.${outside}`;
}

function listen(id, action) {
  const element = document.getElementById(id);
  if (element) element.addEventListener("input", () => action(element.value));
}

data.runs.forEach((run, place) => {
  listen(`colour-${place}`, (value) => { states[place].colour = value; key(place); redraw("icicle", place); });
  listen(`size-${place}`, (value) => { states[place].size = value; redraw("icicle", place); });
  listen(`fork-${place}`, (value) => { states[place].fork = Number(value); noteFork(place); redraw("matrix", place); });
  listen(`tau-${place}`, (value) => { states[place].tau = Number(value); tell(place); redraw("risk", place); });
  browse(place);
  key(place);
  tell(place);
  if (run.matrices.length) noteFork(place);
});

// ------------------------------------------------------ the page as a whole

const seen = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (isIntersecting) { seen.unobserve(target); draw(target); }
  }
}, { rootMargin: "600px" });
document.querySelectorAll("[data-plot]").forEach((element) => seen.observe(element));

const again = () => drawn.forEach((_, element) => element.offsetParent && draw(element));
document.querySelectorAll('[name="theme"]').forEach((choice) => choice.addEventListener("change", () => {
  if (choice.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice.value;
  again();
}));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
matchMedia("(max-width: 40rem)").addEventListener("change", again);

listen("run", (value) => {
  document.querySelectorAll(".run").forEach((block) => { block.hidden = block.dataset.run !== value; });
  document.querySelectorAll("nav [data-part]").forEach((link) => { link.href = `#${link.dataset.part}-${value}`; });
  again();
});

const here = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    const link = document.querySelector(`nav a[href="#${target.id}"]`);
    if (!link) continue;
    if (isIntersecting) {
      document.querySelectorAll("nav [aria-current]").forEach((other) => other.removeAttribute("aria-current"));
      link.setAttribute("aria-current", "true");
    }
  }
}, { rootMargin: "-30% 0px -65% 0px" });
document.querySelectorAll("section").forEach((section) => here.observe(section));
