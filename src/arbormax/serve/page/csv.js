/** Reads and writes CSV: RFC 4180, other separators, files without a header, byte order marks, other encodings. */

export const SEPARATORS = [",", ";", "\t", "|"];
const SAMPLE_LENGTH = 64_000;
const TEXT_COLUMN_NAMES =
  /^(texts?|message|sentence|question|title|description|content|body|comment|review|abstract|document|tekst|texte)$/i;

/**
 * @typedef {object} Table
 * @property {string[][]} rows       all rows, including the header
 * @property {string} separator      "" if every line is one text
 * @property {string} newline
 * @property {boolean} bom
 * @property {number} unclosed       the line of an opening quote without an end, or 0
 */

/**
 * The text of a file: UTF-8, UTF-16 with a byte order mark, or else Windows-1252.
 * @param {ArrayBuffer} bytes
 */
export function decodeText(bytes) {
  const [first, second] = new Uint8Array(bytes.slice(0, 2));
  const start = new Uint8Array(bytes.slice(0, 1000));
  const zeros = [0, 1].map((odd) => start.filter((byte, index) => index % 2 === odd && byte === 0).length);
  const isWide = (zeros[0] + zeros[1]) * 4 > start.length && Math.min(...zeros) * 8 < Math.max(...zeros);
  if (isWide && first !== 0xff && first !== 0xfe) {
    return new TextDecoder(zeros[1] > zeros[0] ? "utf-16le" : "utf-16be").decode(bytes);
  }
  if (first === 0xff && second === 0xfe) return new TextDecoder("utf-16le", { ignoreBOM: true }).decode(bytes);
  if (first === 0xfe && second === 0xff) return new TextDecoder("utf-16be", { ignoreBOM: true }).decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/**
 * Parses a CSV text without its blank lines; finds the separator if none is given.
 * @param {string} source
 * @param {string} [separator]
 * @returns {Table}
 */
export function parse(source, separator) {
  const bom = source.startsWith("\ufeff");
  const whole = bom ? source.slice(1) : source;
  const named = /^"?sep=([^\r\n"])"?\r?\n/i.exec(whole); // a first line that Excel reads
  const text = named ? whole.slice(named[0].length) : whole;
  const chosen = separator ?? named?.[1] ?? findSeparator(text.slice(0, SAMPLE_LENGTH));
  const { rows, unclosed } = split(text, chosen);
  return { rows, separator: chosen, newline: /\r\n/.test(text.slice(0, SAMPLE_LENGTH)) ? "\r\n" : "\n", bom, unclosed };
}

/**
 * The separator that gives nearly all rows the same number of cells, at least two; "" if there is none.
 * @param {string} text
 */
export function findSeparator(text) {
  let best = { separator: "", score: 0 };
  for (const separator of SEPARATORS) {
    const sizes = split(text, separator).rows.slice(0, 50).map((row) => row.length);
    const counts = new Map();
    for (const size of sizes) counts.set(size, (counts.get(size) ?? 0) + 1);
    const [width, times] = [...counts].sort((a, b) => b[1] - a[1] || b[0] - a[0])[0] ?? [1, 0];
    const score = width > 1 && times >= 0.9 * sizes.length ? (times / sizes.length) * width : 0;
    if (score > best.score) best = { separator, score };
  }
  return best.separator;
}

function split(text, separator) {
  const rows = [];
  let row = [];
  let position = 0;
  let unclosed = 0;
  const plain = new RegExp(`[${separator === "|" ? "\\|" : separator}\r\n]`, "g");
  while (position <= text.length) {
    let cell = "";
    if (text[position] === '"') {
      const start = position;
      for (position += 1; ; position += 1) {
        const quote = text.indexOf('"', position);
        if (quote < 0) {
          unclosed ||= text.slice(0, start).split("\n").length;
          cell += text.slice(position);
          position = text.length;
          break;
        }
        cell += text.slice(position, quote);
        position = quote + 1;
        if (text[position] !== '"') break;
        cell += '"';
      }
    }
    plain.lastIndex = position;
    const end = plain.exec(text)?.index ?? text.length;
    cell += text.slice(position, end);
    row.push(cell);
    position = end + 1;
    if (text[end] === separator && separator) continue;
    if (row.some((value) => value.trim())) rows.push(row);
    row = [];
    if (text[end] === "\r" && text[end + 1] === "\n") position += 1;
    if (position >= text.length) break;
  }
  return { rows, unclosed };
}

/**
 * Whether the first row is a header: short, distinct cells without numbers that differ from the rows below.
 * @param {string[][]} rows
 */
export function hasHeader(rows) {
  if (rows.length < 2) return false;
  const [first, ...rest] = rows.slice(0, 50);
  const names = first.map((cell) => cell.trim());
  if (names.some((name) => TEXT_COLUMN_NAMES.test(name))) return true;
  if (names.some((name) => !name || name.length > 40 || isNumber(name) || /[.!?]$/.test(name))) return false;
  if (new Set(names).size < names.length) return false;
  if (names.some((name, column) => rest.some((row) => row[column]?.trim() === name))) return false; // a label
  const numbers = (column) => rest.every((row) => isNumber(row[column] ?? ""));
  return names.some((name, column) => numbers(column) || meanLength(rest, column) > 2.5 * name.length);
}

/** Whether a cell is a number, with a decimal point or a decimal comma. */
const isNumber = (cell) => /^[+-]?[\d.,\s]*\d\s*[%€$£]?$/.test(cell.trim());

/**
 * The column of the texts: by its name, or else the column with the longest cells.
 * @param {string[][]} rows
 * @param {boolean} header
 */
export function textColumn(rows, header) {
  const byName = header ? rows[0].findIndex((name) => TEXT_COLUMN_NAMES.test(name.trim())) : -1;
  if (byName >= 0) return byName;
  const sample = rows.slice(header ? 1 : 0, 50);
  const lengths = (rows[0] ?? [""]).map((_, column) => meanLength(sample, column));
  return lengths.indexOf(Math.max(...lengths));
}

function meanLength(rows, column) {
  return rows.reduce((sum, row) => sum + (row[column]?.length ?? 0), 0) / Math.max(1, rows.length);
}

/**
 * Formats rows as CSV.
 * @param {string[][]} rows
 * @param {Pick<Table, "separator"|"newline"|"bom">} style
 */
export function format(rows, { separator, newline, bom }) {
  const delimiter = separator || ",";
  const unsafe = new RegExp(`["\r\n${delimiter === "|" ? "\\|" : delimiter}]|^\\s|\\s$`);
  const cell = (value) => (unsafe.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return (bom ? "\ufeff" : "") + rows.map((row) => row.map(cell).join(delimiter) + newline).join("");
}

/**
 * A cell that spreadsheets do not interpret as a formula.
 * @param {string} value
 */
export const escapeFormula = (value) => (/^[=+\-@\t\r]/.test(value) ? `'${value}` : value);

/** The names of the columns for these predictions; `set` if they have sets with a guaranteed coverage. */
export const addedColumns = (predictions) =>
  ["label", "path", "probability", ...(predictions.some((prediction) => prediction?.set) ? ["set"] : [])];

/**
 * The table with further columns for the predictions; rows without a prediction get empty cells.
 * @param {Table} table
 * @param {boolean} header
 * @param {(null|{label: string, path: string[], probability: number, set?: string[]})[]} predictions  one for each row
 *   below the header
 */
export function withPredictions(table, header, predictions) {
  const width = table.rows.reduce((widest, row) => Math.max(widest, row.length), 0);
  const padded = (row) => [...row, ...Array(width - row.length).fill("")];
  const columns = addedColumns(predictions);
  const added = (prediction) => {
    if (!prediction) return columns.map(() => "");
    const { label, path, probability, set = [] } = prediction;
    const cells = [label, joinPath(path), String(Number(probability.toPrecision(6))), set.join(";")];
    return cells.slice(0, columns.length).map((cell, index) => (index === 2 ? cell : escapeFormula(cell)));
  };
  const rows = table.rows.slice(header ? 1 : 0).map((row, index) => [...padded(row), ...added(predictions[index])]);
  if (!header) return rows;
  const existing = new Set(table.rows[0]);
  const names = columns.map((name) => (existing.has(name) ? `predicted_${name}` : name));
  return [[...padded(table.rows[0]), ...names], ...rows];
}

/** A path in the notation of the library: '/' between names, '\' before a '/' inside a name. */
const joinPath = (path) => path.map((name) => name.replaceAll("\\", "\\\\").replaceAll("/", "\\/")).join("/");
