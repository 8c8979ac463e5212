/** The classes: one level of the tree at a time, and a search over all names. */

import { get } from "./api.js";
import { byId, count, debounce, el, isolate, plural } from "./dom.js";
import { write } from "./state.js";
import { createList } from "./list.js";

const PAGE_SIZE = 200;
const MAX_MATCHES = 50;

/** The view; `open(node)` shows the children of a node. */
export function createClasses() {
  const [box, crumbs, search, status] = ["classes-list", "crumbs", "search", "classes-status"].map(byId);
  let list = null;
  let requests = 0;
  let openNode = null;

  async function open(node) {
    if (search.value.trim()) return find();
    const request = ++requests;
    try {
      const found = await get("taxonomy", { node, offset: 0, limit: PAGE_SIZE });
      if (request !== requests) return;
      breadcrumbs(found);
      status.textContent = describe(found);
      list?.close();
      list = createList(box, {
        total: found.total,
        first: found.children,
        row: entry,
        load: async (offset, limit) => (await get("taxonomy", { node, offset, limit })).children,
      });
      openNode = node;
    } catch (error) {
      fail(error, request);
    }
  }

  async function find() {
    const words = search.value.trim();
    if (!words) return open(openNode ?? 0);
    const request = ++requests;
    try {
      const { matches, total } = await get("taxonomy", { search: words, limit: MAX_MATCHES });
      if (request !== requests) return;
      crumbs.replaceChildren();
      const rest = total > matches.length ? `, the first ${count(matches.length)} are shown` : "";
      const summary = `${plural(total, "match", "matches")}${rest}.`;
      status.textContent = total ? summary : `No name contains “${isolate(words)}”.`;
      list?.close();
      list = createList(box, { total: matches.length, first: matches, row: match, load: async () => [] });
    } catch (error) {
      fail(error, request);
    }
  }

  function fail(error, request) {
    if (request !== requests) return;
    list?.close();
    box.replaceChildren(el("p", { class: "problem" }, error.message));
  }

  function breadcrumbs({ ancestors, node }) {
    const names = [...ancestors, node].map((item, index, all) => {
      const name = item.node === 0 ? "All classes" : item.name;
      if (index === all.length - 1) return el("li", {}, el("span", { "aria-current": "location" }, name));
      return el("li", {}, el("a", { href: write({ view: "classes", node: item.node }) }, name));
    });
    crumbs.replaceChildren(el("ol", {}, ...names));
  }

  function match(found) {
    const link = entry(found);
    link.querySelector(".name").append(el("small", {}, found.path.slice(0, -1).join(" › ")));
    link.addEventListener("click", () => {
      search.value = "";
      if (link.hash === location.hash) open(found.node); // the URL does not change, so there is no hashchange event
    });
    return link;
  }

  search.addEventListener("input", debounce(find, 200));
  search.form.addEventListener("submit", (event) => {
    event.preventDefault();
    find();
  });
  return { open };
}

function describe({ node, total, classes, depth }) {
  if (!total) return `${isolate(node.name)} is a class without children.`;
  const title = node.node ? isolate(node.name) : `${plural(classes, "class", "classes")} in ${plural(depth, "level")}`;
  return `${title}: ${plural(total, "entry", "entries")} at this level.`;
}

function entry(node) {
  const isClass = node.children === 0 || (node.children === undefined && node.classes <= 1);
  const inside = isClass ? "class" : plural(node.classes, "class", "classes");
  return el(
    "a",
    { class: "entry", href: write({ view: "classes", node: node.node }), title: node.name },
    el("span", { class: "name" }, el("bdi", {}, node.name)),
    el("span", { class: "inside" }, inside),
  );
}
