"""The operators of `paths`: a compiler, an exporter or a dispatch mode sees three names and not what they contain.

They are registered for each dispatch key, because `torch.library.custom_op` takes as long in Python as a small step.
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


def _operator(name: str, arguments: str, results: str, kernel: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    """Register an operator for all devices, with a kernel and a function for the shapes of its results."""
    schema = f"{name}({arguments}) -> ({results})"
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))  # type: ignore[no-untyped-call]
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    library.register_fake(f"arbormax::{name}", shapes, lib=_LIBRARY)
    return getattr(torch.ops.arbormax, name).default


def _run_steps(*arguments: Any) -> Any:
    *others, tree, sizes, sparse, impl = arguments
    return kernels.implementation(impl).log_probs(*others, PathTree.from_lists(tree, sizes), sparse)


def _stored_shapes(h: Tensor, dtype: torch.dtype, tree: PathTree, sparse: bool, impl: str) -> tuple[Tensor, Tensor]:
    """Return what an implementation stores for its gradients: numbers and a plan."""
    module = kernels.implementation(impl)
    cells = library.get_ctx().new_dynamic_size() if impl == "torch" else 0
    stored, planned = module.stored_shapes(len(h), tree, sparse, cells)
    return h.new_empty(stored, dtype=dtype), h.new_empty((planned,), dtype=module.plan_type)


def _steps_shapes(h: Tensor, rows: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, tree, sizes, sparse, impl = rest
    wide = torch.promote_types(torch.promote_types(h.dtype, rows.dtype), torch.float32)
    results = [h.new_empty((len(h), len(sizes) // 2), dtype=wide) for _ in range(2)]
    return *results, *_stored_shapes(h, wide, PathTree.from_lists(tree, sizes), sparse, impl)


def _run_loss(*arguments: Any) -> Any:
    *others, is_mean, tree, sizes, sparse = arguments
    return kernels.implementation("triton").loss(*others, PathTree.from_lists(tree, sizes), sparse, is_mean)


def _loss_shapes(h: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    *_, tree, sizes, sparse = rest
    results = [h.new_empty(shape, dtype=torch.float32) for shape in ((), (2,))]
    return *results, *_stored_shapes(h, torch.float32, PathTree.from_lists(tree, sizes), sparse, "triton")


def _run_gradients(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    *others, tree, sizes, sparse, impl = arguments
    found = kernels.implementation(impl).gradients(*others, PathTree.from_lists(tree, sizes), sparse)
    if found.rows is None:
        return found.h, found.weight, found.bias
    shape = others[2].shape
    return found.h, _row_sparse(found.rows, found.weight, shape), _row_sparse(found.rows, found.bias, shape[:1])


def _row_sparse(index: Tensor, values: Tensor, shape: torch.Size) -> Tensor:
    options: dict[str, Any] = {"device": values.device, "check_invariants": False, "is_coalesced": True}
    return torch.sparse_coo_tensor(index.unsqueeze(0), values, shape, **options)


def _gradients_shapes(grads: Tensor, h: Tensor, rows: Tensor, *rest: Any) -> tuple[Tensor, ...]:  # noqa: ARG001
    grad_h = h.new_empty(h.shape)  # not `empty_like`: the gradient does not have the strides of h
    if not rest[-2]:
        return grad_h, rows.new_empty(rows.shape), rows.new_empty(rows.shape[:1])
    index = rows.new_empty((1,), dtype=torch.int64)  # a graph does not need the true number of rows
    grad_rows, grad_bias = rows.new_empty((1, rows.shape[1])), rows.new_empty((1,))
    return grad_h, _row_sparse(index, grad_rows, rows.shape), _row_sparse(index, grad_bias, rows.shape[:1])


# (B, K) each: the log-probability of every step's node given its parent, and the mean of its siblings; what is stored.
path_steps = _operator(
    "path_steps",
    f"{_OPERANDS}, Tensor node, {_TREE}, str impl",
    "Tensor, Tensor, Tensor, Tensor",
    _run_steps,
    _steps_shapes,
)
# The sum or mean of the losses of all steps, the factors of its gradients, and what is stored.
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
    f"Tensor grads, {_OPERANDS}, Tensor stored, Tensor plan, {_TREE}, str impl",
    "Tensor, Tensor, Tensor",
    _run_gradients,
    _gradients_shapes,
)


def _call_below_autograd(operator: Any, arguments: tuple[Any, ...]) -> tuple[Tensor, ...]:
    # torch has no public name for it; `torch.library.register_autograd` does the same, but adds 10 % to a GPU step
    with torch._C._AutoDispatchBelowAutograd():  # noqa: SLF001
        results: tuple[Tensor, ...] = operator(*arguments)
    return results


def _forward(ctx: Any, operator: Any, arguments: tuple[Any, ...], differentiable: int) -> tuple[Tensor, ...]:
    """Call an operator whose first arguments are the operands and whose first results have gradients."""
    results = _call_below_autograd(operator, arguments)
    ctx.mark_non_differentiable(*results[differentiable:])
    ctx.save_for_backward(*arguments[:4], *results[2:], *results[differentiable:2])
    ctx.set_materialize_grads(False)  # else there would be zeros for what is stored, too
    ctx.num_others = len(arguments) - 4
    return results


def _backward(ctx: Any, grads: Tensor, *options: Any) -> tuple[Tensor | None, ...]:
    saved = ctx.saved_tensors[:6]
    grad_h, grad_rows, grad_bias = path_gradients(grads, *saved, *options)
    grad_vectors = (None if vector is None else grad_bias for vector in saved[2:4])
    return grad_h, grad_rows, *grad_vectors, *[None] * ctx.num_others


class _Steps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        ctx.options = arguments[5:]
        return _forward(ctx, path_steps, arguments, 2)

    @staticmethod
    def backward(ctx: Any, own_grad: Tensor | None, mean_grad: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        given = mean_grad if own_grad is None else own_grad
        assert given is not None
        pair = [torch.zeros_like(given) if grad is None else grad for grad in (own_grad, mean_grad)]
        return _backward(ctx, torch.stack(pair), *ctx.options)


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:
        ctx.options = arguments[9:]
        return _forward(ctx, path_loss, arguments, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: None) -> tuple[Tensor | None, ...]:
        h, *_, factors = ctx.saved_tensors
        steps = (len(h), len(ctx.options[1]) // 2)
        return _backward(ctx, (grad * factors).view(2, 1, 1).expand(2, *steps), *ctx.options, "triton")


class _Gradients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> tuple[Tensor, ...]:  # noqa: ARG004
        return _call_below_autograd(path_gradients, arguments)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        raise NotImplementedError(
            "a loss by paths has no second derivatives: use "
            "arbormax.functional.hierarchical_cross_entropy(F.linear(h, weight, bias), target, tax)"
        )


def _add_gradients(name: str, operator: Any, function: type[torch.autograd.Function]) -> None:
    def kernel(*arguments: Any) -> Any:
        if torch.is_grad_enabled():
            return function.apply(*arguments)  # type: ignore[no-untyped-call]
        return _call_below_autograd(operator, arguments)

    _LIBRARY.impl(name, kernel, "Autograd")  # type: ignore[no-untyped-call]


_add_gradients("path_steps", path_steps, _Steps)
_add_gradients("path_loss", path_loss, _Loss)
_add_gradients("path_gradients", path_gradients, _Gradients)
