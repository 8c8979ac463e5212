/** Positions of the nodes of one explanation: columns from left to right if they fit, or else an indented outline. */

export const BOX_HEIGHT = 34;
const COLUMN_PITCH = 44;
const ROW_PITCH = 40;
const MARGIN = 3; // space for the focus rings of the outer boxes
const GAP = 44;
const ROOT_WIDTH = 80;
const MIN_WIDTH = 132;
const SUFFICIENT_WIDTH = 240; // even for longer names
const MAX_WIDTH = 340;
const FULL_THICKNESS = 26; // of a line with probability 1, in pixels
const MIN_SHARE = 0.01; // less probable siblings share one line

/**
 * @typedef {object} Item  a node, or a placeholder for the children that are folded or not listed
 * @property {string} key
 * @property {any} node        the node, or the parent of the children that the placeholder stands for
 * @property {boolean} more
 * @property {number} count    number of children that a placeholder stands for
 * @property {boolean} isFolded  whether a placeholder stands for listed children
 * @property {number} depth
 * @property {number} probability
 * @property {Item|null} parent
 * @property {Item[]} children
 * @property {number} x
 * @property {number} y
 * @property {number} width
 */

/**
 * The nodes as a tree of items: most probable children first, the placeholder last. Siblings below 1 % are folded.
 * @param {any[]} nodes  parents before children
 * @param {Set<number>} unfolded  parents that show all listed children
 * @returns {Item}
 */
export function buildTree(nodes, unfolded = new Set()) {
  const items = new Map();
  const item = (key, node, depth, probability, parent, more = false) => ({
    key, node, depth, probability, parent, more, count: 0, isFolded: false, children: [], x: 0, y: 0, width: 0,
  });
  for (const node of nodes) {
    const parent = node.parent === null ? null : items.get(node.parent);
    const child = item(`n${node.node}`, node, node.depth, node.probability, parent);
    items.set(node.node, child);
    parent?.children.push(child);
  }
  for (const parent of items.values()) {
    parent.children.sort((a, b) => b.probability - a.probability || a.node.node - b.node.node);
    const { node } = parent;
    if (!parent.children.length) continue;
    const rare = unfolded.has(node.node) ? [] : parent.children.filter((child) => isRare(child.node, node));
    const folded = rare.length + (node.hidden > 0 ? 1 : 0) > 1 ? rare : []; // a line that saves none is no use
    if (!folded.length && !node.hidden) continue;
    const probability = folded.reduce((sum, child) => sum + child.probability, node.hidden_probability);
    const rest = item(`m${node.node}`, node, node.depth + 1, probability, parent, true);
    Object.assign(rest, { count: folded.length + node.hidden, isFolded: folded.length > 0 });
    parent.children = [...parent.children.filter((child) => !folded.includes(child)), rest];
  }
  return items.get(nodes[0].node);
}

/** Whether a node is below 1 %, of its parent if that is improbable itself. */
function isRare(node, parent) {
  const share = parent.probability < 0.1 ? node.conditional : node.probability;
  return !node.on_path && share < MIN_SHARE;
}

/**
 * The items in depth-first order, as an outline shows them from top to bottom.
 * @param {Item} root
 * @returns {Item[]}
 */
export function inOrder(root) {
  const order = [];
  const stack = [root];
  while (stack.length) {
    const item = stack.pop();
    order.push(item);
    stack.push(...item.children.toReversed());
  }
  return order;
}

/**
 * Sets the position of every item; returns the links, the height, and whether the layout has columns.
 * @param {Item} root
 * @param {number} width
 * @param {number} longest  width of the longest name
 */
export function layOut(root, width, longest) {
  const order = inOrder(root);
  const levels = Math.max(...order.map((item) => item.depth));
  const column = levels ? (width - 2 * MARGIN - ROOT_WIDTH - GAP * levels) / levels : 0;
  if (column < Math.max(MIN_WIDTH, Math.min(longest, SUFFICIENT_WIDTH))) return asOutline(order, levels, width);
  return inColumns(root, order, Math.min(column, MAX_WIDTH));
}

function inColumns(root, order, column) {
  let bottom = 0;
  root.x = MARGIN;
  root.width = ROOT_WIDTH;
  root.y = MARGIN + Math.max(0, (root.children.length - 1) / 2) * COLUMN_PITCH;
  for (const item of order) {
    const top = Math.max(MARGIN, item.y - ((item.children.length - 1) / 2) * COLUMN_PITCH);
    item.children.forEach((child, index) => {
      child.x = MARGIN + ROOT_WIDTH + GAP + (item.depth - root.depth) * (column + GAP);
      child.y = top + index * COLUMN_PITCH;
      child.width = column;
    });
    bottom = Math.max(bottom, item.y + BOX_HEIGHT);
  }
  return { hasColumns: true, height: bottom + MARGIN, links: order.flatMap(linksBelow) };
}

/** The links from an item to its children; their thickness is proportional to the probability. */
function linksBelow(item) {
  let above = item.y + BOX_HEIGHT / 2 - (item.probability * FULL_THICKNESS) / 2;
  return item.children.map((child) => {
    const thick = child.probability * FULL_THICKNESS;
    const [x1, y1, x2, y2] = [item.x + item.width, above + thick / 2, child.x, child.y + BOX_HEIGHT / 2];
    above += thick;
    const bend = (x1 + x2) / 2;
    const d = `M${n(x1)} ${n(y1)}C${n(bend)} ${n(y1)} ${n(bend)} ${n(y2)} ${n(x2)} ${n(y2)}`;
    return { child, thick: Math.max(1, thick), d };
  });
}

function asOutline(order, levels, width) {
  const indent = Math.max(6, Math.min(22, (width * 0.4) / Math.max(1, levels)));
  order.forEach((item, row) => {
    item.x = MARGIN + item.depth * indent;
    item.y = MARGIN + row * ROW_PITCH;
    item.width = width - MARGIN - item.x;
  });
  const links = order.filter((item) => item.parent).map((child) => {
    const x = child.parent.x + indent / 2;
    const thick = Math.max(1, Math.min(indent * 0.6, child.probability * 8));
    return { child, thick, d: `M${n(x)} ${n(child.parent.y + BOX_HEIGHT)}V${n(child.y + BOX_HEIGHT / 2)}H${n(child.x)}` };
  });
  return { hasColumns: false, height: 2 * MARGIN + (order.length - 1) * ROW_PITCH + BOX_HEIGHT, links };
}

const n = (value) => Math.round(value * 10) / 10;
