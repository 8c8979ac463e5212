/** What the numbers mean, in sentences for people who have never heard of them. */

import { named, percent, plural } from "./dom.js";

/**
 * How to take the probability of the answer.
 * @param {number} probability
 */
export function confidence(probability) {
  if (probability >= 0.95) return "The model is all but certain.";
  if (probability >= 0.75) return "The model is fairly sure.";
  if (probability >= 0.5) return "More likely than not, but look at the alternatives.";
  if (probability >= 0.2) return "A guess: it is ahead of the rest, and yet more likely wrong than right.";
  return "A weak guess: the belief is spread over many classes.";
}

/**
 * What the model would answer when it has to be so sure.
 * @param {{node: number, path: string[], probability: number, classes?: number}} stop  node 0 is the root
 * @param {{node: number}} leaf  the most probable class
 * @param {number} tau
 */
export function stopping(stop, leaf, tau) {
  const bar = percent(tau);
  if (stop.node === 0) return `It would rather not answer: no group is more than ${bar} likely.`;
  const name = named(stop.path.at(-1));
  if (stop.node === leaf.node) return `Sure enough: it goes all the way to ${name}.`;
  const open = stop.classes > 1 ? `; which of the ${plural(stop.classes, "class", "classes")} inside stays open` : "";
  return `It stops at ${name} (${percent(stop.probability)})${open}.`;
}

/**
 * One step as a sentence: what it keeps of what its parent had.
 * @param {{name: string, probability: number, conditional: number}} step
 * @param {{name: string}|null} before
 */
export function stepping(step, before) {
  if (!before) return `At the first fork ${named(step.name)} gets ${percent(step.conditional)}.`;
  const [given, name] = [named(before.name), named(step.name)];
  return `Given ${given}, ${name} gets ${percent(step.conditional)}: ${percent(step.probability)} in all.`;
}
