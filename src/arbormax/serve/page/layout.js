/** Where the nodes of one explanation stand: columns from left to right where they fit, else an indented outline. */

export const BOX = 34;
const PITCH = 44;
const ROW = 40;
const EDGE = 3; // room for rings around the outer boxes
const GAP = 44;
const ROOT = 80;
const NARROWEST = 132;
const ENOUGH = 240; // whatever the names are
const WIDEST = 340;
const FLOW = 26; // thickness of the whole probability, in pixels

/**
 * @typedef {object} Item  a node, or a stand-in for the children that are not listed
 * @property {string} key
 * @property {any} node        the node, or the parent of the children that are not listed
 * @property {boolean} more
 * @property {number} depth
 * @property {number} probability
 * @property {Item|null} parent
 * @property {Item[]} children
 * @property {number} x
 * @property {number} y
 * @property {number} width
 */

/**
 * The nodes as a tree of items, most probable children first, what is not listed last.
 * @param {any[]} nodes  parents before children
 * @returns {Item}
 */
export function grow(nodes) {
  const items = new Map();
  const item = (key, node, depth, probability, parent, more = false) => ({
    key, node, depth, probability, parent, more, children: [], x: 0, y: 0, width: 0,
  });
  for (const node of nodes) {
    const parent = node.parent === null ? null : items.get(node.parent);
    const made = item(`n${node.node}`, node, node.depth, node.probability, parent);
    items.set(node.node, made);
    parent?.children.push(made);
  }
  for (const made of items.values()) {
    made.children.sort((a, b) => b.probability - a.probability || a.node.node - b.node.node);
    const { node } = made;
    if (made.children.length && node.hidden > 0) {
      made.children.push(item(`m${node.node}`, node, node.depth + 1, node.hidden_probability, made, true));
    }
  }
  return items.get(nodes[0].node);
}

/**
 * The items from top to bottom as an outline shows them: parents, then what is below them.
 * @param {Item} root
 * @returns {Item[]}
 */
export function inOrder(root) {
  const order = [];
  const waiting = [root];
  while (waiting.length) {
    const item = waiting.pop();
    order.push(item);
    waiting.push(...item.children.toReversed());
  }
  return order;
}

/**
 * Places every item and gives the links and the height; `wide` says which of the two ways was taken.
 * @param {Item} root
 * @param {number} width
 * @param {number} longest  width that the longest name would like to have
 */
export function place(root, width, longest) {
  const order = inOrder(root);
  const levels = Math.max(...order.map((item) => item.depth));
  const column = levels ? (width - 2 * EDGE - ROOT - GAP * levels) / levels : 0;
  if (column < Math.max(NARROWEST, Math.min(longest, ENOUGH))) return asOutline(order, levels, width);
  return inColumns(root, order, Math.min(column, WIDEST));
}

function inColumns(root, order, column) {
  let bottom = 0;
  root.x = EDGE;
  root.width = ROOT;
  root.y = EDGE + Math.max(0, (root.children.length - 1) / 2) * PITCH;
  for (const item of order) {
    const top = Math.max(EDGE, item.y - ((item.children.length - 1) / 2) * PITCH);
    item.children.forEach((child, place) => {
      child.x = EDGE + ROOT + GAP + (item.depth - root.depth) * (column + GAP);
      child.y = top + place * PITCH;
      child.width = column;
    });
    bottom = Math.max(bottom, item.y + BOX);
  }
  return { wide: true, height: bottom + EDGE, links: order.flatMap(streams) };
}

/** The probability of an item as streams to its children, as thick as what they get of it. */
function streams(item) {
  let above = item.y + BOX / 2 - (item.probability * FLOW) / 2;
  return item.children.map((child) => {
    const thick = child.probability * FLOW;
    const [x1, y1, x2, y2] = [item.x + item.width, above + thick / 2, child.x, child.y + BOX / 2];
    above += thick;
    const bend = (x1 + x2) / 2;
    const d = `M${n(x1)} ${n(y1)}C${n(bend)} ${n(y1)} ${n(bend)} ${n(y2)} ${n(x2)} ${n(y2)}`;
    return { child, thick: Math.max(1, thick), d };
  });
}

function asOutline(order, levels, width) {
  const indent = Math.max(6, Math.min(22, (width * 0.4) / Math.max(1, levels)));
  order.forEach((item, row) => {
    item.x = EDGE + item.depth * indent;
    item.y = EDGE + row * ROW;
    item.width = width - EDGE - item.x;
  });
  const links = order.filter((item) => item.parent).map((child) => {
    const x = child.parent.x + indent / 2;
    const thick = Math.max(1, Math.min(indent * 0.6, child.probability * 8));
    return { child, thick, d: `M${n(x)} ${n(child.parent.y + BOX)}V${n(child.y + BOX / 2)}H${n(child.x)}` };
  });
  return { wide: false, height: 2 * EDGE + (order.length - 1) * ROW + BOX, links };
}

const n = (value) => Math.round(value * 10) / 10;
