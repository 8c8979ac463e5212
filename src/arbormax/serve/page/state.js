/** What is looked at, kept in the address behind '#': that part never leaves the browser, so no text is in a log. */

/**
 * @typedef {object} State
 * @property {"text"|"table"|"classes"|"help"} view
 * @property {string} text
 * @property {number} tau    how sure the model must be, as far as the slider goes
 * @property {number} step   which step's words are shown, from 1; 0 leaves it to the page
 * @property {number|null} node  another node whose fork is looked at, or the one that is browsed
 */

const VIEWS = ["text", "table", "classes", "help"];
export const TAU = 0.5;
const [LEAST, MOST] = [0.05, 0.99];

/**
 * The state that a fragment stands for; what cannot be read is as if it were not there.
 * @param {string} fragment
 * @returns {State}
 */
export function read(fragment) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const tau = Number(given.get("tau") ?? TAU);
  const view = given.get("view") ?? "text";
  return {
    view: /** @type {State["view"]} */ (VIEWS.includes(view) ? view : "text"),
    text: given.get("text") ?? "",
    tau: tau >= LEAST && tau <= MOST ? tau : TAU,
    step: whole(given.get("step")) ?? 0,
    node: whole(given.get("node")),
  };
}

/**
 * The fragment of a state, without what is as usual.
 * @param {Partial<State>} state
 */
export function write({ view = "text", text = "", tau = TAU, step = 0, node = null }) {
  const parts = new URLSearchParams();
  if (view !== "text") parts.set("view", view);
  if (view === "text" && text) {
    parts.set("text", text);
    if (tau !== TAU) parts.set("tau", String(tau));
    if (step) parts.set("step", String(step));
  }
  if (node !== null && (view === "classes" || text)) parts.set("node", String(node));
  return `#${parts}`;
}

const whole = (given) => (given !== null && /^\d{1,9}$/.test(given) ? Number(given) : null);
