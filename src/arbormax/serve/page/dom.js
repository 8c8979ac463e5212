/** Creates elements without markup strings, so that user input is always text. */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Returns the element with this id.
 * @param {string} id
 * @returns {any}
 */
export const byId = (id) => document.getElementById(id);

/**
 * Creates an HTML element; functions become event listeners, and attributes that are false or null are omitted.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node|string)} children
 */
export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Creates an SVG element in the same way as `el`.
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

/** Formats a probability as a percentage; only 1 gives 100%, and only 0 gives 0%. */
export function percent(probability) {
  const rounded = Math.round(probability * 100);
  if (rounded <= 0) return probability > 0 ? "<1%" : "0%";
  if (rounded >= 100) return probability < 1 - 1e-6 ? ">99%" : "100%";
  return `${rounded}%`;
}

// characters of right-to-left scripts, and control characters that change the direction of the text
const DIRECTIONAL = /[\u0590-\u08ff\u200f\u202a-\u202e\u2066-\u2069\ufb1d-\ufdff\ufe70-\ufefc]/;

/** A name for use in a sentence: shortened if very long, isolated if it may change the direction of the text. */
export function isolate(name) {
  const short = name.length > 80 ? `${name.slice(0, 79).trimEnd()}…` : name;
  return DIRECTIONAL.test(short) ? `\u2068${short}\u2069` : short;
}

/** Formats an integer with thousands separators: 75,000. */
export const count = (number) => number.toLocaleString("en");

/** "1 class", "2 classes". */
export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/**
 * Delays a function until it has not been called for `wait` milliseconds; `cancel` drops a delayed call.
 * @param {(...values: any[]) => void} call
 * @param {number} wait
 */
export function debounce(call, wait) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => call(...values), wait);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}
