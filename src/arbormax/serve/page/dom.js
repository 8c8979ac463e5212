/** Elements without markup strings: whatever comes from outside stays text. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * The element of the page with this id.
 * @param {string} id
 * @returns {any}
 */
export const byId = (id) => document.getElementById(id);

/**
 * A new HTML element; attributes that are functions become listeners, false and null are left out.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string)} children
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * A new SVG element, made like `el`.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string)} children
 */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children);
  return element;
}

/** A probability as people read it; only what is certain says 100%, only what is impossible 0%. */
export function percent(probability) {
  const rounded = Math.round(probability * 100);
  if (rounded <= 0) return probability > 0 ? "<1%" : "0%";
  if (rounded >= 100) return probability < 1 - 1e-6 ? ">99%" : "100%";
  return `${rounded}%`;
}

// letters that are written from right to left, and marks that turn what follows them
const TURNS = /[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc]/;

/** A name inside a sentence: cut where very long, and apart where it is written from right to left. */
export function named(name) {
  const short = name.length > 80 ? `${name.slice(0, 79).trimEnd()}…` : name;
  return TURNS.test(short) ? `\u2068${short}\u2069` : short;
}

/** A whole number with its thousands apart: 75,000. */
export const count = (number) => number.toLocaleString("en");

/** "1 class", "2 classes". */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/**
 * The function, called once the calls have stopped for `wait` milliseconds; `cancel` forgets a call that waits.
 * @param {(...given: any[]) => void} call
 * @param {number} wait
 */
export function debounce(call, wait) {
  let timer = 0;
  const later = (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...given), wait);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}
