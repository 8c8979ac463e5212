"""Replace the last linear layer of a network with a head."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear

from arbormax.errors import InputError, OptionError, did_you_mean
from arbormax.heads import HEADS
from arbormax.heads.base import TreeHead, check_taxonomy
from arbormax.heads.blended import BlendedSoftmax
from arbormax.taxonomy import Taxonomy

_OPTIONS = ("init", "adapter")


def replace_head(
    model: nn.Module,
    tax: Taxonomy,
    head: str = "hierarchical",
    *,
    name: str | None = None,
    keep_rows: bool = True,
    **options: Any,
) -> nn.Module:
    """Replace the last `nn.Linear` of a model, which must have one output per class, with a head.

    The model is changed in place and returned; for a bare `nn.Linear`, the head is returned. The rows of the old layer
    become the rows of the leaves, matched by class order, and inner nodes start at zero, unless `keep_rows=False`.

    Args:
        model: any module, also a bare `nn.Linear`.
        tax: the taxonomy, with its classes in the order of the layer's outputs.
        head: the name of a head in `arbormax.heads.HEADS`.
        name: the layer to replace, as named by `model.named_modules()`; by default the layer of `get_classifier`, as
            in timm, or the last linear layer.
        keep_rows: whether the leaves start from the rows of the old layer.
        options: options of the head, such as `init="paper"`.

    >>> import arbormax as am
    >>> tax = am.Taxonomy.from_nested({"animal": ["cat", "dog"], "plant": ["oak"]})
    >>> model = am.replace_head(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), tax)
    >>> type(model[2]).__name__
    'HierarchicalSoftmax'
    """
    HEADS.check(head)
    for option in options:
        if option not in _OPTIONS:
            hint = did_you_mean(option, (*_OPTIONS, "head", "name", "keep_rows"))
            raise OptionError(f"replace_head has no option {option!r}{hint}")
    if keep_rows:
        options.setdefault("init", "zeros")
    name, old = _choose(model, check_taxonomy(tax), name)
    new = HEADS[head](
        old.in_features, tax, bias=old.bias is not None, device=old.weight.device, dtype=old.weight.dtype, **options
    )
    if keep_rows:
        _copy_rows(old, new)
    new.train(old.training)
    if old is model:
        return new
    places = [path for path, module in model.named_modules(remove_duplicate=False) if module is old]
    for path in places:
        model.set_submodule(path, new)
    return model


def _choose(model: nn.Module, tax: Taxonomy, name: str | None) -> tuple[str, nn.Linear]:
    """The layer to replace: the named one, or the last linear layer if it is unambiguous."""
    linears = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and not isinstance(module, NonDynamicallyQuantizableLinear)
    }
    if not linears:
        has_head = any(isinstance(module, TreeHead) for module in model.modules())
        hint = "; it already has a head of arbormax" if has_head else ""
        raise InputError(f"{type(model).__name__} has no nn.Linear to replace{hint}", argument="model")
    listed = ", ".join(
        f"{path or '(the model itself)'!r} ({layer.out_features} outputs)" for path, layer in linears.items()
    )
    if name is not None:
        if name not in linears:
            raise InputError(
                f"no nn.Linear has the name {name!r}{did_you_mean(name, linears)}; the linear layers: {listed}",
                argument="name",
            )
    elif (found := _declared_classifier(model, linears)) is not None:
        name = found
    else:
        fitting = [path for path, layer in linears.items() if layer.out_features == tax.num_leaves]
        name = list(linears)[-1]
        if len(fitting) > 1 and not _runs_in_order(model):
            candidates = ", ".join(map(repr, fitting))
            raise InputError(
                f"{len(fitting)} linear layers have one output for each of {tax.num_leaves} classes: {candidates}",
                fix={"name": tuple(fitting)},
            )
        if fitting and name not in fitting:
            raise InputError(
                f"the last nn.Linear, {name!r}, has {linears[name].out_features} outputs, but the taxonomy has "
                f"{tax.num_leaves} classes; the linear layers: {listed}",
                fix={"name": fitting[-1]},
            )
    layer = linears[name]
    if isinstance(layer.weight, nn.UninitializedParameter):
        raise InputError(f"the layer {name!r} is lazy and has no size yet; run the model once first")
    if layer.out_features != tax.num_leaves:
        hint = f"; call model.reset_classifier({tax.num_leaves}) first" if hasattr(model, "reset_classifier") else ""
        raise InputError(
            f"the layer {name!r} has {layer.out_features} outputs, but the taxonomy has {tax.num_leaves} classes{hint}"
            f"; the linear layers: {listed}"
        )
    return name, layer


def _declared_classifier(model: nn.Module, linears: dict[str, nn.Linear]) -> str | None:
    """The name of the layer that `get_classifier` returns, a method of the models of timm."""
    if not callable(get_classifier := getattr(model, "get_classifier", None)):
        return None
    classifier = get_classifier()
    if isinstance(classifier, nn.Identity):
        raise InputError(f"{type(model).__name__} has no classifier; call model.reset_classifier(classes) first")
    return next((path for path, layer in linears.items() if layer is classifier), None)


def _runs_in_order(model: nn.Module) -> bool:
    """Whether the layers run in the order in which they are registered."""
    return all(isinstance(module, nn.Sequential) for module in model.modules() if any(True for _ in module.children()))


def _copy_rows(old: nn.Linear, new: TreeHead) -> None:
    rows = torch.from_numpy(new.class_rows(new.taxonomy)).to(old.weight.device)
    with torch.no_grad():
        new.weight[rows] = old.weight
        if old.bias is not None and new.bias is not None:
            new.bias[rows] = old.bias
            if isinstance(new, BlendedSoftmax):  # all classes have the same probability on their paths
                steps = torch.from_numpy(np.log(new.taxonomy.leaf_counts[1:]))
                new.bias[: len(steps)] = steps.to(new.bias)
