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
 * A summary of the highlights in one sentence.
 * @param {{text: string}[]} tokens
 * @param {number[]} weights
 * @param {string} name  of the step
 */
export function summarizeWords(tokens, weights, name) {
  const minimum = Math.max(0.005, MIN_SHARE * Math.max(0, ...weights.map(Math.abs)));
  const quoted = (index) => `“${isolate(tokens[index].text)}”`;
  const [highest, lowest] = [Math.max(...weights), Math.min(...weights)];
  const parts = [];
  if (highest >= minimum) parts.push(`${quoted(weights.indexOf(highest))} contributed most to ${name}`);
  if (lowest <= -minimum) {
    parts.push(`${quoted(weights.indexOf(lowest))} spoke most against ${parts.length ? "it" : name}`);
  }
  return parts.length ? `${parts.join("; ")}.` : `No single word has a large contribution to ${name}.`;
}
