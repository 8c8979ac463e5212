/** Where the model would stop: the rule of the threshold decoder, on the nodes of one explanation. */

/**
 * The deepest node that is more probable than tau (of several the most probable; the root when none is), and whether
 * that is sure: nodes that are not listed could lie deeper, and then only the service knows.
 * @param {any[]} nodes  of an explanation, the root first
 * @param {number} tau
 * @returns {{node: any, sure: boolean}}
 */
export function stopAt(nodes, tau) {
  let best = nodes[0];
  for (const node of nodes) {
    if (node.probability <= tau) continue;
    const gain = node.depth - best.depth || node.probability - best.probability || best.node - node.node;
    if (gain > 0) best = node;
  }
  // above one half at most one node of a level passes, and the best children of every node on the path are listed
  return { node: best, sure: tau >= 0.5 && (best.on_path || best.children === 0) };
}
