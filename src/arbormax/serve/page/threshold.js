/** The rules of the decoders threshold and climb, applied to the nodes of one explanation. */

/**
 * The deepest node with a probability above tau (the most probable one of several, the root if there is none).
 * `isExact` is false if nodes that the explanation does not list could be deeper.
 * @param {any[]} nodes  of an explanation, root first
 * @param {number} tau
 * @returns {{node: any, isExact: boolean}}
 */
export function deepestAbove(nodes, tau) {
  let best = nodes[0];
  for (const node of nodes) {
    if (node.probability <= tau) continue;
    const difference = node.depth - best.depth || node.probability - best.probability || best.node - node.node;
    if (difference > 0) best = node;
  }
  // for tau >= 0.5 at most one node of a level passes, and the explanation lists the best children along the path
  return { node: best, isExact: tau >= 0.5 && (best.on_path || best.children === 0) };
}

/**
 * The lowest node with a probability above tau on the path of the most probable class, or the root.
 * @param {any[]} nodes  of the explanation of the most probable class, root first
 * @param {number} tau
 * @returns {any}
 */
export function lowestAbove(nodes, tau) {
  return nodes.filter((node) => node.on_path && node.probability > tau).at(-1) ?? nodes[0];
}

/**
 * The coverage that is possible and nearest to a number, and its threshold.
 * @param {{thresholds: [number, number][]}} coverage  as the service describes it
 * @param {number} wanted
 */
export function nearestCoverage({ thresholds }, wanted) {
  const distance = ([possible]) => Math.abs(possible - wanted);
  return thresholds.reduce((best, each) => (distance(each) < distance(best) ? each : best));
}
