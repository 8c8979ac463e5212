/** One text: its prediction, the tree with probabilities, the minimum probability, and word contributions. */

import { parseNodes, post } from "./api.js";
import { createDecoder } from "./decoders.js";
import { byId, debounce, el, isolate, percent } from "./dom.js";
import { highlightWords, summarizeWords } from "./highlights.js";
import {
  describeConfidence, describeGuarantee, describeSet, describeStep, describeStop, describeUncertainty, points,
} from "./sentences.js";
import { TAU } from "./state.js";
import { deepestAbove, lowestAbove, nearestCoverage } from "./threshold.js";
import { createTree } from "./tree.js";

const SIBLINGS = 6;
const COVERAGE = 0.9; // of a model without a default

/**
 * The view; `open(state)` shows a state, and the view calls `changed(state, settled)` after every change.
 * @param {{changed: (state: any, settled: boolean) => void, browse: (node: number) => void}} events
 */
export function createExplain({ changed, browse }) {
  const [text, slider, steps, words] = ["text", "tau", "steps", "words"].map(byId);
  const sides = ["within", "without"].map(byId);
  const tree = createTree(byId("tree"), { onSelect: select, onMore: (parent) => browse(parent.node) });
  const decoder = createDecoder("text-decoder", { changed: setDecoder, usual: "leaf, and a slider to stop above it" });
  const own = { within: "", without: "", decoder: "", options: "" };
  const state = { view: "text", text: "", tau: TAU, step: 0, node: null, ...own };
  let predicted = null; // the explanation of the prediction
  let shown = null; // the same explanation, or that of another branch
  let explainedText = ""; // the text of both explanations
  let explained = {}; // the restriction of both explanations
  let stop = null;
  let calibrated = null; // the coverage that a calibrated model guarantees; the slider then sets it
  let hasExamples = false;
  let pending = new AbortController();

  async function update() {
    const request = cancelPending();
    const given = restriction();
    if (!state.text.trim()) return clear();
    byId("answer").setAttribute("aria-busy", "true");
    try {
      const body = { text: state.text, siblings: SIBLINGS, decoder: "leaf", ...given, ...decoder.fields() };
      const responses = [post("explain", body, request.signal)];
      if (state.node !== null) responses.push(post("explain", { ...body, node: state.node }, request.signal));
      const previous = shown?.node;
      [predicted, shown = predicted] = await Promise.all(responses);
      explainedText = body.text;
      explained = given;
      show(shown.node !== previous);
    } catch (error) {
      if (request.signal.aborted) return;
      if (state.node === null || !(error.status >= 400 && error.status < 500)) return fail(error);
      openBranch(null, 0); // the link has a node that this tree does not have
    } finally {
      if (!request.signal.aborted) byId("answer").setAttribute("aria-busy", "false");
    }
  }

  /** The fields of a request that restrict the classes. */
  function restriction() {
    const fields = sides.map(({ id }) => [id, parseNodes(state[id], "\n")]);
    return Object.fromEntries(fields.filter(([, names]) => names));
  }

  /** Cancels pending requests, whose responses would be outdated. */
  function cancelPending() {
    pending.abort();
    pending = new AbortController();
    return pending;
  }

  const updateSoon = debounce(update, 250);
  const requestStop = debounce(async () => {
    const { signal } = pending;
    const wanted = minimum();
    try {
      const found = await post("explain", { text: explainedText, words: false, ...explained, ...rule() }, signal);
      if (signal.aborted || wanted !== minimum() || state.decoder) return;
      const listed = found.nodes.find((node) => node.node === found.node);
      stop = { ...found, classes: listed?.classes };
      showStop();
    } catch {
      // keep the result that the page has computed
    }
  }, 200);

  /** The fields of a request for the position of the slider. */
  function rule() {
    if (!coverage()) return { decoder: "threshold", tau: state.tau };
    const [possible, tau] = nearestCoverage(calibrated, minimum());
    return calibrated.guaranteed ? { coverage: possible } : { decoder: "climb", tau };
  }

  function show(fresh) {
    reveal(true);
    byId("placeholder").hidden = true;
    byId("problem").hidden = true;
    byId("branch").hidden = predicted.nodes.some((node) => node.node === shown.node && node.on_path);
    byId("branch-name").textContent = shown.path.join(" › ");
    const label = predicted.path.join(" › ") || "No prediction";
    const [name, parents] = [predicted.path.at(-1) ?? label, predicted.path.slice(0, -1)];
    const above = parents.flatMap((parent) => [el("bdi", {}, parent), " › "]);
    byId("label").replaceChildren(el("span", { class: "above" }, ...above), el("bdi", {}, name));
    byId("label").title = label;
    byId("label").parentElement.classList.toggle("long", label.length > 48);
    const confidence = predicted.node ? describeConfidence(predicted.probability) : "The decoder stops at the root.";
    const number = predicted.node ? percent(predicted.probability) : "";
    byId("probability").textContent = number;
    byId("confidence").textContent = confidence;
    byId("announcement").textContent = [label, number].filter(Boolean).join(", ") + `. ${confidence}`;
    byId("gauge").style.setProperty("--share", String(predicted.probability));
    findStop();
    drawSteps();
    tree.show(shown.nodes, marks(), fresh);
    showWords();
  }

  function findStop() {
    requestStop.cancel();
    requestSet.cancel();
    byId("set").textContent = "";
    if (state.decoder) {
      stop = predicted;
    } else if (coverage()) {
      if (calibrated.guaranteed) requestSet();
      const node = lowestAbove(predicted.nodes, nearestCoverage(calibrated, minimum())[1]);
      stop = { ...node, path: pathTo(node) };
      if (node.children) requestStop(); // the service knows why the prediction stops at a group
    } else {
      const { node, isExact } = deepestAbove(predicted.nodes, state.tau);
      stop = { ...node, path: pathTo(node) };
      if (!isExact || node.children) requestStop();
    }
    showStop();
  }

  const requestSet = debounce(async () => {
    const { signal } = pending;
    const [wanted, most, inBranches] = [minimum(), Number(byId("set-nodes").value), byId("branches").checked];
    const [possible] = nearestCoverage(calibrated, wanted);
    try {
      const groups = inBranches ? { groups: "branch" } : {};
      const body = { text: explainedText, coverage: possible, max_nodes: most, top_k: 0, ...groups };
      const found = await post("predict", body, signal);
      if (signal.aborted || wanted !== minimum() || !coverage()) return;
      byId("set").textContent = describeSet(found.predictions[0].set, most, inBranches);
    } catch (error) {
      if (!signal.aborted) byId("set").textContent = error.message; // too few held-out texts in a branch
    }
  }, 200);

  function pathTo(node) {
    const listed = new Map(predicted.nodes.map((item) => [item.node, item]));
    const path = [];
    for (let item = node; item.parent !== null; item = listed.get(item.parent)) path.unshift(item.name);
    return path;
  }

  function showStop() {
    showTau();
    const isSlider = predicted && !state.decoder;
    byId("stop").textContent = isSlider ? describeStop(stop, predicted, minimum(), coverage() !== null) : "";
    byId("reason").textContent = stop?.reason ?? "";
    if (predicted) tree.mark(marks());
  }

  /** The coverage that the slider sets; restricted predictions and those of another decoder have none. */
  function coverage() {
    return state.decoder || Object.keys(restriction()).length ? null : calibrated;
  }

  /** The number that the slider sets: a probability, or a coverage. */
  function minimum() {
    return coverage() && state.tau === TAU ? nearestCoverage(calibrated, calibrated.target ?? COVERAGE)[0] : state.tau;
  }

  function showTau() {
    slider.value = String(Math.round(minimum() * 100));
    const kind = calibrated?.guaranteed ? "Guaranteed" : "Estimated";
    byId("tau-name").textContent = coverage() ? `${kind} coverage: ` : "Minimum probability: above ";
    byId("slider").hidden = state.decoder !== "";
    byId("sets").hidden = !coverage()?.guaranteed;
    byId("guarantee").textContent = coverage() ? describeGuarantee(calibrated, minimum()) : "";
    byId("tau-value").textContent = percent(minimum());
    slider.setAttribute("aria-valuetext", percent(minimum()));
  }

  const marks = () => ({ selected: shown.steps[stepIndex()]?.node ?? 0, stop: stop.node });

  /** The index of the selected step; by default the last step to the node that is shown. */
  function stepIndex() {
    const step = state.step || shown.stopped_at || 1;
    return Math.min(step, shown.steps.length) - 1;
  }

  function drawSteps() {
    const selected = stepIndex();
    const choices = shown.steps.map((step, index) => {
      const choice = el("input", { type: "radio", name: "step", value: index + 1, change: () => setStep(index + 1) });
      choice.checked = index === selected;
      const name = el("bdi", { title: step.name }, step.name);
      const range = step.uncertainty ? [" ", el("small", { title: describeUncertainty(step) }, points(step.uncertainty.std))] : [];
      return el("label", {}, choice, el("span", {}, name, " ", el("b", {}, percent(step.probability)), ...range));
    });
    steps.replaceChildren(...choices);
  }

  function showWords() {
    const index = stepIndex();
    const step = shown.steps[index];
    const sentences = step ? [describeStep(step, shown.steps[index - 1] ?? null), describeUncertainty(step)] : [];
    byId("step-text").textContent = sentences.filter(Boolean).join(" ");
    const hasWords = shown.words_method !== null && step?.words.length;
    byId("legend").hidden = !hasWords;
    const matters = hasWords && step.parts.length; // otherwise all contributions are negligible
    words.replaceChildren(...(matters ? highlightWords(explainedText, shown.tokens, step.words) : [explainedText]));
    const summary = hasWords ? wordSummary(step) : "This model does not support word contributions.";
    byId("words-summary").textContent = summary;
  }

  function wordSummary(step) {
    if (step.conditional === 1) return `${isolate(step.name)} is the only child at this step.`;
    return summarizeWords(step.parts, isolate(step.name));
  }

  function setStep(step) {
    state.step = step;
    const choice = steps.querySelectorAll("input")[step - 1];
    if (choice) choice.checked = true;
    tree.mark(marks());
    showWords();
    changed({ ...state }, true);
  }

  function select(node) {
    const index = shown.steps.findIndex((step) => step.node === node.node);
    if (index >= 0) return setStep(index + 1);
    if (node.node === 0) return undefined;
    return openBranch(predicted.steps.some((step) => step.node === node.node) ? null : node.node, node.depth);
  }

  /** Shows the branch of another node, or with null the path of the prediction. */
  function openBranch(node, step) {
    state.node = node;
    state.step = step;
    changed({ ...state }, true);
    return update();
  }

  function clear() {
    predicted = shown = stop = null;
    byId("announcement").textContent = "";
    reveal(false);
    byId("placeholder").hidden = false;
    byId("problem").hidden = true;
    byId("answer").setAttribute("aria-busy", "false");
  }

  function fail(error) {
    clear();
    byId("placeholder").hidden = true;
    byId("problem").hidden = false;
    byId("problem-message").textContent = error.message;
  }

  /** Shows or hides the parts that need a prediction. */
  function reveal(isVisible) {
    for (const part of document.querySelectorAll(".needs-result")) part.hidden = !isVisible;
  }

  /** Offers the examples on an empty page. */
  function showExamples() {
    byId("examples").hidden = !hasExamples || state.text !== "";
  }

  function setText(value) {
    Object.assign(state, { text: value, step: 0, node: null });
    showExamples();
    changed({ ...state }, false);
  }

  function setDecoder() {
    Object.assign(state, decoder.state, { step: 0, node: null });
    changed({ ...state }, true);
    update();
  }

  for (const control of ["set-nodes", "branches"].map(byId)) {
    control.addEventListener("change", () => predicted && findStop());
  }
  for (const side of sides) {
    side.addEventListener("input", () => {
      Object.assign(state, { [side.id]: side.value, step: 0, node: null });
      changed({ ...state }, false);
      updateSoon();
    });
  }
  text.addEventListener("input", () => {
    setText(text.value);
    updateSoon();
  });
  slider.addEventListener("input", () => {
    state.tau = Number(slider.value) / 100;
    if (predicted) findStop();
    else showStop();
    changed({ ...state }, false);
  });
  byId("back").addEventListener("click", () => {
    openBranch(null, 0);
    byId("tree-title").focus();
  });
  byId("retry").addEventListener("click", update);
  byId("clear").addEventListener("click", () => {
    text.value = "";
    setText("");
    updateSoon.cancel();
    update();
    text.focus();
  });

  return {
    /** Shows a state, for example of a link. */
    open(newState) {
      const same = ["node", "within", "without", "decoder", "options"].every((name) => newState[name] === state[name]);
      const isSame = predicted && newState.text === explainedText && same;
      Object.assign(state, newState);
      text.value = state.text;
      showExamples();
      for (const side of sides) side.value = state[side.id];
      if (state.within || state.without) byId("restriction").open = true;
      decoder.state = state;
      if (state.decoder) byId("decoding").open = true;
      showTau();
      updateSoon.cancel();
      if (!isSame) update();
      else show(false);
    },
    /** Sets the text as if the user had typed it. */
    setText(value) {
      text.value = value;
      setText(value);
      updateSoon.cancel();
      update();
    },
    /** Sets the maximum length of a text and the examples. */
    setModel(model) {
      const { limits, examples, coverage: given } = model;
      decoder.setModel(model);
      if (state.decoder) {
        decoder.state = state; // of a link
        Object.assign(state, decoder.state);
        update();
      }
      calibrated = given?.thresholds.length ? given : null;
      if (calibrated) {
        const possible = calibrated.thresholds.map(([each]) => Math.round(each * 100));
        slider.min = String(possible[0] + 1); // the default of a link, one half, selects the default coverage
        slider.max = String(possible.at(-1));
        byId("in-branches").hidden = calibrated.most_in_branches === null;
        if (predicted) findStop();
      }
      showTau();
      text.maxLength = limits.max_characters;
      hasExamples = examples.length > 0;
      showExamples();
      const attributes = { type: "button", class: "chip" };
      const chips = examples.map((text) => el("button", { ...attributes, click: () => this.setText(text) }, text));
      byId("example-list").replaceChildren(...chips);
    },
  };
}
