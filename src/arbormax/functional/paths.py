"""The loss on a large tree: the softmaxes on the paths of a batch, and no look at the rest of the tree.

B batch, D features, M rows, K steps of a path.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from types import ModuleType, NoneType
from typing import Any

import torch
from torch import Tensor, library
from torch.nn import Parameter

from arbormax import kernels
from arbormax.errors import InputError, OptionError
from arbormax.functional._checks import Reduction, TargetKind, check_target, check_weights, mask_target
from arbormax.functional._index import TreeIndex, path_nodes, tree_index
from arbormax.functional._path_tree import path_tree
from arbormax.functional.losses import check_options, item_weights, reduced, step_losses
from arbormax.kernels.path_tree import PathTree
from arbormax.taxonomy import Taxonomy

# Below so many rows of the tree, or rows for each on a path, one dense product is faster than the look-ups; devices of
# other kinds may have no sparse products at all. The GPU's depends on its host: where it was measured, an eager step
# crosses between 8,420 and 11,154 rows, and one of a captured graph at about a thousand.
_ROWS, _RATIO = {"cpu": 4096, "cuda": 10_000}, 8
_SEARCHED = {"cpu": 4096, "cuda": 1 << 15}


def prefers_paths(index: TreeIndex) -> bool:
    """Whether the tree is so large that the loss looks at its paths alone."""
    return _is_large(index, _ROWS)


def prefers_search(index: TreeIndex) -> bool:
    """Whether the tree is so large that the best leaves are searched for."""
    return _is_large(index, _SEARCHED)


def _is_large(index: TreeIndex, least: dict[str, int]) -> bool:
    rows = index.num_nodes - 1
    return rows >= least.get(index.leaves.device.type, inf) and rows >= _RATIO * index.path_width


def path_cross_entropy(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    target: Tensor,
    tax: Taxonomy,
    *,
    sparse: bool = False,
    impl: kernels.Impl = "auto",
    reduction: Reduction = "mean",
    target_kind: TargetKind = "class",
    ignore_index: int = -100,
    weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    gamma: float = 0.0,
    node_weights: Tensor | None = None,
    log_priors: Tensor | None = None,
    tau: float = 0.0,
) -> Tensor:
    """`hierarchical_cross_entropy` of the logits `h @ rows.T + bias`, of which only those on the paths are computed.

    Time and memory follow the paths, not the number of classes. With `sparse` the gradients of `rows` (M, D) and
    `bias` (M,) are sparse tensors of the rows on the paths. `impl` is who computes: `torch` anywhere, `triton` on
    a GPU, `auto` the faster of those that can.

    >>> from arbormax import Taxonomy
    >>> tax = Taxonomy.from_nested({"a": ["x", "y"], "b": ["z"]})
    >>> path_cross_entropy(torch.zeros(2, 3), torch.zeros(5, 3), None, torch.tensor([0, 2]), tax, reduction="none")
    tensor([1.3863, 0.6931])
    """
    index = tree_index(tax, h.device)
    if len(rows) != index.num_nodes - 1:  # the sparse product would read past their end
        raise InputError(f"expected one row per non-root node, so {index.num_nodes - 1}, found {len(rows)}")
    if rows.shape[1:] != h.shape[-1:]:
        raise InputError(f"expected rows of {h.shape[-1]} numbers, as features have, found {tuple(rows.shape)}")
    for name, vector in (("bias", bias), ("log_priors", log_priors)):
        if vector is not None and vector.shape != rows.shape[:1]:
            raise InputError(f"expected {name} of shape ({len(rows)},), one for each row, found {tuple(vector.shape)}")
    if isinstance(target, Tensor) and target.device != h.device:
        raise InputError(f"the target is on {target.device}, the features are on {h.device}")
    check_options(reduction, target_kind, label_smoothing, gamma)
    if tau and log_priors is None:
        raise OptionError("tau adjusts the logits by the training frequencies of siblings: give them as log_priors")
    batch = h.shape[:-1]
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    if weight is not None:
        weight = check_weights(weight, index.num_leaves, "weight", h.device, wide)
    if node_weights is not None:
        node_weights = check_weights(node_weights, index.num_nodes, "node_weights", h.device, wide)
    limit = index.num_leaves if target_kind == "class" else index.num_nodes
    row_B = check_target(target, batch, target_kind)
    offset = tau * log_priors.to(wide) if tau and log_priors is not None else None
    tree = path_tree(tax, h.device)
    features = h.reshape(-1, h.shape[-1])
    chosen = kernels.choose(impl, features, rows, tree)
    operands = (features, rows, bias, offset)
    is_watched = _is_watched(*operands, row_B)
    is_plain = reduction != "none" and weight is None and node_weights is None and not (label_smoothing or gamma)
    if is_plain and chosen == "triton" and not is_watched:
        targets = (row_B, None if target_kind == "node" else index.leaves, limit, ignore_index)
        loss: Tensor = _EagerLoss.apply(*operands, targets, tree, sparse, reduction)  # type: ignore[no-untyped-call]
        return loss
    row_B, counted_B = mask_target(row_B, limit, target_kind, ignore_index)
    nodes_B = row_B if target_kind == "node" else index.leaves.index_select(0, row_B)
    nodes_B = torch.where(counted_B, nodes_B, 0)
    if is_watched:
        logp_BK, mean_BK, *_ = path_steps(*operands, nodes_B, tree.tensors, tree.sizes, sparse, chosen)
    else:
        logp_BK, mean_BK = _EagerSteps.apply(*operands, nodes_B, tree, sparse, chosen)  # type: ignore[no-untyped-call]
    if is_plain:
        total: Tensor = -logp_BK.sum()  # an ignored item has no steps
        return total if reduction == "sum" else total / counted_B.sum()
    nodes_BK = logp_BK  # not looked at without node weights
    if node_weights is not None:
        nodes_BK = torch.stack(path_nodes(index, nodes_B), dim=-1)
    smoothed_BK = mean_BK if label_smoothing else None
    loss_BK = step_losses(logp_BK, smoothed_BK, nodes_BK, label_smoothing, gamma, node_weights)
    return reduced(loss_BK.sum(1), item_weights(row_B, target_kind, weight, index), counted_B, reduction, batch)


def _is_watched(*tensors: Tensor | None) -> bool:
    """Whether a compiler, a mode or a kind of tensor looks at the operators that are called."""
    if torch.compiler.is_compiling() or torch._C._is_tracing():  # noqa: SLF001
        return True
    if any(type(tensor) not in (Tensor, Parameter, NoneType) for tensor in tensors):
        return True
    return bool(torch._C._len_torch_dispatch_stack())  # noqa: SLF001  # torch offers it under no other name


class _EagerSteps(torch.autograd.Function):
    """`path_steps` where nobody is watching: an operator's way through Python takes as long as a small step."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        rows: Tensor,
        bias: Tensor | None,
        offset: Tensor | None,
        node: Tensor,
        tree: PathTree,
        sparse: bool,
        impl: str,
    ) -> tuple[Tensor, Tensor]:
        ctx.tree, ctx.sparse, ctx.impl = tree, sparse, impl
        logp, mean, kept, plan = kernels.implementation(impl).log_probs(h, rows, bias, offset, node, tree, sparse)
        ctx.save_for_backward(h, rows, bias, offset, kept, plan)
        return logp, mean

    @staticmethod
    def backward(ctx: Any, own_grad: Tensor, mean_grad: Tensor) -> tuple[Tensor | None, ...]:
        return *_eager_gradients(own_grad, mean_grad, ctx.saved_tensors, ctx.tree, ctx.sparse, ctx.impl), *[None] * 4


class _EagerLoss(torch.autograd.Function):
    """The whole of the usual loss on a GPU, whose host takes longer to launch small operators than it to run them."""

    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        rows: Tensor,
        bias: Tensor | None,
        offset: Tensor | None,
        targets: tuple[Tensor, Tensor | None, int, int],
        tree: PathTree,
        sparse: bool,
        reduction: Reduction,
    ) -> Tensor:
        ctx.tree, ctx.sparse = tree, sparse
        made = kernels.implementation("triton").loss(h, rows, bias, offset, *targets, tree, sparse, reduction == "mean")
        loss, ctx.factors, kept, plan = made
        ctx.save_for_backward(h, rows, bias, offset, kept, plan)
        assert isinstance(loss, Tensor)
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        steps = (len(ctx.saved_tensors[0]), len(ctx.tree.widths))
        own_grad, mean_grad = (factor.expand(steps) for factor in grad * ctx.factors)
        found = _eager_gradients(own_grad, mean_grad, ctx.saved_tensors, ctx.tree, ctx.sparse, "triton")
        return *found, *[None] * 4


def _eager_gradients(
    own_grad: Tensor,
    mean_grad: Tensor,
    given: Sequence[Tensor | None],
    tree: PathTree,
    sparse: bool,
    impl: str,
) -> tuple[Tensor | None, ...]:
    """Of the features, the rows, the bias and the offset."""
    # with gradients of its own, it is for a second derivative, which the operator refuses
    if torch.is_grad_enabled() or _is_watched(own_grad, mean_grad):
        found = path_steps_backward(own_grad, mean_grad, *given, tree.tensors, tree.sizes, sparse, impl)
    else:
        found = _gradients(kernels.implementation(impl), own_grad, mean_grad, given, tree, sparse)
    of_h, of_rows, of_bias = found
    return of_h, of_rows, *(None if vector is None else of_bias for vector in given[2:4])


def _gradients(
    module: ModuleType,
    own_grad: Tensor,
    mean_grad: Tensor,
    given: Sequence[Tensor | None],
    tree: PathTree,
    sparse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of the features, the rows and the bias; `given` are features, rows, bias, offset, and the two that were kept."""
    found = module.gradients(own_grad, mean_grad, *given, tree, sparse)
    if found.rows is None:
        return found.h, found.weight, found.bias
    assert given[1] is not None
    shape = given[1].shape
    return found.h, _row_sparse(found.rows, found.weight, shape), _row_sparse(found.rows, found.bias, shape[:1])


@library.custom_op("arbormax::path_steps", mutates_args=())
def path_steps(
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    offset: Tensor | None,
    node: Tensor,
    tree: list[Tensor],
    sizes: list[int],
    sparse: bool,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(B, K) each: the log-probability of every step's node given its parent, and its siblings' mean.

    The other two are what the implementation keeps for its gradients: numbers and a plan.
    """
    made: tuple[Tensor, Tensor, Tensor, Tensor] = kernels.implementation(impl).log_probs(
        h, rows, bias, offset, node, PathTree.of(tree, sizes), sparse
    )
    return made


@path_steps.register_fake
def _(
    h: Tensor,
    rows: Tensor,
    bias: Any,  # noqa: ARG001
    offset: Any,  # noqa: ARG001
    node: Tensor,
    tree: list[Tensor],
    sizes: list[int],
    sparse: bool,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    module = kernels.implementation(impl)
    cells = library.get_ctx().new_dynamic_size() if impl == "torch" else 0
    kept, planned = module.kept_shapes(len(node), PathTree.of(tree, sizes), sparse, cells)
    made = [h.new_empty((len(node), len(sizes) // 2), dtype=wide) for _ in range(2)]
    return made[0], made[1], h.new_empty(kept, dtype=wide), h.new_empty((planned,), dtype=module.plan_type)


@library.custom_op("arbormax::path_steps_backward", mutates_args=())
def path_steps_backward(
    own_grad: Tensor,
    mean_grad: Tensor,
    h: Tensor,
    rows: Tensor,
    bias: Tensor | None,
    offset: Tensor | None,
    kept: Tensor,
    plan: Tensor,
    tree: list[Tensor],
    sizes: list[int],
    sparse: bool,
    impl: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of the features, the rows and the bias."""
    module, given = kernels.implementation(impl), (h, rows, bias, offset, kept, plan)
    return _gradients(module, own_grad, mean_grad, given, PathTree.of(tree, sizes), sparse)


def _row_sparse(at: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    options: dict[str, Any] = {"device": values.device, "check_invariants": False, "is_coalesced": True}
    return torch.sparse_coo_tensor(at.unsqueeze(0), values, shape, **options)


@path_steps_backward.register_fake
def _(own_grad: Tensor, mean_grad: Any, h: Tensor, rows: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:  # noqa: ARG001
    of_h = h.new_empty(h.shape)  # not `empty_like`: whatever the strides of h, its gradient has its own
    if not rest[-2]:
        return of_h, rows.new_empty(rows.shape), rows.new_empty(rows.shape[:1])
    at = rows.new_empty((1,), dtype=torch.int64)  # how many rows there will be, a graph does not ask
    of_rows, of_bias = rows.new_empty((1, rows.shape[1])), rows.new_empty((1,))
    return of_h, _row_sparse(at, of_rows, rows.shape), _row_sparse(at, of_bias, rows.shape[:1])


def _setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    h, rows, bias, offset, _, ctx.tree, ctx.sizes, ctx.sparse, ctx.impl = inputs
    ctx.save_for_backward(h, rows, bias, offset, output[2], output[3])
    ctx.mark_non_differentiable(output[2], output[3])


def _backward(ctx: Any, own_grad: Tensor, mean_grad: Tensor, *_: Any) -> tuple[Any, ...]:
    h, rows, bias, offset, kept, plan = ctx.saved_tensors
    grad_h, grad_rows, grad_bias = path_steps_backward(
        own_grad, mean_grad, h, rows, bias, offset, kept, plan, ctx.tree, ctx.sizes, ctx.sparse, ctx.impl
    )
    added = [None if vector is None else grad_bias for vector in (bias, offset)]
    return grad_h, grad_rows, *added, None, [None] * len(ctx.tree), None, None, None


path_steps.register_autograd(_backward, setup_context=_setup)
