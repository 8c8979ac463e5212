/** Highlights the words that increase or decrease the probability of one step. */

import { el, isolate } from "./dom.js";

const MIN_SHARE = 0.08; // of the largest contribution; smaller ones are not highlighted

/**
 * The text with highlighted words.
 * @param {string} text
 * @param {{text: string, start: number, end: number}[]} tokens
 * @param {number[]} weights  contribution of each token
 * @returns {(Node|string)[]}
 */
export function highlightWords(text, tokens, weights) {
  const characters = Array.from(text); // offsets count code points, unlike JavaScript's string indices
  const largest = Math.max(0, ...weights.map(Math.abs));
  const parts = [];
  let position = 0;
  tokens.forEach(({ start, end }, index) => {
    const weight = weights[index] ?? 0;
    if (start < position) return;
    parts.push(characters.slice(position, start).join(""));
    const word = characters.slice(start, end).join("");
    const share = largest > 0 ? Math.abs(weight) / largest : 0;
    parts.push(share < MIN_SHARE ? word : highlight(word, weight, share));
    position = end;
  });
  parts.push(characters.slice(position).join(""));
  return parts;
}

function highlight(word, weight, share) {
  const kind = weight > 0 ? "for" : "against";
  const verb = weight > 0 ? "supports" : "opposes";
  const amount = `${weight > 0 ? "+" : "−"}${Math.abs(weight).toFixed(2)}`;
  const forScreenReaders = el("span", { class: "hidden" }, ` (${verb} ${amount}) `);
  const mark = el("mark", { class: kind, title: `${verb} this step: ${amount}` }, word, forScreenReaders);
  mark.style.setProperty("--share", share.toFixed(2));
  return mark;
}

/**
 * A summary of the contributions in one sentence.
 * @param {{text: string, value: number}[]} parts  words and n-grams, the largest contribution first
 * @param {string} name  of the step
 */
export function summarizeWords(parts, name) {
  const quoted = ({ text }) => `“${isolate(text)}”`;
  const [best, worst] = [parts.find(({ value }) => value > 0), parts.find(({ value }) => value < 0)];
  const sentences = [];
  if (best) sentences.push(`${quoted(best)} contributed most to ${name}`);
  if (worst) sentences.push(`${quoted(worst)} spoke most against ${sentences.length ? "it" : name}`);
  return sentences.length ? `${sentences.join("; ")}.` : `No single word has a large contribution to ${name}.`;
}
