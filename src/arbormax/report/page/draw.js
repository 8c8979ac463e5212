// The figures of the report: each function turns the numbers of a run into data and layout for Plotly.

const data = JSON.parse(document.getElementById("data").textContent);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colours = () => ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"].map(css);
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "cross", "x"];
const SCALE = [
  [0, 34, 78], [18, 53, 112], [59, 73, 108], [87, 93, 109], [112, 113, 115], [138, 134, 120],
  [165, 156, 116], [195, 179, 105], [225, 204, 85], [254, 232, 56],
]; // cividis, which is readable with and without colour vision
const rgb = (name) => `rgb(${css(name).slice(1).match(/../g).map((part) => parseInt(part, 16)).join(",")})`;
const percent = (share, digits = 1) => (Number.isFinite(share) ? `${(100 * share).toFixed(digits)}\u202f%` : "–");
const whole = (number) => number.toLocaleString("en-US");
const plural = (number, one, many = `${one}s`) => `${whole(number)} ${number === 1 ? one : many}`;
const narrow = () => window.innerWidth < 640;

// Plotly interprets some tags in names, so names are escaped
const safe = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
const wrap = (text, width = 48) => {
  const lines = [""];
  for (const word of text.split(" ")) {
    if (lines.at(-1) && lines.at(-1).length + word.length > width) lines.push("");
    lines.push(`${lines.pop()} ${word}`.trim());
  }
  return lines.map(safe).join("<br>");
};

function colourAt(share) {
  const at = Math.min(Math.max(share, 0), 1) * (SCALE.length - 1);
  const low = Math.min(Math.floor(at), SCALE.length - 2);
  const part = SCALE[low].map((from, place) => Math.round(from + (at - low) * (SCALE[low + 1][place] - from)));
  return `rgb(${part.join(",")})`;
}
const inkOn = (colour) => {
  const [r, g, b] = colour.match(/\d+/g).map(Number);
  return 0.3 * r + 0.59 * g + 0.11 * b > 110 ? "#10151d" : "#ffffff";
};

function layout(more = {}) {
  const axis = {
    gridcolor: css("--grid"), linecolor: css("--rule"), zerolinecolor: css("--rule"), automargin: true,
    fixedrange: true, tickfont: { color: css("--muted") }, title: { standoff: 8 },
  };
  const { xaxis = {}, yaxis = {}, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", dragmode: false, hovermode: "closest",
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: css("--ink") },
    margin: { l: 8, r: 12, t: 12, b: 8 },
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, font: { size: 12 } },
    hoverlabel: { bgcolor: css("--card"), bordercolor: css("--muted"), font: { color: css("--ink") }, align: "left" },
    xaxis: { ...axis, ...xaxis, title: { ...axis.title, ...xaxis.title } },
    yaxis: { ...axis, ...yaxis, title: { ...axis.title, ...yaxis.title } },
    ...rest,
  };
}

const measures = {
  accuracy: { name: "accuracy", of: (t, i) => (t.support[i] ? t.correct[i] / t.support[i] : NaN) },
  f1: { name: "F1", of: (t, i) => (t.support[i] + t.predicted[i] ? (2 * t.correct[i]) / (t.support[i] + t.predicted[i]) : NaN) },
  support: { name: "test texts", of: (t, i) => t.support[i] },
};

// the share of texts with the right class
const accuracyOf = (run) => 1 - run.severity.reduce((a, b) => a + b, 0) / run.tree.support[0];

function colourOf(tree, by, place) {
  const value = place ? measures[by].of(tree, place) : NaN; // everything is below the root, so it has no colour
  if (Number.isNaN(value) || (by === "support" && !value)) return place ? rgb("--none") : rgb("--soft");
  return colourAt(by === "support" ? Math.log1p(value) / Math.log1p(tree.support[0]) : value);
}

// the children of a node that fit into the columns of the icicle, as boxes in the unit of `size`
function boxesBelow(run, level, size, columns, smallest) {
  const boxes = [];
  const place = (at, depth, start) => {
    boxes.push({ at, depth, start });
    if (depth === columns) return;
    const below = childrenOf(run, at).filter((child) => size[child] >= smallest).sort((a, b) => size[b] - size[a]);
    for (const child of below) { place(child, depth + 1, start); start += size[child]; }
  };
  place(level, 0, 0);
  return boxes;
}

function childrenOf(run, place) {
  const t = run.tree;
  if (!t.below) {
    t.below = t.name.map(() => []);
    t.parent.forEach((parent, child) => parent >= 0 && t.below[parent].push(child));
  }
  return t.below[place];
}

// a phone shows only the children with most mistakes
function fitMatrix(matrix, most = narrow() ? 7 : Infinity) {
  const { names, cells } = matrix;
  if (names.length <= most) return matrix;
  const mistakes = names.map((_, at) => cells.reduce((sum, row, y) => sum + (y === at ? 0 : row[at] + cells[at][y]), 0));
  const kept = names.map((_, at) => at).sort((a, b) => mistakes[b] - mistakes[a]).slice(0, most).sort((a, b) => a - b);
  const part = kept.map((y) => kept.map((x) => cells[y][x]));
  const sum = (table) => table.reduce((all, row, y) => all + row.reduce((some, n, x) => some + (x === y ? 0 : n), 0), 0);
  return { ...matrix, names: kept.map((at) => names[at]), cells: part, outside: matrix.outside + sum(cells) - sum(part) };
}

// accuracy against predicted probability, one line for each level
function reliability(levels) {
  const c = colours(), most = Math.max(1, ...levels.flatMap((level) => level.n));
  const lines = levels.map((level, at) => level.n.length && ({
    type: "scatter", mode: "lines+markers", name: `level ${at + 1}`, x: level.x, y: level.y,
    line: { color: c[at % c.length], dash: DASHES[at % DASHES.length], width: 2 },
    marker: { symbol: SYMBOLS[at % SYMBOLS.length], size: level.n.map((n) => 6 + 10 * Math.sqrt(n / most)), color: c[at % c.length], line: { color: css("--card"), width: 1 } },
    customdata: level.n.map((n) => plural(n, "text")), hovertemplate: `level ${at + 1}: %{customdata}<br>probability %{x:.1%}, accuracy %{y:.1%}<extra></extra>`,
  })).filter(Boolean);
  const diagonal = { type: "scatter", mode: "lines", x: [0, 1], y: [0, 1], line: { color: css("--muted"), width: 1, dash: "dot" }, hoverinfo: "skip", showlegend: false };
  const axis = { range: [-0.02, 1.04], tickformat: ".0%" };
  return {
    data: [diagonal, ...lines],
    layout: layout({ xaxis: { ...axis, title: { text: "predicted probability" } }, yaxis: { ...axis, title: { text: "accuracy" } } }),
  };
}

const figures = {
  // bars in columns: Plotly's icicle cannot draw the node at the left, which has the same colour everywhere, as a strip
  icicle(run, state) {
    const t = run.tree, many = t.name.length > 400, wordy = t.name.some((name) => name.length > 16);
    const size = state.size === "support" && t.support[0] ? t.support : t.classes, total = size[state.level];
    const most = narrow() && wordy ? 1 : narrow() || many ? 2 : 4;
    const boxes = boxesBelow(run, state.level, size, most, total / 1500);
    const columns = Math.max(1, ...boxes.map((box) => box.depth)), strip = 0.035 * columns;
    const fill = boxes.map(({ at }) => colourOf(t, state.colour, at));
    const number = (at) => (state.colour === "support" ? whole(t.support[at]) : percent(measures[state.colour].of(t, at), 0));
    const letters = Math.floor((narrow() ? 300 : 1000) / columns / 8.5) - 6; // that fit into a column, beside the number
    return {
      data: [{
        type: "bar", x: boxes.map(({ depth }) => (depth ? strip + depth - 0.5 : strip / 2)), width: boxes.map(({ depth }) => (depth ? 1 : strip)),
        base: boxes.map(({ start }) => start), y: boxes.map(({ at }) => size[at]), ids: boxes.map(({ at }) => String(at)),
        text: boxes.map(({ at, depth }) => (depth ? `${safe(cut(t.name[at], letters))}  ${number(at)}` : "")),
        textposition: "inside", insidetextanchor: "middle", textangle: 0, textfont: { color: fill.map(inkOn), size: 13 }, cliponaxis: false,
        customdata: boxes.map(({ at }) => [
          wrap(t.name[at]), plural(t.support[at], "test text"), at ? percent(measures.accuracy.of(t, at)) : percent(accuracyOf(run)),
          percent(measures.f1.of(t, at)), plural(t.classes[at], "class", "classes"), t.hidden[at] && t.parent[at] >= 0 ? `<br>${plural(t.hidden[at], "class", "classes")} folded` : "",
        ]),
        hovertemplate: "<b>%{customdata[0]}</b><br>%{customdata[1]}, %{customdata[4]}<br>" +
          "accuracy %{customdata[2]}, F1 %{customdata[3]}%{customdata[5]}<extra></extra>",
        marker: { color: fill, line: { color: css("--card"), width: many ? 0.5 : 1 } },
      }],
      layout: layout({
        margin: { l: 0, r: 0, t: 4, b: 0 }, bargap: 0, uniformtext: { minsize: narrow() ? 10 : 11, mode: "hide" }, barmode: "overlay",
        xaxis: { visible: false, range: [0, strip + columns] }, yaxis: { visible: false, range: [total, 0] },
      }),
    };
  },

  matrix(run, state) {
    const m = fitMatrix(run.matrices[state.fork]), phone = narrow();
    const share = m.cells.map((row) => { const sum = row.reduce((a, b) => a + b, 0); return row.map((n) => (n ? n / sum : null)); });
    const ticks = m.names.map((_, place) => place), labels = m.names.map((name) => safe(cut(name, phone ? 14 : 26)));
    const axis = { tickvals: ticks, ticktext: labels, showgrid: false, zeroline: false, tickfont: { color: css("--muted"), size: phone ? 11 : 13 } };
    return {
      data: [{
        type: "heatmap", x: ticks, y: ticks, z: share, zmin: 0, zmax: 1, colorscale: [[0, css("--cell0")], [1, css("--cell1")]], xgap: 2, ygap: 2,
        text: m.cells.map((row) => row.map((n) => (n ? whole(n) : ""))), texttemplate: "%{text}", textfont: { size: phone ? 11 : 12 },
        customdata: m.cells.map((row, y) => row.map((n, x) => [wrap(m.names[y]), wrap(m.names[x]), plural(n, "text")])),
        hovertemplate: "true: %{customdata[0]}<br>predicted: %{customdata[1]}<br>%{customdata[2]}, %{z:.1%} of the row<extra></extra>",
        hoverongaps: false, showscale: !phone,
        colorbar: { tickformat: ".0%", thickness: 10, outlinewidth: 0, title: { text: "share of the row", side: "right" } },
      }],
      layout: layout({
        plot_bgcolor: css("--paper"),
        xaxis: { ...axis, title: { text: "predicted" }, tickangle: phone ? -60 : -35 },
        yaxis: { ...axis, title: { text: "true" }, autorange: "reversed" },
      }),
    };
  },

  levels(run) {
    const levels = run.levels;
    return {
      data: [{
        type: "bar", orientation: "h", y: levels.map(([level]) => `level ${level}`), x: levels.map(([, n, right]) => right / n),
        text: levels.map(([, n, right]) => `${percent(right / n)} (n = ${whole(n)})`), textposition: "auto", marker: { color: css("--c0") }, insidetextanchor: "end",
        textfont: { size: 13 }, customdata: levels.map(([, n, right]) => `${whole(right)} of ${whole(n)}`), hovertemplate: "%{customdata}<extra></extra>",
      }],
      layout: layout({ xaxis: { range: [0, 1.04], tickformat: ".0%", dtick: 0.25 }, yaxis: { autorange: "reversed" }, bargap: 0.35 }),
    };
  },

  severity(run) {
    const sum = run.severity.reduce((a, b) => a + b, 0);
    return {
      data: [{
        type: "bar", x: run.severity.map((_, at) => at + 1), y: run.severity, marker: { color: css("--c1") },
        text: run.severity.map((n) => (sum ? percent(n / sum, 0) : "")), textposition: "outside", cliponaxis: false,
        hovertemplate: "%{y:,} mistakes of severity %{x}<extra></extra>",
      }],
      layout: layout({ xaxis: { dtick: 1, title: { text: "severity" } }, yaxis: { title: { text: "mistakes" }, rangemode: "tozero" }, bargap: 0.35, margin: { l: 8, r: 12, t: 24, b: 8 } }),
    };
  },

  calibration: (run) => reliability(run.calibration),
  before: (run) => reliability(run.calibrated.before),
  after: (run) => reliability(run.calibrated.after),

  risk(run, state) {
    const c = colours(), a = run.answers, depth = a.answered[0].length;
    const sum = a.answered[0].reduce((x, y) => x + y, 0);
    const from = (row, level) => row.slice(level).reduce((x, y) => x + y, 0);
    const traces = [], rings = { x: [], y: [], colour: [] };
    for (let level = 1; level < depth; level++) {
      const at = a.thresholds.map((tau, place) => {
        const given = from(a.answered[place], level);
        return given >= data.minimum ? { tau, x: given / sum, y: 1 - from(a.right[place], level) / given } : null;
      });
      const kept = at.filter(Boolean), colour = c[(level - 1) % c.length];
      if (!kept.length) continue;
      traces.push({
        type: "scatter", mode: "lines", name: depth > 2 ? (level === depth - 1 ? `level ${level}` : `level ${level} or deeper`) : "answers",
        x: kept.map((p) => p.x), y: kept.map((p) => p.y), line: { color: colour, width: 2.5, dash: DASHES[(level - 1) % DASHES.length] },
        customdata: kept.map((p) => p.tau), hovertemplate: "threshold %{customdata:.2f}: %{x:.1%} answered, %{y:.1%} of them wrong<extra></extra>",
      });
      if (at[state.tau]) { rings.x.push(at[state.tau].x); rings.y.push(at[state.tau].y); rings.colour.push(colour); }
    }
    traces.push({
      type: "scatter", mode: "markers", x: rings.x, y: rings.y, showlegend: false, hoverinfo: "skip",
      marker: { symbol: "circle-open", size: 15, color: rings.colour, line: { width: 3 } },
    });
    return {
      data: traces,
      layout: layout({
        xaxis: { range: [0, 1.03], tickformat: ".0%", title: { text: "texts answered" } },
        yaxis: { rangemode: "tozero", tickformat: ".0%", title: { text: "share of wrong answers" } },
      }),
    };
  },

  scores: (run) => curve(run, Object.keys(run.curve[0] || {}).filter((name) => name !== "loss"), ".2f"),
  loss: (run) => curve(run, ["loss"], ".3g"),

  differences() {
    const rows = data.differences, c = colours();
    const colour = { better: c[0], worse: c[1] };
    const labels = rows.map((row) => `${safe(row.measure)}: ${safe(row.label)}`);
    return {
      data: [{
        type: "scatter", mode: "markers", x: rows.map((row) => row.mean), y: rows.map((_, place) => place),
        error_x: { type: "data", symmetric: false, array: rows.map((row) => row.high - row.mean), arrayminus: rows.map((row) => row.mean - row.low), color: css("--muted"), thickness: 2, width: 5 },
        marker: { size: 11, color: rows.map((row) => colour[row.verdict] || css("--muted")), symbol: rows.map((row) => (colour[row.verdict] ? "circle" : "circle-open")), line: { width: 2 } },
        hovertemplate: "%{x:+.1f} points<extra></extra>",
      }],
      layout: layout({
        xaxis: { zeroline: true, zerolinewidth: 2, zerolinecolor: css("--muted"), ticksuffix: "", title: { text: "points" } },
        yaxis: { tickvals: rows.map((_, place) => place), ticktext: narrow() ? labels.map((label) => label.replace(": ", ":<br>")) : labels, autorange: "reversed", range: [rows.length - 0.5, -0.5], showgrid: false },
        margin: { l: 8, r: 16, t: 8, b: 8 },
      }),
    };
  },
};

function curve(run, names, format) {
  const c = colours(), epochs = run.curve.map((_, at) => at + 1);
  const mark = Number.isInteger(run.best) ? [{ type: "line", x0: run.best, x1: run.best, yref: "paper", y0: 0, y1: 1, line: { color: css("--muted"), width: 1, dash: "dot" } }] : [];
  return {
    data: names.map((name, at) => ({
      type: "scatter", mode: "lines+markers", name: safe(data.titles[name] || name.replaceAll("_", " ")),
      x: epochs, y: run.curve.map((row) => row[name] ?? null), line: { color: c[at % c.length], dash: DASHES[at % DASHES.length], width: 2 },
      marker: { symbol: SYMBOLS[at % SYMBOLS.length], size: 7 }, hovertemplate: `epoch %{x}: %{y:${format}}<extra></extra>`,
    })),
    layout: layout({ xaxis: { title: { text: "epoch" }, tickformat: "d", nticks: 8 }, shapes: mark, showlegend: names.length > 1 }),
  };
}
