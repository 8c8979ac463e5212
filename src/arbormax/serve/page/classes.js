/** All classes: one level of the tree at a time, and a search over all of it. */

import { get } from "./api.js";
import { byId, count, debounce, el, named, plural } from "./dom.js";
import { write } from "./state.js";
import { createList } from "./virtual.js";

const FIRST = 200;
const MATCHES = 50;

/** The view; `open(node)` shows what is below a node. */
export function createClasses() {
  const [box, crumbs, search, told] = ["classes-list", "crumbs", "search", "classes-told"].map(byId);
  let list = null;
  let asked = 0;
  let opened = null;

  async function open(node) {
    if (search.value.trim()) return find();
    const mine = ++asked;
    try {
      const found = await get("taxonomy", { node, offset: 0, limit: FIRST });
      if (mine !== asked) return;
      breadcrumbs(found);
      told.textContent = about(found);
      list?.close();
      list = createList(box, {
        total: found.total,
        first: found.children,
        row: entry,
        load: async (offset, limit) => (await get("taxonomy", { node, offset, limit })).children,
      });
      opened = node;
    } catch (error) {
      fail(error, mine);
    }
  }

  async function find() {
    const words = search.value.trim();
    if (!words) return open(opened ?? 0);
    const mine = ++asked;
    try {
      const { matches, total } = await get("taxonomy", { search: words, limit: MATCHES });
      if (mine !== asked) return;
      crumbs.replaceChildren();
      const rest = total > matches.length ? `, the first ${count(matches.length)} shown` : "";
      const some = `${plural(total, "match", "matches")}${rest}.`;
      told.textContent = total ? some : `Nothing is called “${named(words)}”.`;
      list?.close();
      list = createList(box, { total: matches.length, first: matches, row: match, load: async () => [] });
    } catch (error) {
      fail(error, mine);
    }
  }

  function fail(error, mine) {
    if (mine !== asked) return;
    list?.close();
    box.replaceChildren(el("p", { class: "problem" }, error.message));
  }

  function breadcrumbs({ ancestors, node }) {
    const names = [...ancestors, node].map((at, place, all) => {
      const name = at.node === 0 ? "All classes" : at.name;
      if (place === all.length - 1) return el("li", {}, el("span", { "aria-current": "location" }, name));
      return el("li", {}, el("a", { href: write({ view: "classes", node: at.node }) }, name));
    });
    crumbs.replaceChildren(el("ol", {}, ...names));
  }

  function match(found) {
    const link = entry(found);
    link.querySelector(".name").append(el("small", {}, found.path.slice(0, -1).join(" › ")));
    link.addEventListener("click", () => {
      search.value = "";
      if (link.hash === location.hash) open(found.node); // the address stays, so nobody else will
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

function about({ node, total, classes, depth }) {
  if (!total) return `${named(node.name)} is a class: nothing is below it.`;
  const where = node.node ? named(node.name) : `${plural(classes, "class", "classes")} in ${plural(depth, "level")}`;
  return `${where}: ${plural(total, "entry", "entries")} here.`;
}

function entry(node) {
  const only = node.children === 0 || (node.children === undefined && node.classes <= 1);
  const inside = only ? "class" : plural(node.classes, "class", "classes");
  return el(
    "a",
    { class: "entry", href: write({ view: "classes", node: node.node }), title: node.name },
    el("span", { class: "name" }, el("bdi", {}, node.name)),
    el("span", { class: "inside" }, inside),
  );
}
