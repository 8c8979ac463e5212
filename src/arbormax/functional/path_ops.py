"""The operators behind `paths`, so that a compiler, an exporter or a mode sees three names and not what is inside.

They are registered key by key: `torch.library.custom_op` takes as long on its way through Python as a small step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, library

from arbormax import kernels
from arbormax.kernels.path_tree import PathTree

_LIBRARY = library.Library("arbormax", "FRAGMENT")  # type: ignore[no-untyped-call]
_OPERANDS = "Tensor h, Tensor rows, Tensor? bias, Tensor? offset"
_TREE = "Tensor[] tree, int[] sizes, bool sparse"


def _operator(name: str, takes: str, gives: str, kernel: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    """An operator of any device with a kernel and a function that knows the shapes of what it gives."""
    schema = f"{name}({takes}) -> ({gives})"
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    library.register_fake(f"arbormax::{name}", shapes, lib=_LIBRARY)
    return getattr(torch.ops.arbormax, name).default


def _run_steps(*given: Any) -> Any:
    *others, tree, sizes, sparse, impl = given
    return kernels.implementation(impl).log_probs(*others, PathTree.of(tree, sizes), sparse)


def _kept(h: Tensor, wide: torch.dtype, tree: PathTree, sparse: bool, impl: str) -> tuple[Tensor, Tensor]:
    """As the two that an implementation keeps for its gradients: numbers and a plan."""
    module = kernels.implementation(impl)
    cells = library.get_ctx().new_dynamic_size() if impl == "torch" else 0
    kept, planned = module.kept_shapes(len(h), tree, sparse, cells)
    return h.new_empty(kept, dtype=wide), h.new_empty((planned,), dtype=module.plan_type)


def _steps_shapes(h: Tensor, rows: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, tree, sizes, sparse, impl = rest
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    made = [h.new_empty((len(h), len(sizes) // 2), dtype=wide) for _ in range(2)]
    return *made, *_kept(h, wide, PathTree.of(tree, sizes), sparse, impl)


def _run_loss(*given: Any) -> Any:
    *others, is_mean, tree, sizes, sparse = given
    return kernels.implementation("triton").loss(*others, PathTree.of(tree, sizes), sparse, is_mean)


def _loss_shapes(h: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, tree, sizes, sparse = rest
    made = [h.new_empty(shape, dtype=torch.float32) for shape in ((), (2,))]
    return *made, *_kept(h, torch.float32, PathTree.of(tree, sizes), sparse, "triton")


def _run_gradients(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    *others, tree, sizes, sparse, impl = given
    found = kernels.implementation(impl).gradients(*others, PathTree.of(tree, sizes), sparse)
    if found.rows is None:
        return found.h, found.weight, found.bias
    shape = others[3].shape
    return found.h, _row_sparse(found.rows, found.weight, shape), _row_sparse(found.rows, found.bias, shape[:1])


def _row_sparse(at: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    options: dict[str, Any] = {"device": values.device, "check_invariants": False, "is_coalesced": True}
    return torch.sparse_coo_tensor(at.unsqueeze(0), values, shape, **options)


def _gradients_shapes(own_grad: Tensor, mean_grad: Tensor, h: Tensor, rows: Tensor, *rest: Any) -> tuple[Tensor, ...]:  # noqa: ARG001
    of_h = h.new_empty(h.shape)  # not `empty_like`: whatever the strides of h, its gradient has its own
    if not rest[-2]:
        return of_h, rows.new_empty(rows.shape), rows.new_empty(rows.shape[:1])
    at = rows.new_empty((1,), dtype=torch.int64)  # how many rows there will be, a graph does not ask
    of_rows, of_bias = rows.new_empty((1, rows.shape[1])), rows.new_empty((1,))
    return of_h, _row_sparse(at, of_rows, rows.shape), _row_sparse(at, of_bias, rows.shape[:1])


# (B, K) each: the log-probability of every step's node given its parent, and its siblings' mean; then what is kept.
path_steps = _operator(
    "path_steps",
    f"{_OPERANDS}, Tensor node, {_TREE}, str impl",
    "Tensor, Tensor, Tensor, Tensor",
    _run_steps,
    _steps_shapes,
)
# The sum or mean of all steps' losses, the factors of its gradients, and what is kept.
path_loss = _operator(
    "path_loss",
    f"{_OPERANDS}, Tensor target, Tensor? leaves, int limit, int ignored, bool is_mean, {_TREE}",
    "Tensor, Tensor, Tensor, Tensor",
    _run_loss,
    _loss_shapes,
)
# The gradients of the features, the rows and the bias.
path_gradients = _operator(
    "path_gradients",
    f"Tensor own_grad, Tensor mean_grad, {_OPERANDS}, Tensor kept, Tensor plan, {_TREE}, str impl",
    "Tensor, Tensor, Tensor",
    _run_gradients,
    _gradients_shapes,
)


def _below_autograd(operator: Any, given: tuple[Any, ...]) -> tuple[Tensor, ...]:
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001  # as torch's own registration does
        made: tuple[Tensor, ...] = operator(*given)
    return made


def _forward(ctx: Any, operator: Any, given: tuple[Any, ...], differentiable: int) -> tuple[Tensor, ...]:
    """What the operator gives, of which the first few have gradients; it takes features, rows, bias, offset first."""
    made = _below_autograd(operator, given)
    ctx.mark_non_differentiable(*made[differentiable:])
    ctx.save_for_backward(*given[:4], *made[2:], *made[differentiable:2])
    ctx.set_materialize_grads(False)  # or there would be zeros for what is kept, too
    ctx.others = len(given) - 4
    return made


def _backward(ctx: Any, own_grad: Tensor, mean_grad: Tensor, *how: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors[:6]
    of_h, of_rows, of_bias = path_gradients(own_grad, mean_grad, *saved, *how)
    added = (None if vector is None else of_bias for vector in saved[2:4])
    return of_h, of_rows, *added, *[None] * ctx.others


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        ctx.how = given[5:]
        return _forward(ctx, path_steps, given, 2)

    @staticmethod
    def backward(ctx: Any, own_grad: Tensor | None, mean_grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        there = mean_grad if own_grad is None else own_grad
        assert there is not None
        none = there.new_zeros(()).expand_as(there)
        return _backward(
            ctx, none if own_grad is None else own_grad, none if mean_grad is None else mean_grad, *ctx.how
        )


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        ctx.how = given[9:]
        return _forward(ctx, path_loss, given, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        h, *_, factors = ctx.saved_tensors
        steps = (len(h), len(ctx.how[1]) // 2)
        own_grad, mean_grad = (factor.expand(steps) for factor in grad * factors)
        return _backward(ctx, own_grad, mean_grad, *ctx.how, "triton")


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:  # noqa: ARG004
        return _below_autograd(path_gradients, given)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError(
            "the gradients of a loss by paths have no gradients of their own: for second derivatives use "
            "arbormax.functional.hierarchical_cross_entropy(F.linear(h, weight, bias), target, tax)"
        )


def _with_gradients(name: str, operator: Any, function: type[torch.autograd.Function]) -> None:
    def kernel(*given: Any) -> Any:
        return function.apply(*given) if torch.is_grad_enabled() else _below_autograd(operator, given)  # type: ignore[no-untyped-call]

    _LIBRARY.impl(name, kernel, "Autograd")  # type: ignore[no-untyped-call]


_with_gradients("path_steps", path_steps, _Steps)
_with_gradients("path_loss", path_loss, _Loss)
_with_gradients("path_gradients", path_gradients, _Gradients)
