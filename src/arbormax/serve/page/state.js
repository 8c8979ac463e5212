/** The state of the page in the URL fragment, which browsers do not send to servers, so that no log contains a text. */

/**
 * @typedef {object} State
 * @property {"text"|"table"|"classes"|"help"} view
 * @property {string} text
 * @property {number} tau    minimum probability, within the range of the slider
 * @property {number} step   number of the step whose words are shown, from 1; 0 selects the default
 * @property {string} within   groups that the classes are restricted to, one on each line
 * @property {string} without  groups that are excluded, one on each line
 * @property {string} decoder  of the prediction; empty for the most probable class
 * @property {string} options  of the decoder, as a query string
 * @property {number|null} node  the node of another branch, or the node in the view of classes
 */

const VIEWS = ["text", "table", "classes", "help"];
export const TAU = 0.5;
const [MIN_TAU, MAX_TAU] = [0.05, 0.99];

/**
 * Parses a fragment; invalid values are ignored.
 * @param {string} fragment
 * @returns {State}
 */
export function read(fragment) {
  const parameters = new URLSearchParams(fragment.replace(/^#/, ""));
  const tau = Number(parameters.get("tau") ?? TAU);
  const view = parameters.get("view") ?? "text";
  return {
    view: /** @type {State["view"]} */ (VIEWS.includes(view) ? view : "text"),
    text: parameters.get("text") ?? "",
    tau: tau >= MIN_TAU && tau <= MAX_TAU ? tau : TAU,
    step: parseInteger(parameters.get("step")) ?? 0,
    node: parseInteger(parameters.get("node")),
    within: parameters.get("within") ?? "",
    without: parameters.get("without") ?? "",
    decoder: parameters.get("decoder") ?? "",
    options: parameters.get("options") ?? "",
  };
}

/**
 * The fragment of a state, without default values.
 * @param {Partial<State>} state
 */
export function write(state) {
  const { view = "text", text = "", tau = TAU, step = 0, node = null } = state;
  const { within = "", without = "", decoder = "", options = "" } = state;
  const parts = new URLSearchParams();
  if (view !== "text") parts.set("view", view);
  if (view === "text" && text) {
    parts.set("text", text);
    if (tau !== TAU) parts.set("tau", String(tau));
    if (step) parts.set("step", String(step));
    if (within.trim()) parts.set("within", within);
    if (without.trim()) parts.set("without", without);
    if (decoder) parts.set("decoder", decoder);
    if (decoder && options) parts.set("options", options);
  }
  if (node !== null && (view === "classes" || text)) parts.set("node", String(node));
  return `#${parts}`;
}

const parseInteger = (value) => (value !== null && /^\d{1,9}$/.test(value) ? Number(value) : null);
