/** A table with the costs of mistakes, as people keep it in a spreadsheet. */

import { parse } from "./csv.js";

/**
 * The field `costs` of a request. The first row and the first column are classes; or there are only numbers, in the
 * order of the classes of the model.
 * @param {string} text  CSV: a row for each predicted class, a column for each true class
 * @returns {{rows: number[][], classes?: string[]}}
 */
export function parseCosts(text) {
  const { rows: cells, separator } = parse(text);
  const number = (cell) => (cell.trim() ? Number(separator === "," ? cell : cell.replace(",", ".")) : NaN);
  if (cells.flat().every((cell) => Number.isFinite(number(cell)))) return { rows: cells.map((row) => row.map(number)) };
  const [first, ...body] = cells.map((row) => row.map((cell) => cell.trim()));
  const classes = body.length && first.length < body[0].length ? first : first.slice(1); // without a first cell
  const byName = new Map(body.map(([name, ...values]) => [name, values]));
  const extra = [...byName.keys()].filter((name) => !classes.includes(name));
  const single = [...classes.filter((name) => !byName.has(name)), ...extra];
  if (single.length) {
    const names = single.slice(0, 3).join(", ");
    throw new Error(`The costs need a row and a column for each class. One of them is missing for: ${names}.`);
  }
  const rows = classes.map((name) => classes.map((_, column) => number(byName.get(name)[column] ?? "")));
  const row = rows.findIndex((values) => !values.every(Number.isFinite));
  if (row >= 0) {
    const column = rows[row].findIndex((value) => !Number.isFinite(value));
    throw new Error(`The cost of predicting ${classes[row]} for ${classes[column]} is not a number.`);
  }
  return { classes, rows };
}
