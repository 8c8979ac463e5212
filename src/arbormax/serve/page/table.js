/** A table: read a CSV, label one column of it, and give it back with the answers behind. */

import { byId, count, el, plural } from "./dom.js";
import { decodeText, format, hasHeader, parse, textColumn, withAnswers } from "./csv.js";
import { labelAll } from "./label.js";

const SHOWN = 5;
const LONGEST = 120;

/** The view; `introduce(model)` tells it the limits of the service. */
export function createTable() {
  const [drop, file, paste, save] = ["drop", "file", "paste", "save"].map(byId);
  const [column, header, separator, certain] = ["column", "header", "separator", "certain"].map(byId);
  const [start, cancel, progress, told] = ["start", "cancel", "progress", "told"].map((part) => byId(`label-${part}`));
  let limits = { max_texts: 1, max_characters: 1000, max_body_bytes: 10_000 };
  let source = "";
  let name = "table";
  let table = null;
  let answers = [];
  let running = null;
  let address = "";

  function take(text, from) {
    source = text;
    name = from;
    read();
  }

  function read(chosen) {
    table = parse(source, chosen);
    const usable = table.rows.length > 0;
    byId("table-set").hidden = !usable;
    byId("table-problem").hidden = usable;
    byId("table-problem").textContent = usable ? "" : "There is nothing in it: a CSV has one text in every row.";
    if (!usable) return;
    separator.value = table.separator;
    header.checked = hasHeader(table.rows);
    columns(textColumn(table.rows, header.checked));
    byId("unclosed").hidden = !table.unclosed;
    const line = count(table.unclosed);
    byId("unclosed").textContent = `A quotation mark in line ${line} is never closed, so all behind it is one cell.`;
  }

  function columns(selected) {
    const width = Math.max(...table.rows.slice(0, 1000).map((row) => row.length));
    const name = (place) => (header.checked && table.rows[0][place]) || `column ${place + 1}`;
    column.replaceChildren(...Array.from({ length: width }, (_, place) => el("option", { value: place }, name(place))));
    column.value = String(Math.min(selected, width - 1));
    forget();
  }

  /** The texts of the chosen column, below the header. */
  const texts = () => table.rows.slice(header.checked ? 1 : 0).map((row) => row[Number(column.value)] ?? "");

  /** Another column or file: what was answered belongs to the old one. */
  function forget() {
    running?.abort();
    running = null;
    working(false);
    answers = Array(table.rows.length - Number(header.checked)).fill(null);
    progress.hidden = save.hidden = true;
    told.textContent = "";
    start.hidden = false;
    start.disabled = !answers.length;
    start.textContent = `Label ${plural(answers.length, "row")}`;
    preview();
  }

  function preview() {
    const first = { ...table, rows: table.rows.slice(0, SHOWN + 1) };
    const rows = withAnswers(first, header.checked, answers.slice(0, SHOWN + 1));
    const known = answers.some(Boolean);
    const width = rows[0].length - (known ? 0 : 3);
    const chosen = Number(column.value);
    const cells = (row, tag) =>
      row.slice(0, width).map((cell, place) => {
        const kind = place === chosen ? "chosen" : place >= rows[0].length - 3 ? "added" : null;
        const short = cell.length > LONGEST ? `${cell.slice(0, LONGEST)}…` : cell;
        return el(tag, { class: kind, scope: tag === "th" ? "col" : null, dir: "auto" }, short);
      });
    const numbered = [...column.options].map((option) => option.textContent);
    const names = header.checked ? rows[0] : [...numbered, "label", "path", "probability"];
    const body = rows.slice(header.checked ? 1 : 0).slice(0, SHOWN);
    const caption = byId("preview-told");
    caption.parentElement.replaceChildren(
      caption,
      el("thead", {}, el("tr", {}, ...cells(names, "th"))),
      el("tbody", {}, ...body.map((row) => el("tr", {}, ...cells(row, "td")))),
    );
    const all = plural(answers.length, "row");
    caption.textContent = answers.length > SHOWN ? `The first ${SHOWN} of ${all}` : all;
  }

  async function label() {
    running = new AbortController();
    const { signal } = running;
    const given = texts();
    const long = given.filter((text) => text.length > limits.max_characters).length;
    working(true);
    progress.max = given.length;
    try {
      const tau = Number(certain.value);
      const options = { top_k: 1, ...(tau ? { decoder: "threshold", tau } : { decoder: "leaf" }) };
      const onProgress = (done, waits) => {
        progress.value = done;
        told.textContent = `${count(done)} of ${count(given.length)}${waits ? ": the service is busy, waiting…" : ""}`;
      };
      await labelAll(given, answers, { limits, options, onProgress, signal });
      if (signal !== running?.signal) return;
      const blank = given.filter((text) => !text.trim()).length;
      const notes = [
        `${plural(given.length - blank, "row")} labelled`,
        blank && `${plural(blank, "empty row")} left without a label`,
        long && `${plural(long, "text")} cut at ${count(limits.max_characters)} characters`,
      ];
      told.textContent = `Done: ${notes.filter(Boolean).join("; ")}.`;
    } catch (error) {
      if (signal !== running?.signal) return;
      const next = given.findIndex((text, place) => text.trim() && !answers[place]);
      told.textContent = `Stopped after ${plural(next, "row")}${signal.aborted ? "." : `: ${error.message}`}`;
      start.textContent = `Go on from row ${count(next + 1)}`;
    }
    working(false);
    start.hidden = progress.value === progress.max;
    offer();
  }

  function working(now) {
    start.hidden = now;
    cancel.hidden = !now;
    if (now) progress.hidden = false;
    for (const control of [column, header, separator, certain]) control.disabled = now;
    if (now) cancel.focus();
  }

  function offer() {
    preview();
    if (!answers.some(Boolean)) return;
    URL.revokeObjectURL(address);
    const text = format(withAnswers(table, header.checked, answers), table);
    address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    save.href = address;
    save.download = `${name}-labelled.csv`;
    save.hidden = false;
    save.focus();
  }

  async function open(given) {
    if (!given) return;
    take(decodeText(await given.arrayBuffer()), given.name.replace(/\.[^.]*$/, "") || "table");
  }

  file.addEventListener("change", () => open(file.files[0]));
  paste.addEventListener("input", () => take(paste.value, "table"));
  separator.addEventListener("change", () => read(separator.value));
  header.addEventListener("change", () => columns(Number(column.value)));
  column.addEventListener("change", forget);
  certain.addEventListener("change", forget);
  start.addEventListener("click", label);
  cancel.addEventListener("click", () => running?.abort(new DOMException("stopped", "AbortError")));
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const text = event.dataTransfer.getData("text/plain");
    if (event.dataTransfer.files.length) open(event.dataTransfer.files[0]);
    else if (text) take(text, "table");
  });

  return {
    introduce(model) {
      limits = model.limits;
    },
  };
}
