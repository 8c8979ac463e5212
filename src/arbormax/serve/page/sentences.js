/** Sentences that explain the numbers of a prediction. */

import { isolate, percent, plural } from "./dom.js";

/**
 * How reliable the prediction is.
 * @param {number} probability
 */
export function describeConfidence(probability) {
  if (probability >= 0.95) return "The model is almost certain.";
  if (probability >= 0.75) return "The model is fairly sure.";
  if (probability >= 0.5) return "Probably right, but check the alternatives.";
  if (probability >= 0.2) return "Uncertain: this is the most probable class, but it is probably wrong.";
  return "Very uncertain: many classes are almost equally probable.";
}

/**
 * The prediction for a minimum probability, or for a guaranteed coverage.
 * @param {{node: number, path: string[], probability: number, classes?: number}} stop  node 0 is the root
 * @param {{node: number}} leaf  the most probable class
 * @param {number} tau
 * @param {boolean} isCoverage
 */
export function describeStop(stop, leaf, tau, isCoverage = false) {
  const minimum = isCoverage ? "coverage" : "minimum";
  if (stop.node === 0 && isCoverage) return `No prediction: only all classes together have a coverage of ${percent(tau)}.`;
  if (stop.node === 0) return `No prediction: no node has a probability above ${percent(tau)}.`;
  const name = isolate(stop.path.at(-1));
  if (stop.node === leaf.node) return `With this ${minimum}, the prediction is still the class ${name}.`;
  const classes = stop.classes > 1 ? `, a group of ${plural(stop.classes, "class", "classes")}` : "";
  return `With this ${minimum}, the prediction is ${name} (${percent(stop.probability)})${classes}.`;
}

/**
 * The nodes that together have the guaranteed coverage.
 * @param {string[]} set  labels; the label of the root is empty
 * @param {number} most
 * @param {boolean} inBranches  whether the coverage holds in every branch
 */
export function describeSet(set, most, inBranches = false) {
  const names = set.map((label) => (label ? isolate(label) : "all classes"));
  return `With at most ${plural(most, "node")}${inBranches ? ", in every branch" : ""}: ${names.join(", ")}.`;
}

/**
 * What a coverage of the slider promises.
 * @param {{items: number, guaranteed: boolean}} coverage
 * @param {number} share
 */
export function describeGuarantee({ items, guaranteed }, share) {
  const texts = plural(items, "text");
  if (guaranteed) {
    return `Guarantee: of texts like the ${texts} held out for it, at least ${percent(share)} have their class in the `
      + "prediction, on average.";
  }
  return `An estimate from ${texts} of the training, not a guarantee: the model may have been trained on them. `
    + "Calibrate it on other texts (arbormax calibrate) for a guarantee.";
}

/**
 * How much the probability of a step differs between draws of the model; empty for a model without uncertainty.
 * @param {{uncertainty?: {std: number, total: number, epistemic: number}}} step
 */
export function describeUncertainty({ uncertainty }) {
  if (!uncertainty) return "";
  const { total, epistemic } = uncertainty;
  const share = total > 0 ? percent(epistemic / total) : "0%";
  return `It differs by ${points(uncertainty.std)} percentage points between draws of the model. More training texts `
    + `could remove ${share} of the uncertainty about this step.`;
}

/** A standard deviation of a probability in percentage points. */
export function points(std) {
  return `± ${(100 * std).toFixed(std < 0.0995 ? 1 : 0)}`;
}

/**
 * The probability of one step given its parent.
 * @param {{name: string, probability: number, conditional: number}} step
 * @param {{name: string}|null} parent
 */
export function describeStep(step, parent) {
  const name = isolate(step.name);
  if (!parent) return `${name} has a probability of ${percent(step.conditional)}.`;
  const given = `Given ${isolate(parent.name)}, ${name} has a probability of ${percent(step.conditional)}`;
  return `${given}; ${percent(step.probability)} overall.`;
}
