/** The tree of one explanation as an SVG that supports mouse, touch and keyboard. */

import { count, percent, plural, svg } from "./dom.js";
import { BOX_HEIGHT, buildTree, inOrder, layOut } from "./layout.js";

const PAD = 10;
const MAX_MEASURED = 200; // characters
const FLAG_WIDTH = 14;
const canvas = document.createElement("canvas").getContext("2d");

/**
 * Creates the tree inside an SVG element.
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
  const unfolded = new Set();

  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (now === width || now === 0) return; // 0: the element is hidden
    width = now;
    if (nodes) draw(false);
  }).observe(picture.parentElement);

  picture.addEventListener("keydown", moveFocus);

  function draw(fresh) {
    const focused = picture.contains(document.activeElement);
    const root = buildTree(nodes, unfolded);
    order = inOrder(root);
    const levels = Math.max(...nodes.map((node) => node.depth));
    const longest = Math.max(...nodes.map((node) => textWidth(node.name, `14px ${family()}`))) + 2 * PAD + FLAG_WIDTH + 40;
    const { hasColumns, height, links } = layOut(root, width, longest);
    shapes.clear();
    picture.setAttribute("width", String(width));
    picture.setAttribute("height", String(height));
    picture.setAttribute("class", `tree ${hasColumns ? "columns" : "outline"}${fresh ? " fresh" : ""}`);
    const lines = svg("g", { "aria-hidden": "true", class: "links" });
    // draw the links of the path last, on top of the others
    for (const { child, thick, d } of links.toSorted((a, b) => Number(isOnPath(a.child)) - Number(isOnPath(b.child)))) {
      const kind = `link${isOnPath(child) ? " lit" : ""}`;
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
    const numberWidth = item.parent ? textWidth(number, font) + 8 : 0;
    const maxWidth = item.width - 2 * PAD - numberWidth - (more ? 0 : FLAG_WIDTH);
    const name = more ? `${count(item.count)} ${item.isFolded ? "below 1%" : "more"}` : item.parent ? node.name : "root";
    const flagTransform = `translate(${item.width - PAD - numberWidth - 4} 21)`;
    const shape = svg(
      "g",
      {
        class: `box${isOnPath(item) ? " lit" : ""}${more ? " more" : ""}`,
        role: "treeitem",
        tabindex: "-1",
        transform: `translate(${item.x} ${item.y})`,
        "aria-label": ariaLabel(item),
        "aria-level": item.depth + 1,
        "aria-posinset": item.parent ? item.parent.children.indexOf(item) + 1 : 1,
        "aria-setsize": item.parent ? item.parent.children.length : 1,
        "aria-expanded": more || node.children === 0 ? null : String(item.children.length > 0),
        "data-node": more ? null : node.node,
        click: () => choose(item),
      },
      svg("title", {}, `${name} · ${number}${more ? "" : ` · ${percent(node.conditional)} given its parent`}`),
      svg("rect", { class: "back", width: item.width, height: BOX_HEIGHT, rx: 8 }),
      svg("text", { class: "name", x: PAD, y: 20 }, truncate(name, maxWidth, font)),
      svg("path", { class: "flag", d: "M0 0V-12l8 3l-8 3", transform: flagTransform }),
    );
    const bar = (item.width - 2 * PAD) * share;
    if (bar >= 1) shape.append(svg("rect", { class: "bar", y: BOX_HEIGHT - 6, x: PAD, width: bar, height: 2.5, rx: 1.25 }));
    if (item.parent) shape.append(svg("text", { class: "number", x: item.width - PAD, y: 20 }, number));
    shapes.set(item.key, shape);
    return shape;
  }

  function mark({ selected, stop }) {
    marks = { selected, stop };
    const last = nodes.find((node) => node.node === stop);
    for (const item of order) {
      const shape = shapes.get(item.key);
      const isSelected = !item.more && item.node.node === selected;
      const isStop = !item.more && item.node.node === stop;
      shape.classList.toggle("stop", isStop);
      shape.classList.toggle("beyond", isOnPath(item) && last !== undefined && item.depth > last.depth);
      shape.setAttribute("aria-selected", String(isSelected));
      shape.setAttribute("tabindex", isSelected ? "0" : "-1");
      shape.setAttribute("aria-label", ariaLabel(item) + (isStop ? ". The prediction stops here" : ""));
    }
    if (!current()) shapes.get(order[0].key).setAttribute("tabindex", "0");
  }

  function current() {
    return picture.querySelector('[role="treeitem"][tabindex="0"]');
  }

  function choose(item) {
    if (!item.more) onSelect(item.node);
    else if (item.isFolded) unfold(item.node.node);
    else onMore(item.node);
  }

  function unfold(parent) {
    unfolded.add(parent);
    draw(false);
    current()?.focus({ preventScroll: true });
  }

  function moveFocus(event) {
    const index = order.findIndex((item) => shapes.get(item.key) === document.activeElement);
    if (index < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    const item = order[index];
    const action = {
      ArrowDown: () => order[index + 1],
      ArrowUp: () => order[index - 1],
      ArrowLeft: () => item.parent,
      ArrowRight: () => item.children[0] ?? (item.node.children && !item.more ? choose(item) : null),
      Home: () => order[0],
      End: () => order.at(-1),
      Enter: () => choose(item),
      " ": () => choose(item),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    const next = action();
    if (!next) return;
    for (const shape of shapes.values()) shape.setAttribute("tabindex", "-1");
    const shape = shapes.get(next.key);
    shape.setAttribute("tabindex", "0");
    shape.focus();
  }

  return {
    /** Shows the nodes of an explanation; `fresh` animates the path. */
    show(newNodes, newMarks, fresh) {
      if (fresh) unfolded.clear();
      nodes = newNodes;
      marks = newMarks;
      width = Math.floor(picture.parentElement.clientWidth) || width;
      if (width) draw(fresh);
    },
    /** Marks the selected step and the node where the prediction stops. */
    mark(newMarks) {
      marks = newMarks;
      if (order.length) mark(newMarks);
    },
  };
}

const isOnPath = (item) => !item.more && item.node.on_path;

function ariaLabel(item) {
  const { node } = item;
  const number = percent(item.probability);
  if (item.more) {
    const action = item.isFolded ? "Shows them" : "Opens the list of classes";
    return `${plural(item.count, "more branch", "more branches")}, ${number} together. ${action}`;
  }
  if (!item.parent) return `Root, ${plural(node.classes, "class", "classes")}`;
  const inside = node.children ? `, ${plural(node.classes, "class", "classes")} inside` : "";
  return `${node.name}, ${number}${node.on_path ? ", on the path" : ""}${inside}`;
}

/** The width of a text in pixels; of a very long text only its beginning. */
function textWidth(text, font) {
  canvas.font = font;
  return canvas.measureText(text.slice(0, MAX_MEASURED)).width;
}

/** Truncates a text to a width, by binary search. */
function truncate(text, maxWidth, font) {
  if (text.length <= MAX_MEASURED && textWidth(text, font) <= maxWidth) return text;
  const characters = Array.from(text.slice(0, MAX_MEASURED));
  let [fits, fails] = [0, characters.length];
  while (fits + 1 < fails) {
    const middle = (fits + fails) >> 1;
    if (textWidth(`${characters.slice(0, middle).join("").trimEnd()}…`, font) <= maxWidth) fits = middle;
    else fails = middle;
  }
  return `${characters.slice(0, fits).join("").trimEnd()}…`;
}
