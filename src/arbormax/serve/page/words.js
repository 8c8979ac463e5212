/** The words that mattered: the text with a mark on every word that spoke for or against one step. */

import { el, named } from "./dom.js";

const FAINT = 0.08; // of the strongest word: what is below it is not marked

/**
 * The marked text.
 * @param {string} text
 * @param {{text: string, start: number, end: number}[]} tokens
 * @param {number[]} weights  one for each token
 * @returns {(Node|string)[]}
 */
export function marked(text, tokens, weights) {
  const letters = Array.from(text); // the offsets count characters, as JavaScript's own do not
  const strongest = Math.max(0, ...weights.map(Math.abs));
  const parts = [];
  let at = 0;
  tokens.forEach(({ start, end }, place) => {
    const weight = weights[place] ?? 0;
    if (start < at) return;
    parts.push(letters.slice(at, start).join(""));
    const word = letters.slice(start, end).join("");
    const share = strongest > 0 ? Math.abs(weight) / strongest : 0;
    parts.push(share < FAINT ? word : highlight(word, weight, share));
    at = end;
  });
  parts.push(letters.slice(at).join(""));
  return parts;
}

function highlight(word, weight, share) {
  const sign = weight > 0 ? "for" : "against";
  const told = `${weight > 0 ? "+" : "−"}${Math.abs(weight).toFixed(2)}`;
  const spoken = el("span", { class: "hidden" }, ` (${sign} ${told}) `);
  const mark = el("mark", { class: sign, title: `spoke ${sign}: ${told}` }, word, spoken);
  mark.style.setProperty("--share", share.toFixed(2));
  return mark;
}

/**
 * What the marks say, in a sentence.
 * @param {{text: string}[]} tokens
 * @param {number[]} weights
 * @param {string} name  of the step
 */
export function sentence(tokens, weights, name) {
  const least = Math.max(0.005, FAINT * Math.max(0, ...weights.map(Math.abs)));
  const said = (place) => `“${named(tokens[place].text)}”`;
  const [highest, lowest] = [Math.max(...weights), Math.min(...weights)];
  const parts = [];
  if (highest >= least) parts.push(`${said(weights.indexOf(highest))} spoke most for ${name}`);
  if (lowest <= -least) parts.push(`${said(weights.indexOf(lowest))} spoke most against ${parts.length ? "it" : name}`);
  return parts.length ? `${parts.join("; ")}.` : `No single word decided about ${name}.`;
}
