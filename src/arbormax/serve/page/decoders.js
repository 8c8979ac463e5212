/** Choosing a decoder and its options, for one text and for a table. */

import { parseCosts } from "./costs.js";
import { decodeText } from "./csv.js";
import { byId, count, el } from "./dom.js";

/**
 * A select with the decoders of the service, and below it the options of the selected one.
 * @param {string} id  of the select; its options are in the element `${id}-options`
 * @param {{changed: () => void, usual?: string}} how  `usual`: the name of a first choice without a decoder
 */
export function createDecoder(id, { changed, usual }) {
  const [select, options] = [byId(id), byId(`${id}-options`)];
  const costs = { text: "", area: null };
  let model = { decoders: [], classes: 0, limits: { max_cost_classes: 0 } };

  const chosen = () => [...model.decoders, COVERAGE].find(({ name }) => name === select.value);
  const inputs = () => [...options.querySelectorAll("[name]")];
  const given = () => inputs().filter((input) => !input.parentElement.hidden && input.value !== "" && !isUsual(input));
  const value = (name) => inputs().find((input) => input.name === name)?.value;

  /** Shows an input for each option of the selected decoder, with these values. */
  function show(saved = new URLSearchParams()) {
    const found = chosen();
    const fields = Object.entries(found?.options ?? {}).map(([name, usual]) => {
      const start = saved.get(name) ?? usual ?? "";
      const values = found.choices[name] && Object.keys(found.choices[name]);
      const input = values ? choiceInput(name, values, start) : plainInput(name, usual, start);
      input.addEventListener("change", update);
      return el("label", {}, `${name} `, input);
    });
    costs.area = found?.costs ? costField() : null;
    options.replaceChildren(...fields, ...(costs.area ? [costs.area] : []));
    hideOthers();
  }

  /** Hides the options that the selected values of others do not take. */
  function hideOthers() {
    const choices = Object.entries(chosen()?.choices ?? {});
    const takes = (option) => choices.every(([name, values]) => {
      const isOption = Object.values(values).some((names) => names.includes(option));
      return !isOption || values[value(name)].includes(option);
    });
    for (const input of inputs()) input.parentElement.hidden = !takes(input.name);
    if (costs.area) costs.area.hidden = !takes("costs");
  }

  function update() {
    hideOthers();
    changed();
  }

  function costField() {
    const most = model.limits.max_cost_classes;
    if (model.classes > most) {
      return el("p", { class: "small muted" }, `This service takes costs of at most ${count(most)} classes.`);
    }
    const plain = { rows: 4, spellcheck: "false", autocomplete: "off", dir: "auto" };
    const area = el("textarea", { ...plain, placeholder: PLACEHOLDER });
    area.value = costs.text;
    const take = (text) => {
      costs.text = area.value = text;
      changed();
    };
    area.addEventListener("change", () => take(area.value));
    const choose = async ({ target }) => target.files[0] && take(decodeText(await target.files[0].arrayBuffer()));
    const accept = ".csv,.tsv,.txt,text/csv,text/plain";
    const file = el("input", { type: "file", accept, "aria-label": "File with the costs", change: choose });
    const help = "CSV with the classes in the first row (true) and in the first column (predicted). Without costs, the "
      + "cost is the distance in the tree. A copied link does not contain them.";
    return el("div", { class: "costs" }, el("label", {}, "Costs ", area), file, el("p", { class: "small muted" }, help));
  }

  select.addEventListener("change", () => {
    show();
    changed();
  });

  return {
    /** Sets the decoders of the service. */
    setModel(given) {
      model = given;
      const all = [...model.decoders, ...(!usual && model.coverage?.guaranteed ? [COVERAGE] : [])];
      const choices = all.map(({ name, summary }) => el("option", { value: name }, `${name}: ${summary}`));
      const before = select.value;
      select.replaceChildren(...(usual ? [el("option", { value: "" }, usual)] : []), ...choices);
      if (before) select.value = before;
      show();
    },
    /** The name of the selected decoder, empty if none is, and its options as a query string. */
    get state() {
      const options = new URLSearchParams(given().map(({ name, value }) => [name, value]));
      return { decoder: select.value, options: String(options) };
    },
    /** Selects a decoder, for example that of a link; one that the service does not have is ignored. */
    set state({ decoder, options: values }) {
      const known = [...select.options].some((option) => option.value === decoder);
      select.value = known ? decoder : select.options[0]?.value ?? "";
      show(new URLSearchParams(values));
    },
    /** The fields of a request; throws an error for costs that are no table. */
    fields() {
      if (!select.value) return {};
      const values = given().map(({ name, type, value }) => [name, type === "number" ? Number(value) : value]);
      if (select.value === COVERAGE.name) return { ...COVERAGE.required, ...Object.fromEntries(values) };
      const request = { decoder: select.value, ...Object.fromEntries(values) };
      const isShown = costs.area && !costs.area.hidden && model.classes <= model.limits.max_cost_classes;
      return isShown && costs.text.trim() ? { ...request, costs: parseCosts(costs.text) } : request;
    },
    /** Whether the user can change the decoder. */
    set disabled(isDisabled) {
      const controls = options.querySelectorAll("input, select, textarea");
      for (const control of [select, ...controls]) control.disabled = isDisabled;
    },
  };

  function isUsual({ name, value }) {
    return String(chosen().options[name] ?? "") === value;
  }
}

function choiceInput(name, values, start) {
  const choices = values.map((value) => el("option", { value, selected: value === start }, value || "none"));
  return el("select", { name }, ...choices);
}

/** A field for a number, or for a text if the usual value is one. */
function plainInput(name, usual, start) {
  return el("input", { name, value: start, ...(typeof usual === "string" ? {} : { type: "number", step: "any" }) });
}

/** The guaranteed coverage as if it were a decoder, for tables; the text view has a slider for it. */
const COVERAGE = {
  name: "coverage",
  summary: "the lowest node with a guaranteed coverage, and a set of nodes",
  options: { coverage: 0.9, max_nodes: 3, groups: "" },
  required: { coverage: 0.9, max_nodes: 3 },
  choices: { groups: { "": [], branch: [] } },
  costs: false,
};
const PLACEHOLDER = "predicted,cat,dog\ncat,0,1\ndog,5,0";
