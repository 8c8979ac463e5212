/** One text: its answer, the tree of its probabilities, where the model would stop, and the words that mattered. */

import { post } from "./api.js";
import { stopAt } from "./decide.js";
import { byId, debounce, el, named, percent } from "./dom.js";
import { confidence, stepping, stopping } from "./say.js";
import { TAU } from "./state.js";
import { createTree } from "./tree.js";
import { marked, sentence } from "./words.js";

const SIBLINGS = 6;

/**
 * The view; `open(state)` shows a state, `changed(state, settled)` hears of every change here.
 * @param {{changed: (state: any, settled: boolean) => void, browse: (node: number) => void}} events
 */
export function createExplain({ changed, browse }) {
  const [text, slider, steps, words] = ["text", "tau", "steps", "words"].map(byId);
  const tree = createTree(byId("tree"), { onSelect: select, onMore: (parent) => browse(parent.node) });
  const state = { view: "text", text: "", tau: TAU, step: 0, node: null };
  let own = null; // the explanation of the model's own answer
  let shown = null; // the same, or that of another branch
  let about = ""; // the text that both explain
  let stop = null;
  let coming = new AbortController();

  async function ask() {
    const mine = renew();
    const given = { text: state.text, siblings: SIBLINGS, decoder: "leaf" };
    if (!given.text.trim()) return clear();
    byId("answer").setAttribute("aria-busy", "true");
    try {
      const asked = [post("explain", given, mine.signal)];
      if (state.node !== null) asked.push(post("explain", { ...given, node: state.node }, mine.signal));
      const before = shown?.node;
      [own, shown = own] = await Promise.all(asked);
      about = given.text;
      show(shown.node !== before);
    } catch (error) {
      if (mine.signal.aborted) return;
      if (state.node === null || error.status < 400 || error.status >= 500) return fail(error);
      look(null, 0); // the link is of a tree that had this node
    } finally {
      if (!mine.signal.aborted) byId("answer").setAttribute("aria-busy", "false");
    }
  }

  /** Older answers are dropped: whatever is still on its way belongs to another question. */
  function renew() {
    coming.abort();
    coming = new AbortController();
    return coming;
  }

  const askSoon = debounce(ask, 250);
  const askStop = debounce(async () => {
    const { signal } = coming;
    const tau = state.tau;
    try {
      const found = await post("explain", { text: about, decoder: "threshold", tau, words: false }, signal);
      if (signal.aborted || tau !== state.tau) return;
      const listed = found.nodes.find((node) => node.node === found.node);
      stop = { ...found, classes: listed?.classes };
      tellStop();
    } catch {
      // the page's own reading stays
    }
  }, 200);

  function show(fresh) {
    reveal(true);
    byId("nothing").hidden = true;
    byId("problem").hidden = true;
    byId("aside").hidden = own.nodes.some((node) => node.node === shown.node && node.on_path);
    byId("aside-name").textContent = shown.path.join(" › ");
    const label = own.path.at(-1) ?? own.label;
    byId("label").textContent = byId("label").title = label;
    byId("label").parentElement.classList.toggle("long", label.length > 32);
    byId("path").textContent = own.path.length > 1 ? `in ${own.path.slice(0, -1).map(named).join(" › ")}` : "";
    byId("path").title = own.path.join(" › ");
    byId("chance").textContent = percent(own.probability);
    byId("confidence").textContent = confidence(own.probability);
    byId("spoken").textContent = `${label}, ${percent(own.probability)}. ${confidence(own.probability)}`;
    byId("gauge").style.setProperty("--share", String(own.probability));
    findStop();
    drawSteps();
    tree.show(shown.nodes, marks(), fresh);
    showWords();
  }

  function findStop() {
    askStop.cancel();
    const { node, sure } = stopAt(own.nodes, state.tau);
    stop = { ...node, path: pathTo(node) };
    if (!sure) askStop();
    tellStop();
  }

  function pathTo(node) {
    const listed = new Map(own.nodes.map((one) => [one.node, one]));
    const path = [];
    for (let at = node; at.parent !== null; at = listed.get(at.parent)) path.unshift(at.name);
    return path;
  }

  function tellStop() {
    tellTau();
    byId("stop").textContent = own ? stopping(stop, own, state.tau) : "";
    if (own) tree.mark(marks());
  }

  function tellTau() {
    byId("tau-told").textContent = percent(state.tau);
    slider.setAttribute("aria-valuetext", percent(state.tau));
  }

  const marks = () => ({ selected: shown.steps[stepAt()]?.node ?? 0, stop: stop.node });

  /** The place of the step that is looked at: the chosen one, else the last that leads to the node shown. */
  function stepAt() {
    const wanted = state.step || shown.stopped_at || 1;
    return Math.min(wanted, shown.steps.length) - 1;
  }

  function drawSteps() {
    const at = stepAt();
    const pills = shown.steps.map((step, place) => {
      const choice = el("input", { type: "radio", name: "step", value: place + 1, change: () => setStep(place + 1) });
      choice.checked = place === at;
      const name = el("bdi", { title: step.name }, step.name);
      return el("label", {}, choice, el("span", {}, name, " ", el("b", {}, percent(step.probability))));
    });
    steps.replaceChildren(...pills);
  }

  function showWords() {
    const at = stepAt();
    const step = shown.steps[at];
    byId("step-told").textContent = step ? stepping(step, shown.steps[at - 1] ?? null) : "";
    const known = shown.words_method !== null && step?.words.length;
    byId("legend").hidden = !known;
    words.replaceChildren(...(known ? marked(about, shown.tokens, step.words) : [about]));
    byId("words-told").textContent = known ? wordsTold(step) : "This model cannot say which words mattered here.";
  }

  function wordsTold(step) {
    if (step.conditional === 1) return `There is no choice at this step: ${named(step.name)} is the only way on.`;
    return sentence(shown.tokens, step.words, named(step.name));
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
    const at = shown.steps.findIndex((step) => step.node === node.node);
    if (at >= 0) return setStep(at + 1);
    if (node.node === 0) return undefined;
    return look(own.steps.some((step) => step.node === node.node) ? null : node.node, node.depth);
  }

  /** Shows the fork of another node, or the model's own path again with null. */
  function look(node, step) {
    state.node = node;
    state.step = step;
    changed({ ...state }, true);
    return ask();
  }

  function clear() {
    own = shown = stop = null;
    byId("spoken").textContent = "";
    reveal(false);
    byId("nothing").hidden = false;
    byId("problem").hidden = true;
    byId("answer").setAttribute("aria-busy", "false");
  }

  function fail(error) {
    clear();
    byId("nothing").hidden = true;
    byId("problem").hidden = false;
    byId("problem-told").textContent = error.message;
  }

  /** The parts that need an answer. */
  function reveal(known) {
    for (const part of document.querySelectorAll(".needs")) part.hidden = !known;
  }

  function setText(given) {
    Object.assign(state, { text: given, step: 0, node: null });
    changed({ ...state }, false);
  }

  text.addEventListener("input", () => {
    setText(text.value);
    askSoon();
  });
  slider.addEventListener("input", () => {
    state.tau = Number(slider.value) / 100;
    if (own) findStop();
    else tellStop();
    changed({ ...state }, false);
  });
  byId("back").addEventListener("click", () => {
    look(null, 0);
    byId("tree-title").focus();
  });
  byId("again").addEventListener("click", ask);
  byId("clear").addEventListener("click", () => {
    text.value = "";
    setText("");
    askSoon.cancel();
    ask();
    text.focus();
  });

  return {
    /** Shows the state of a link. */
    open(given) {
      const same = own && given.text === about && given.node === state.node;
      Object.assign(state, given);
      text.value = state.text;
      slider.value = String(Math.round(state.tau * 100));
      tellTau();
      askSoon.cancel();
      if (!same) ask();
      else show(false);
    },
    /** Takes a text as if it had been typed. */
    take(given) {
      text.value = given;
      setText(given);
      askSoon.cancel();
      ask();
    },
    /** The longest text that the service takes, and examples to click. */
    introduce({ limits, examples }) {
      text.maxLength = limits.max_characters;
      byId("examples").hidden = !examples.length;
      const kind = { type: "button", class: "chip" };
      const chips = examples.map((text) => el("button", { ...kind, click: () => this.take(text) }, text));
      byId("example-list").replaceChildren(...chips);
    },
  };
}
