/** CSV as RFC 4180 has it, and as people send it: other separators, no header, a byte order mark, odd encodings. */

export const SEPARATORS = [",", ";", "\t", "|"];
const SAMPLE = 64_000;
const TEXTUAL =
  /^(texts?|message|sentence|question|title|description|content|body|comment|review|abstract|document|tekst|texte)$/i;

/**
 * @typedef {object} Table
 * @property {string[][]} rows       all of them, the header too
 * @property {string} separator      "" when every line is one text
 * @property {string} newline
 * @property {boolean} bom
 * @property {number} unclosed       the line where a quote begins that never ends, or 0
 */

/**
 * The characters of a file: UTF-8, UTF-16 by its mark, else the Western encoding of older spreadsheets.
 * @param {ArrayBuffer} bytes
 */
export function decodeText(bytes) {
  const [first, second] = new Uint8Array(bytes.slice(0, 2));
  if (first === 0xff && second === 0xfe) return new TextDecoder("utf-16le", { ignoreBOM: true }).decode(bytes);
  if (first === 0xfe && second === 0xff) return new TextDecoder("utf-16be", { ignoreBOM: true }).decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return new TextDecoder("windows-1252").decode(bytes);
  }
}

/**
 * The rows of a CSV text; blank lines are left out. Without a separator given, the one that fits is found.
 * @param {string} source
 * @param {string} [separator]
 * @returns {Table}
 */
export function parse(source, separator) {
  const bom = source.startsWith("\ufeff");
  const text = bom ? source.slice(1) : source;
  const taken = separator ?? findSeparator(text.slice(0, SAMPLE));
  const { rows, unclosed } = split(text, taken);
  return { rows, separator: taken, newline: /\r\n/.test(text.slice(0, SAMPLE)) ? "\r\n" : "\n", bom, unclosed };
}

/**
 * The separator that cuts nearly every row into the same number of cells, more than one; "" where none does.
 * @param {string} text
 */
export function findSeparator(text) {
  let best = { separator: "", score: 0 };
  for (const separator of SEPARATORS) {
    const sizes = split(text, separator).rows.slice(0, 50).map((row) => row.length);
    const tally = new Map();
    for (const size of sizes) tally.set(size, (tally.get(size) ?? 0) + 1);
    const [usual, times] = [...tally].sort((a, b) => b[1] - a[1] || b[0] - a[0])[0] ?? [1, 0];
    const score = usual > 1 && times >= 0.9 * sizes.length ? (times / sizes.length) * usual : 0;
    if (score > best.score) best = { separator, score };
  }
  return best.separator;
}

function split(text, separator) {
  const rows = [];
  let row = [];
  let at = 0;
  let unclosed = 0;
  const plain = new RegExp(`[${separator === "|" ? "\\|" : separator}\r\n]`, "g");
  while (at <= text.length) {
    let cell = "";
    if (text[at] === '"') {
      const start = at;
      for (at += 1; ; at += 1) {
        const quote = text.indexOf('"', at);
        if (quote < 0) {
          unclosed ||= text.slice(0, start).split("\n").length;
          cell += text.slice(at);
          at = text.length;
          break;
        }
        cell += text.slice(at, quote);
        at = quote + 1;
        if (text[at] !== '"') break;
        cell += '"';
      }
    }
    plain.lastIndex = at;
    const end = plain.exec(text)?.index ?? text.length;
    cell += text.slice(at, end);
    row.push(cell);
    at = end + 1;
    if (text[end] === separator && separator) continue;
    if (row.length > 1 || row[0] !== "") rows.push(row);
    row = [];
    if (text[end] === "\r" && text[end + 1] === "\n") at += 1;
    if (at >= text.length) break;
  }
  return { rows, unclosed };
}

/**
 * Whether the first row names the columns: short, all different, no numbers, and unlike what stands below.
 * @param {string[][]} rows
 */
export function hasHeader(rows) {
  if (rows.length < 2) return false;
  const [first, ...rest] = rows.slice(0, 50);
  const names = first.map((cell) => cell.trim());
  if (names.some((name) => TEXTUAL.test(name))) return true;
  if (names.some((name) => !name || name.length > 40 || !Number.isNaN(Number(name)))) return false;
  if (new Set(names).size < names.length) return false;
  const numbers = (column) => rest.every((row) => row[column]?.trim() && !Number.isNaN(Number(row[column])));
  return names.some((name, column) => numbers(column) || meanLength(rest, column) > 2.5 * name.length);
}

/**
 * The column that holds the texts: by its name, else the one with the longest cells.
 * @param {string[][]} rows
 * @param {boolean} header
 */
export function textColumn(rows, header) {
  const named = header ? rows[0].findIndex((name) => TEXTUAL.test(name.trim())) : -1;
  if (named >= 0) return named;
  const sample = rows.slice(header ? 1 : 0, 50);
  const lengths = (rows[0] ?? [""]).map((_, column) => meanLength(sample, column));
  return lengths.indexOf(Math.max(...lengths));
}

function meanLength(rows, column) {
  return rows.reduce((sum, row) => sum + (row[column]?.length ?? 0), 0) / Math.max(1, rows.length);
}

/**
 * Rows as CSV text.
 * @param {string[][]} rows
 * @param {Pick<Table, "separator"|"newline"|"bom">} style
 */
export function format(rows, { separator, newline, bom }) {
  const between = separator || ",";
  const unsafe = new RegExp(`["\r\n${between === "|" ? "\\|" : between}]|^\\s|\\s$`);
  const cell = (value) => (unsafe.test(value) ? `"${value.replaceAll('"', '""')}"` : value);
  return (bom ? "\ufeff" : "") + rows.map((row) => row.map(cell).join(between) + newline).join("");
}

/**
 * A cell of ours that no spreadsheet takes for a formula.
 * @param {string} value
 */
export const guarded = (value) => (/^[=+\-@\t\r]/.test(value) ? `'${value}` : value);

/**
 * The table with the answers behind it; rows without an answer get empty cells.
 * @param {Table} table
 * @param {boolean} header
 * @param {(null|{label: string, path: string[], probability: number})[]} answers  one for each row below the header
 */
export function withAnswers(table, header, answers) {
  const width = table.rows.reduce((widest, row) => Math.max(widest, row.length), 0);
  const padded = (row) => [...row, ...Array(width - row.length).fill("")];
  const added = (answer) => {
    if (!answer) return ["", "", ""];
    const { label, path, probability } = answer;
    return [guarded(label), guarded(joined(path)), String(Number(probability.toPrecision(6)))];
  };
  const rows = table.rows.slice(header ? 1 : 0).map((row, place) => [...padded(row), ...added(answers[place])]);
  if (!header) return rows;
  const taken = new Set(table.rows[0]);
  const names = ["label", "path", "probability"].map((name) => (taken.has(name) ? `predicted_${name}` : name));
  return [[...padded(table.rows[0]), ...names], ...rows];
}

/** A path as the library writes it: '/' between names, '\' before a '/' inside one. */
const joined = (path) => path.map((name) => name.replaceAll("\\", "\\\\").replaceAll("/", "\\/")).join("/");
