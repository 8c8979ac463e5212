"""Every measure at once.

B items, N nodes, C classes.
"""

from collections.abc import Iterable
from typing import Any

from arbormax.metrics.inputs import node_pairs, scored_nodes
from arbormax.metrics.nodes import add_nodes, node_values, zero_node_stats
from arbormax.metrics.probabilities import (
    DEFAULT_THRESHOLDS,
    add_calibration,
    add_curve,
    add_ranked,
    calibration_values,
    check_bins,
    check_positive,
    check_thresholds,
    curve_value,
    distance_value,
    level_table,
    top_classes,
    zero_calibration_stats,
    zero_curve_stats,
    zero_distance_stats,
)
from arbormax.taxonomy.tree import Taxonomy


def evaluate(
    true_nodes: Any,
    pred_nodes: Any,
    tax: Taxonomy,
    log_probs: Any = None,
    *,
    ks: Iterable[int] = (1, 5, 20),
    bins: int = 15,
    thresholds: Any = DEFAULT_THRESHOLDS,
) -> dict[str, Any]:
    """The measures of predicted nodes (...,) against true nodes (...,), as plain numbers ready for JSON.

    Lists, numpy arrays or tensors of whole numbers; truths and predictions may be inner nodes.

    - `accuracy`: the share of items whose prediction is the very node of the truth.
    - `macro_f1`, `macro_precision`, `macro_recall`: scikit-learn's, over the classes in truth or prediction, among the
      `leaf_count` items whose truth is a leaf. An inner prediction is a miss and no class's false positive.
    - `hp`, `hr`, `hf`: hierarchical precision, recall and F over all items together; `macro_hp`, `macro_hr`,
      `macro_hf`: their means over the true classes, items with a leaf truth only.
    - `level_accuracy`: for each level 1..depth, the share of equal ancestors among the items whose truth reaches the
      level; None where no truth does.
    - `tree_distance`: mean number of edges between truth and prediction. `mistake_severity`: mean height of their
      lowest common ancestor over the `errors`, the items that are not right.
    - `information`: mean bits that a prediction tells, log2(C / leaves under it). `count`: the number of items.

    With node log-probabilities `log_probs` (..., N) also

    - `hierarchical_distance@k` for each k of `ks` up to C, see `hierarchical_distance_at_k`;
    - `ece`, a list over the levels 1..depth, see `level_calibration_error`;
    - `operating_curve_area`, see `operating_curve`.

    A mean over nothing is 0, so that no items at all give a `count` of 0 and zeros.

    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})  # nodes: 0 root, 1 a, 2 b, 3 x, 4 y, 5 z
    >>> values = evaluate([3, 4, 5, 5], [3, 3, 5, 2], tax)
    >>> values["accuracy"], values["hp"], values["mistake_severity"], values["level_accuracy"]
    (0.5, 0.8571428571428571, 1.0, [1.0, 0.5])
    """
    true_B, pred_B = node_pairs(true_nodes, pred_nodes, tax)
    values = node_values(add_nodes(zero_node_stats(tax), true_B, pred_B, tax), tax)
    if log_probs is None:
        return values

    bins, taus = check_bins(bins), check_thresholds(thresholds)
    wanted = [k for k in (check_positive(k, "ks") for k in ks) if k <= tax.num_leaves]
    logp_BN, true_B = scored_nodes(log_probs, true_nodes, tax)
    if wanted:
        ranked_Bk = top_classes(logp_BN, tax, max(wanted))
        for k in wanted:
            stats = add_ranked(zero_distance_stats(), true_B, ranked_Bk[:, :k], tax)
            values[f"hierarchical_distance@{k}"] = distance_value(stats)
    table = level_table(logp_BN, true_B, tax)
    values["ece"] = calibration_values(add_calibration(zero_calibration_stats(tax, bins), table, bins))
    values["operating_curve_area"] = curve_value(add_curve(zero_curve_stats(taus), table, taus, tax), taus).area
    return values
