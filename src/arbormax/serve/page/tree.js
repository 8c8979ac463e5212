/** The tree of one explanation as a picture that can be walked by mouse, finger and keyboard. */

import { count, percent, plural, svg } from "./dom.js";
import { BOX, grow, inOrder, place } from "./layout.js";

const PAD = 10;
const LONGEST = 200; // characters that are measured
const FLAG = 14; // room for the flag before the number
const canvas = document.createElement("canvas").getContext("2d");

/**
 * The tree inside an svg element.
 * @param {SVGSVGElement} picture
 * @param {{onSelect: (node: any) => void, onMore: (parent: any) => void}} events
 */
export function createTree(picture, { onSelect, onMore }) {
  /** @type {import("./layout.js").Item[]} */
  let order = [];
  let nodes = null;
  let marks = { selected: 0, stop: 0 };
  let width = 0;
  const shapes = new Map();

  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width || now === 0) return; // nothing is as wide as that: it is hidden
    width = now;
    if (nodes) draw(false);
  }).observe(picture.parentElement);

  picture.addEventListener("keydown", walk);

  function draw(fresh) {
    const focused = picture.contains(document.activeElement);
    const root = grow(nodes);
    order = inOrder(root);
    const levels = Math.max(...nodes.map((node) => node.depth));
    const longest = Math.max(...nodes.map((node) => breadth(node.name, `14px ${family()}`))) + 2 * PAD + FLAG + 40;
    const { wide, height, links } = place(root, width, longest);
    shapes.clear();
    picture.setAttribute("width", String(width));
    picture.setAttribute("height", String(height));
    picture.setAttribute("class", `tree ${wide ? "columns" : "outline"}${fresh ? " fresh" : ""}`);
    const lines = svg("g", { "aria-hidden": "true", class: "links" });
    // what is on the path is drawn last, over the rest
    for (const { child, thick, d } of links.toSorted((a, b) => Number(lit(a.child)) - Number(lit(b.child)))) {
      const kind = `link${lit(child) ? " lit" : ""}`;
      const line = svg("path", { d, "stroke-width": thick.toFixed(1), pathLength: 1, class: kind });
      line.style.setProperty("--when", ((child.depth - 1) / levels).toFixed(2));
      lines.append(line);
    }
    picture.replaceChildren(lines, ...order.map(box));
    mark(marks);
    if (focused) current()?.focus({ preventScroll: true });
  }

  const family = () => getComputedStyle(picture).fontFamily;

  function box(item) {
    const { node, more } = item;
    const share = Math.max(0, Math.min(1, item.probability));
    const number = percent(item.probability);
    const font = `${item.parent && !more && node.on_path ? "600 " : ""}14px ${family()}`;
    const beside = item.parent ? breadth(number, font) + 8 : 0;
    const room = item.width - 2 * PAD - beside - (more ? 0 : FLAG);
    const whole = more ? `${count(node.hidden)} more` : item.parent ? node.name : "start";
    const flagged = `translate(${item.width - PAD - beside - 4} 21)`;
    const shape = svg(
      "g",
      {
        class: `box${lit(item) ? " lit" : ""}${more ? " more" : ""}`,
        role: "treeitem",
        tabindex: "-1",
        transform: `translate(${item.x} ${item.y})`,
        "aria-label": spoken(item),
        "aria-level": item.depth + 1,
        "aria-posinset": item.parent ? item.parent.children.indexOf(item) + 1 : 1,
        "aria-setsize": item.parent ? item.parent.children.length : 1,
        "aria-expanded": more || node.children === 0 ? null : String(item.children.length > 0),
        "data-node": more ? null : node.node,
        click: () => choose(item),
      },
      svg("title", {}, `${whole} · ${number}${more ? "" : ` · ${percent(node.conditional)} at this fork`}`),
      svg("rect", { class: "back", width: item.width, height: BOX, rx: 8 }),
      svg("text", { class: "name", x: PAD, y: 20 }, cut(whole, room, font)),
      svg("path", { class: "flag", d: "M0 0V-12l8 3l-8 3", transform: flagged }),
    );
    const bar = (item.width - 2 * PAD) * share;
    if (bar >= 1) shape.append(svg("rect", { class: "bar", y: BOX - 6, x: PAD, width: bar, height: 2.5, rx: 1.25 }));
    if (item.parent) shape.append(svg("text", { class: "number", x: item.width - PAD, y: 20 }, number));
    shapes.set(item.key, shape);
    return shape;
  }

  function mark({ selected, stop }) {
    marks = { selected, stop };
    const last = nodes.find((node) => node.node === stop);
    for (const item of order) {
      const shape = shapes.get(item.key);
      const chosen = !item.more && item.node.node === selected;
      const stops = !item.more && item.node.node === stop;
      shape.classList.toggle("stop", stops);
      shape.classList.toggle("beyond", lit(item) && last !== undefined && item.depth > last.depth);
      shape.setAttribute("aria-selected", String(chosen));
      shape.setAttribute("tabindex", chosen ? "0" : "-1");
      shape.setAttribute("aria-label", spoken(item) + (stops ? ". The model stops here" : ""));
    }
    if (!current()) shapes.get(order[0].key).setAttribute("tabindex", "0");
  }

  function current() {
    return picture.querySelector('[role="treeitem"][tabindex="0"]');
  }

  function choose(item) {
    if (item.more) onMore(item.node);
    else onSelect(item.node);
  }

  function walk(event) {
    const at = order.findIndex((item) => shapes.get(item.key) === document.activeElement);
    if (at < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const item = order[at];
    const goal = {
      ArrowDown: () => order[at + 1],
      ArrowUp: () => order[at - 1],
      ArrowLeft: () => item.parent,
      ArrowRight: () => item.children[0] ?? (item.node.children && !item.more ? choose(item) : null),
      Home: () => order[0],
      End: () => order.at(-1),
      Enter: () => choose(item),
      " ": () => choose(item),
    }[event.key];
    if (!goal) return;
    event.preventDefault();
    const next = goal();
    if (!next) return;
    for (const shape of shapes.values()) shape.setAttribute("tabindex", "-1");
    const shape = shapes.get(next.key);
    shape.setAttribute("tabindex", "0");
    shape.focus();
  }

  return {
    /** Shows an explanation's nodes; `fresh` lets the path light up. */
    show(given, marked, fresh) {
      nodes = given;
      marks = marked;
      width = Math.floor(picture.parentElement.clientWidth) || width;
      if (width) draw(fresh);
    },
    /** Marks the step that is looked at and the node where the model stops. */
    mark(given) {
      marks = given;
      if (order.length) mark(given);
    },
  };
}

const lit = (item) => !item.more && item.node.on_path;

function spoken(item) {
  const { node } = item;
  const number = percent(item.probability);
  if (item.more) return `${plural(node.hidden, "more branch", "more branches")}, ${number} together. Opens the list`;
  if (!item.parent) return `Start, ${plural(node.classes, "class", "classes")}`;
  const inside = node.children ? `, ${plural(node.classes, "class", "classes")} inside` : "";
  return `${node.name}, ${number}${node.on_path ? ", on the path" : ""}${inside}`;
}

/** How wide a text is, in pixels; of very long ones the beginning. */
function breadth(text, font) {
  canvas.font = font;
  return canvas.measureText(text.slice(0, LONGEST)).width;
}

/** Text cut at the end so that it fits, by halving. */
function cut(text, room, font) {
  if (text.length <= LONGEST && breadth(text, font) <= room) return text;
  const letters = Array.from(text.slice(0, LONGEST));
  let [fits, fails] = [0, letters.length];
  while (fits + 1 < fails) {
    const middle = (fits + fails) >> 1;
    if (breadth(`${letters.slice(0, middle).join("").trimEnd()}…`, font) <= room) fits = middle;
    else fails = middle;
  }
  return `${letters.slice(0, fits).join("").trimEnd()}…`;
}
