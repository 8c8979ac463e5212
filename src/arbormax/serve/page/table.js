/** A table: reads a CSV file, predicts one column, and offers the file with the predictions. */

import { parseNodes } from "./api.js";
import { createDecoder } from "./decoders.js";
import { byId, count, el, plural } from "./dom.js";
import { addedColumns, decodeText, format, hasHeader, parse, textColumn, withPredictions } from "./csv.js";
import { isShort, predictAll } from "./predict.js";

const PREVIEW_ROWS = 5;
const PREVIEW_CHARACTERS = 120;
const OF_MODEL = "model"; // the choice of all columns that the model was trained on

/** The view; `setModel(model)` sets the limits and the decoders of the service. */
export function createTable() {
  const [drop, file, paste, save] = ["drop", "file", "paste", "save"].map(byId);
  const [column, header, separator] = ["column", "header", "separator"].map(byId);
  const decoder = createDecoder("decoder", { changed: () => table && reset() });
  const within = byId("within-column");
  const [start, cancel, progress, status] = ["start", "cancel", "progress", "status"].map((id) => byId(`predict-${id}`));
  let limits = { max_texts: 1, max_characters: 1000, max_body_bytes: 10_000 };
  let source = "";
  let name = "table";
  let table = null;
  let predictions = [];
  let running = null;
  let modelColumns = null;
  let downloadUrl = "";

  function take(text, from) {
    source = text;
    name = from;
    read();
  }

  function read(chosen) {
    table = parse(source, chosen);
    const usable = table.rows.length > 0;
    byId("table-settings").hidden = !usable;
    byId("table-problem").hidden = usable;
    byId("table-problem").textContent = usable ? "" : "The file is empty. It needs one text per row.";
    if (!usable) return;
    separator.value = table.separator;
    header.checked = namesColumnsOfModel() || hasHeader(table.rows);
    columns(textColumn(table.rows, header.checked));
    byId("unclosed-quote").hidden = !table.unclosed;
    const line = count(table.unclosed);
    byId("unclosed-quote").textContent = `The quotation mark in line ${line} is never closed: the rest is one cell.`;
  }

  function columns(selected) {
    const width = Math.max(...table.rows.slice(0, 1000).map((row) => row.length));
    const name = (index) => (header.checked && table.rows[0][index]) || `column ${index + 1}`;
    const single = Array.from({ length: width }, (_, index) => el("option", { value: index }, name(index)));
    const choices = single.map(({ value, text }) => el("option", { value }, text));
    const places = placesOfModel();
    const ofModel = places && el("option", { value: OF_MODEL }, Object.keys(places).join(", "));
    column.replaceChildren(...(ofModel ? [ofModel] : []), ...single);
    column.value = ofModel ? OF_MODEL : String(Math.min(selected, width - 1));
    within.replaceChildren(el("option", { value: "" }, "no column"), ...choices);
    reset();
  }

  /** Whether the first row has the names of all columns that the model was trained on. */
  function namesColumnsOfModel() {
    const names = table.rows[0].map((cell) => cell.trim());
    return Boolean(modelColumns) && [...modelColumns.text, ...modelColumns.also].every((name) => names.includes(name));
  }

  /** The places of the columns that the model was trained on, by name; null without them, or if one is missing. */
  function placesOfModel() {
    if (!header.checked || !namesColumnsOfModel()) return null;
    const names = table.rows[0].map((cell) => cell.trim());
    return Object.fromEntries([...modelColumns.text, ...modelColumns.also].map((name) => [name, names.indexOf(name)]));
  }

  /** The inputs of the rows below the header: texts, or the values of several columns; null if they are blank. */
  function inputsOfRows() {
    const rows = table.rows.slice(header.checked ? 1 : 0);
    const places = column.value === OF_MODEL ? placesOfModel() : null;
    if (!places) return rows.map((row) => (row[Number(column.value)]?.trim() ? row[Number(column.value)] : null));
    return rows.map((row) => {
      const values = Object.fromEntries(Object.entries(places).map(([name, place]) => [name, row[place] ?? ""]));
      return modelColumns.text.some((name) => values[name].trim()) ? values : null;
    });
  }

  /** The groups in the selected column, with ; between them: one list for each text, or null without a restriction. */
  function restrictions() {
    if (!within.value) return null;
    const rows = table.rows.slice(header.checked ? 1 : 0);
    return rows.map((row) => parseNodes(row[Number(within.value)] ?? "", ";"));
  }

  /** Discards the predictions of another file, column or decoder. */
  function reset() {
    running?.abort();
    running = null;
    setRunning(false);
    predictions = Array(table.rows.length - Number(header.checked)).fill(null);
    progress.hidden = save.hidden = true;
    status.textContent = "";
    start.hidden = false;
    start.disabled = !predictions.length;
    start.textContent = `Classify ${plural(predictions.length, "row")}`;
    preview();
  }

  function preview() {
    const first = { ...table, rows: table.rows.slice(0, PREVIEW_ROWS + 1) };
    const shown = predictions.slice(0, PREVIEW_ROWS + 1);
    const rows = withPredictions(first, header.checked, shown);
    const added = addedColumns(shown);
    const hasPredictions = predictions.some(Boolean);
    const width = rows[0].length - (hasPredictions ? 0 : added.length);
    const chosen = column.value === OF_MODEL ? Object.values(placesOfModel() ?? {}) : [Number(column.value)];
    const cells = (row, tag) =>
      row.slice(0, width).map((cell, index) => {
        const kind = chosen.includes(index) ? "chosen" : index >= rows[0].length - added.length ? "added" : null;
        const short = cell.length > PREVIEW_CHARACTERS ? `${cell.slice(0, PREVIEW_CHARACTERS)}…` : cell;
        return el(tag, { class: kind, scope: tag === "th" ? "col" : null, dir: "auto" }, short);
      });
    const numbered = [...within.options].slice(1).map((option) => option.textContent);
    const names = header.checked ? rows[0] : [...numbered, ...added];
    const body = rows.slice(header.checked ? 1 : 0).slice(0, PREVIEW_ROWS);
    const caption = byId("preview-caption");
    caption.parentElement.replaceChildren(
      caption,
      el("thead", {}, el("tr", {}, ...cells(names, "th"))),
      el("tbody", {}, ...body.map((row) => el("tr", {}, ...cells(row, "td")))),
    );
    const all = plural(predictions.length, "row");
    caption.textContent = predictions.length > PREVIEW_ROWS ? `The first ${PREVIEW_ROWS} of ${all}` : all;
  }

  async function label() {
    running = new AbortController();
    const { signal } = running;
    const inputs = inputsOfRows();
    const long = inputs.filter((input) => input && !isShort(input, limits.max_characters)).length;
    setRunning(true);
    progress.max = inputs.length;
    try {
      const options = { top_k: 0, ...decoder.fields() };
      const onProgress = (done, isWaiting) => {
        progress.value = done;
        const note = isWaiting ? ": the service is busy, waiting…" : "";
        status.textContent = `${count(done)} of ${count(inputs.length)}${note}`;
      };
      await predictAll(inputs, predictions, { limits, options, within: restrictions(), onProgress, signal });
      if (signal !== running?.signal) return;
      const blank = inputs.filter((input) => !input).length;
      const notes = [
        `${plural(inputs.length - blank, "row")} classified`,
        blank && `${plural(blank, "empty row")} without a prediction`,
        long && `${plural(long, "text")} truncated to ${count(limits.max_characters)} characters`,
      ];
      status.textContent = `Done: ${notes.filter(Boolean).join("; ")}.`;
    } catch (error) {
      if (signal !== running?.signal) return;
      const next = inputs.findIndex((input, index) => input && !predictions[index]);
      status.textContent = `Stopped after ${plural(next, "row")}${signal.aborted ? "." : `: ${error.message}`}`;
      start.textContent = `Continue from row ${count(next + 1)}`;
    }
    setRunning(false);
    start.hidden = progress.value === progress.max;
    offerDownload();
  }

  function setRunning(isRunning) {
    start.hidden = isRunning;
    cancel.hidden = !isRunning;
    if (isRunning) progress.hidden = false;
    for (const control of [column, header, separator, within, decoder]) control.disabled = isRunning;
    if (isRunning) cancel.focus();
  }

  function offerDownload() {
    preview();
    if (!predictions.some(Boolean)) return;
    URL.revokeObjectURL(downloadUrl);
    const text = format(withPredictions(table, header.checked, predictions), table);
    downloadUrl = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
    save.href = downloadUrl;
    save.download = `${name}-classified.csv`;
    save.hidden = false;
    save.focus();
  }

  async function open(chosen) {
    if (!chosen) return;
    take(decodeText(await chosen.arrayBuffer()), chosen.name.replace(/\.[^.]*$/, "") || "table");
  }

  file.addEventListener("change", () => open(file.files[0]));
  paste.addEventListener("input", () => take(paste.value, "table"));
  separator.addEventListener("change", () => read(separator.value));
  header.addEventListener("change", () => columns(Number(column.value) || 0));
  column.addEventListener("change", reset);
  within.addEventListener("change", reset);
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
    setModel(model) {
      limits = model.limits;
      modelColumns = model.columns;
      decoder.setModel(model);
    },
  };
}
