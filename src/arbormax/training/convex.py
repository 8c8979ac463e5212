"""Train a head on fixed features with a convex solver: no learning rate, no epochs, the same result for any order.

The hierarchical softmax falls apart into one independent problem for each parent, which are solved in parallel. The
scores of each become probabilities by a scale that is fitted on held-out examples. n examples, D features, M rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from arbormax.data.examples import Examples
from arbormax.data.folds import choose_held_out
from arbormax.data.ragged import Ragged
from arbormax.errors import OptionError, import_extra
from arbormax.heads.base import SoftmaxGroup
from arbormax.heads.blended import BlendedSoftmax
from arbormax.metrics import evaluate
from arbormax.model.network import Model, evaluating
from arbormax.model.node_texts import node_vectors
from arbormax.model.run import Run
from arbormax.model.settings import TrainConfig
from arbormax.taxonomy import Taxonomy
from arbormax.training.class_weights import class_weights
from arbormax.training.problems import (
    Problem,
    Solution,
    SolverOptions,
    choose_scales,
    make_problems,
    solve,
)
from arbormax.training.rivals import FEW_CLASSES, default_blend, find_rivals, fit_blend, solve_class, tensors

_STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)  # tried with strength="auto", from the strongest regularisation
_DEFAULT_SCALE = {"squared_hinge": 3.0, "log": 1.0}  # used if nothing is held out
_PARALLEL_WORK = 2e8  # products of stored values and outputs from which further processes pay
_ROWS = 4096  # examples that are encoded together


def fit_convex(
    config: TrainConfig,
    taxonomy: Taxonomy,
    train: Examples,
    valid: Examples | None = None,
    *,
    progress: bool = False,
    on_selected: Callable[[Model, Examples], None] | None = None,
    on_step: Callable[[], None] | None = None,
) -> Run:
    """Train a model whose features are fixed; `config` is resolved.

    The held-out examples select the strength of the regularisation, the scales of the softmaxes and the blend of a
    blended head. With `config.refit`, the weights are then solved for again on all examples. `on_selected` is called
    before that with the model and the held-out examples, and `on_step` after each problem is solved.
    """
    start = time.perf_counter()
    assert config.convex_loss is not None
    apart = np.zeros(0, np.int64)
    if valid is None and config.validation:
        apart = choose_held_out(train.nodes, config.validation, config.seed)
        valid = train.take(apart)
    is_refit = config.refit and len(apart) > 0
    if config.uses_names:
        train = _add_node_texts(train, taxonomy)
    every = np.arange(len(train))
    part = np.setdiff1d(every, apart)
    if is_refit or not len(apart):
        model, rows = Model.new_with_rows(train.inputs, taxonomy, config)
    else:  # the vocabulary is that of the texts that are trained on
        model, rows = Model.new_with_rows(train.take(part).inputs, taxonomy, config)[0], None
    X = _features(model, train.inputs, rows)
    valid_X = None if valid is None else X[apart] if len(apart) else _features(model, valid.inputs)
    with _progress(progress, on_step) as report:
        solver = _Solver(model, config, X, train.nodes, valid_X, valid, report)
        if config.uses_names and not isinstance(X, np.ndarray):
            solver.texts = _to_scipy([node_vectors(model)])
        strength = solver.choose_strength(part)
        solver.set_head(part)
        curve = () if valid is None else (_measure(model, valid_X, valid.nodes),)
        if valid is not None and on_selected is not None:
            on_selected(model, valid)
        if is_refit:
            solver.solve(strength, every)
            solver.set_head(every)
    model.eval()
    model.row_counts = model.count_rows(train.nodes if is_refit else train.nodes[part])
    score = curve[0]["macro_f1"] if curve else None
    return Run(
        model,
        epochs=1,
        best_epoch=1,
        valid_macro_f1=score,
        seconds=time.perf_counter() - start,
        curve=curve,
        refit_epochs=1 if is_refit else None,
    )


def _add_node_texts(examples: Examples, taxonomy: Taxonomy) -> Examples:
    """The examples and the text of each node below the root as an example of that node."""
    nodes = np.arange(1, taxonomy.num_nodes)
    return Examples([*examples.inputs, *taxonomy.texts[1:]], np.concatenate([examples.nodes, nodes]))


class _Solver:
    """Solves for the rows of a head.

    The first solution determines the scales, the rivals of the classes and the blend, with the held-out examples if
    there are some.
    """

    options: SolverOptions
    solutions: Sequence[Solution] = ()  # of the softmaxes, from which the next ones start
    scales: dict[int, float] | None = None
    texts: Any = None  # (N, D) vectors of the texts of the nodes
    rivals: list[np.ndarray] | None = None  # of each class, among all examples
    blend: tuple[float, float] | None = None

    def __init__(
        self,
        model: Model,
        config: TrainConfig,
        X: Any,
        nodes: np.ndarray,
        valid_X: Any,
        valid: Examples | None,
        report: Any,
    ) -> None:
        self.model, self.config, self.report = model, config, report
        self.X, self.nodes, self.valid_X, self.valid = X, nodes, valid_X, valid

    def choose_strength(self, items: np.ndarray) -> float:
        """Solve with the strength of the settings, or that of the lowest held-out loss."""
        assert self.config.strength is not None
        if self.config.strength != "auto":
            self.solve(self.config.strength, items)
            return self.config.strength
        if self.valid is None:
            raise OptionError("needs held-out examples", argument="strength", fix={"validation": 0.1})
        best, lowest = None, np.inf
        for strength in _STRENGTHS:
            self.solve(strength, items)
            loss = np.sum([solution.losses for solution in self.solutions], axis=0).min()
            if best is not None and loss >= lowest:
                break  # the held-out loss of a convex problem rises once the regularisation is too weak
            best, lowest = (self.options, self.solutions), loss
        assert best is not None
        self.options, self.solutions = best
        return self.options.strength

    def solve(self, strength: float, items: np.ndarray) -> None:
        """Solve for the rows of all softmaxes on these examples."""
        assert self.config.convex_loss is not None
        self.options = SolverOptions(self.config.convex_loss, strength, self.config.seed)
        head, tax = self.model.head, self.model.taxonomy
        groups = head.softmax_groups(tax)
        if not self.config.parent_prior or isinstance(head, BlendedSoftmax):  # whose rows of classes have priors
            self.solutions = self._solve_groups(groups, items)
            return
        found: list[Solution] = []
        for depth in range(1, tax.depth + 1):
            level = [each for each in groups if tax.node_depth[each.nodes[0]] == depth]
            found += self._solve_groups(level, items, self._find_priors(found))
        self.solutions = found

    def _find_priors(self, solutions: Sequence[Solution]) -> Any:
        """(N, D) for each node, what its row is drawn towards: a multiple of the row of its parent; None if all are
        zero."""
        if not self.config.parent_prior or not solutions:
            return None
        sparse = import_extra("scipy.sparse", "a convex solver", "scipy", "sklearn")
        tax = self.model.taxonomy
        nodes, columns, values = self._values([(each, self.config.parent_prior) for each in solutions])
        shape = tax.num_nodes, self.X.shape[1]
        rows = sparse.csr_matrix((values, (nodes + 1, columns)), shape=shape)  # row j of these heads is of node j + 1
        return rows[np.maximum(tax.parent, 0)]  # that of the root is zero

    def _solve_groups(self, groups: list[SoftmaxGroup], items: np.ndarray, priors: Any = None) -> list[Solution]:
        valid_nodes = np.zeros(0, np.int64) if self.valid is None else self.valid.nodes
        problems = make_problems(groups, self.model.taxonomy, self.nodes[items], valid_nodes)
        # the largest first, so that the last to finish is a small one
        problems = sorted((replace(each, items=items[each.items]) for each in problems), key=_size, reverse=True)
        weights = self._item_weights(items)
        found = {int(each.rows[0]): each for each in self.solutions} if self.options.loss == "log" else {}
        calls = (
            (
                *(solve, each, self.X, self.valid_X, weights, self.texts, self.options),
                *(found.get(int(each.group.rows[0])), None if priors is None else priors[each.group.nodes]),
            )
            for each in problems
        )
        return self._run(calls, len(problems), sum(map(_size, problems)))

    def set_head(self, items: np.ndarray) -> None:
        """Write the solutions into the head; the rows of the classes are solved for on these examples."""
        if self.scales is None:
            self.scales = choose_scales(self.solutions, _DEFAULT_SCALE[self.options.loss])
        rows = [(each, self.scales[int(each.rows[0])]) for each in self.solutions]
        head = self.model.head
        if isinstance(head, BlendedSoftmax):
            rows += self._blended_rows(head, rows, items)
        self._set_rows(rows)

    def _blended_rows(
        self, head: BlendedSoftmax, rows: list[tuple[Solution, float]], items: np.ndarray
    ) -> list[tuple[Solution, float]]:
        """The rows of the classes with their factor; sets the share of the path."""
        if self.rivals is None and head.taxonomy.num_leaves > FEW_CLASSES:
            self._set_rows(rows)
            self.rivals = find_rivals(head, self.X, self.nodes)
        classes = self._solve_classes(head, items)
        if self.blend is None:
            self.blend = default_blend(head, self.options.loss)
            if self.valid is not None:
                self._set_rows([*rows, *((each, 1.0) for each in classes)])
                self.blend = fit_blend(head, self.valid_X, self.valid.nodes, self.blend)
        share, factor = self.blend
        with torch.no_grad():
            head.path_share.fill_(share)
        return [(each, factor) for each in classes]

    def _solve_classes(self, head: BlendedSoftmax, items: np.ndarray) -> list[Solution]:
        """The rows of the classes, each of which separates a class from its rivals, or few classes from all others."""
        tax, priors = head.taxonomy, self._find_priors(self.solutions)
        if self.rivals is None:
            return self._solve_groups([SoftmaxGroup(tax.leaves, head.class_rows(tax))], items, priors)
        order = items[np.argsort(self.nodes[items], kind="stable")]
        bounds = np.searchsorted(self.nodes[order], [tax.leaves, tax.leaves + 1])
        own = [order[start:end] for start, end in bounds.T]
        is_used = np.isin(np.arange(len(self.nodes)), items)
        rivals = [each[is_used[each]] for each in self.rivals]
        weights = self._item_weights(items)
        calls = (
            (
                *(solve_class, *each, self.X, weights, None if self.texts is None else self.texts[[leaf]]),
                *(self.options, None if priors is None else priors[[leaf]]),
            )
            for leaf, *each in zip(tax.leaves, head.class_rows(tax), own, rivals, strict=True)
        )
        return self._run(calls, tax.num_leaves, sum(map(len, [*own, *rivals])))

    def _item_weights(self, items: np.ndarray) -> np.ndarray | None:
        """(n,) the weight of every example, with the class weights of these ones."""
        weights = class_weights(self.config, self.nodes[items], self.model.taxonomy)
        return None if weights is None else _item_weights(weights.numpy(), self.nodes, self.model.taxonomy)

    def _run(self, calls: Iterable[tuple[Any, ...]], count: int, size: int) -> list[Solution]:
        """The results of calls of functions, in several processes if there are enough rows and outputs."""
        work = size * self.X.size / max(self.X.shape[0], 1)
        jobs = min(count, torch.get_num_threads()) if work > _PARALLEL_WORK else 1
        joblib = import_extra("joblib", "a convex solver", "joblib", "sklearn")
        tasks = (joblib.delayed(function)(*rest) for function, *rest in calls)
        solutions: Iterable[Solution] = joblib.Parallel(n_jobs=jobs, return_as="generator")(tasks)
        return list(self.report(solutions, count))

    @torch.no_grad()
    def _set_rows(self, solutions: Sequence[tuple[Solution, float]]) -> None:
        """Write solutions into the head, each multiplied by its scale, without values up to the limit of pruning."""
        head = self.model.head
        assert head.bias is not None
        head.bias.zero_()  # of outputs without siblings
        for solution, scale in solutions:
            head.bias[torch.from_numpy(solution.rows)] = torch.from_numpy(scale * solution.bias)
        rows, columns, values = self._values(solutions)
        if head.sparse_weight is not None:
            head.sparse_weight.set_rows(rows, columns, values)
        else:
            head.weight.zero_()
            head.weight[torch.from_numpy(rows), torch.from_numpy(columns)] = torch.from_numpy(values).to(head.weight)

    def _values(self, solutions: Sequence[tuple[Solution, float]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The values above the limit of pruning, each multiplied by its scale, with their rows and columns."""
        rows, columns, values = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0, np.float32)]
        for solution, scale in solutions:
            outputs, places = (np.abs(solution.weight) > self.config.prune).nonzero()
            rows.append(solution.rows[outputs])
            columns.append(solution.columns[places])
            values.append(scale * solution.weight[outputs, places])
        return np.concatenate(rows), np.concatenate(columns), np.concatenate(values)


def _size(problem: Problem) -> int:
    """The number of rows times that of outputs."""
    return len(problem.items) * len(problem.group.nodes)


def _features(model: Model, inputs: Any, rows: Ragged | None = None) -> Any:
    """The features of inputs, which may be encoded already, as a dense array or a scipy CSR matrix."""
    if rows is None:
        parts = list(model.features(inputs, _ROWS))
    else:
        chunks = np.array_split(np.arange(len(rows)), -(-len(rows) // _ROWS))
        with evaluating(model):
            parts = [model.encoder(*model.encoder.collate(rows.take(chunk))) for chunk in chunks]
    return torch.cat(parts).numpy() if parts[0].layout == torch.strided else _to_scipy(parts)


def _to_scipy(parts: Sequence[torch.Tensor]) -> Any:
    """The rows of sparse tensors as a CSR matrix."""
    sparse = import_extra("scipy.sparse", "a convex solver", "scipy", "sklearn")
    stored = [part.coalesce() for part in parts]
    blocks = [
        sparse.coo_matrix((part.values().numpy(), tuple(part.indices().numpy())), shape=part.shape).tocsr()
        for part in stored
    ]
    return sparse.vstack(blocks, format="csr")


def _item_weights(class_weight: np.ndarray, nodes: np.ndarray, tax: Taxonomy) -> np.ndarray:
    """(n,) the weight of each label; that of an inner node is the mean of the classes below it."""
    total = np.zeros(tax.num_nodes)
    total[tax.leaves] = class_weight
    for node in range(tax.num_nodes - 1, 0, -1):
        total[tax.parent[node]] += total[node]
    weights: np.ndarray = (total / tax.leaf_counts)[nodes]
    return weights


def _measure(model: Model, X: Any, nodes: np.ndarray) -> dict[str, float]:
    """The measures of an epoch on the held-out examples."""
    tax, head = model.taxonomy, model.head
    predicted, loss, done = [], 0.0, 0
    with evaluating(head):
        for features in tensors(head, X):
            target = torch.from_numpy(nodes[done : done + len(features)])
            loss += float(head.loss(features, target, "sum", target_kind="node"))
            predicted.append(head.predict(features))
            done += len(features)
    found = evaluate(nodes, tax.leaves[torch.cat(predicted).numpy()], tax)
    return {"loss": loss / len(nodes), **{name: float(found[name]) for name in ("macro_f1", "accuracy", "hf")}}


@contextmanager
def _progress(is_shown: bool, on_step: Callable[[], None] | None) -> Iterator[Any]:
    """A function that passes solutions on; it shows a bar and calls `on_step` for each of them."""

    def passed(solutions: Iterable[Solution], _: int) -> Iterator[Solution]:
        for solution in solutions:
            if on_step is not None:
                on_step()
            yield solution

    if not is_shown:
        yield passed
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        yield lambda solutions, total: bars.track(passed(solutions, total), total=total, description="Solving")
