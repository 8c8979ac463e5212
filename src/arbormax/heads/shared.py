"""One softmax over all classes, whose logits are sums along the path."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from arbormax.functional import flat_cross_entropy, flat_node_log_probs, shared_leaf_logits
from arbormax.functional.graphs import refuse_graph
from arbormax.heads.base import SoftmaxOverLeaves
from arbormax.taxonomy import Taxonomy
from arbormax.taxonomy.edits.rows import PathRows


class SharedSoftmax(SoftmaxOverLeaves):
    """A softmax in which siblings share parameters: the logit of a class is the sum of the logits on its path.

    Row j of the weight belongs to node j + 1; (C + P - 1)(D + 1) parameters. The arguments are those of `TreeHead`.

    With a `Graph`, row j belongs to `graph.edges[j]`: one softmax over all paths, and a class is the sum of its paths.
    """

    supports_graph: ClassVar[bool] = True
    has_logits: ClassVar[bool] = True
    edit_rows = PathRows

    @staticmethod
    def num_rows(tax: Taxonomy) -> int:
        return tax.num_edges

    def rows_from(self, vectors: Tensor) -> Tensor:
        refuse_graph(self.taxonomy, "SharedSoftmax with rows from vectors")
        # the score of a node is the sum along its path, so that each row is the difference to the parent's vector
        nodes = torch.arange(1, self.taxonomy.num_nodes)
        parents = torch.tensor(self.taxonomy.parent[1:])
        is_deep = parents > 0  # the root has no row
        places = torch.stack([torch.cat([nodes, nodes[is_deep]]) - 1, torch.cat([nodes, parents[is_deep]])])
        signs = torch.cat([torch.ones(len(nodes)), -torch.ones(int(is_deep.sum()))]).to(vectors)
        shape = len(nodes), len(nodes) + 1
        differences: Tensor = torch.sparse.mm(torch.sparse_coo_tensor(places.to(vectors.device), signs, shape), vectors)
        return differences

    def leaf_logits_from(self, scores: Tensor) -> Tensor:
        return shared_leaf_logits(scores, self.taxonomy)

    def logits(self, h: Tensor) -> Tensor:
        return self._linear(h)

    def from_logits(self, logits: Tensor) -> Tensor:
        return flat_node_log_probs(shared_leaf_logits(logits, self.taxonomy), self.taxonomy)

    def loss_from_logits(self, logits: Tensor, target: Tensor, **options: Any) -> Tensor:
        return flat_cross_entropy(shared_leaf_logits(logits, self.taxonomy), target, self.taxonomy, **options)
