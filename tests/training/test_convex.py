"""The convex solver: what it finds, its probabilities, and everything that a model can do afterwards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC
from torch.nn.functional import cross_entropy

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.errors import OptionError
from arbormax.model import load_model, save_model
from arbormax.model.settings import TrainConfig
from arbormax.training import fit
from arbormax.training.problems import SolverOptions, solve_rows
from arbormax.training.rivals import find_rivals

TREE = am.Taxonomy.from_nested({"animal": ["cat", "dog", "cow"], "plant": ["oak", "rose"], "stone": []})
WORDS = {
    "cat": ("purr", "paw", "fur"),
    "dog": ("bark", "paw", "fur"),
    "cow": ("milk", "horn", "fur"),
    "oak": ("leaf", "acorn", "wood"),
    "rose": ("leaf", "thorn", "petal"),
    "stone": ("hard", "grey", "round"),
}


def texts(count: int = 40, seed: int = 0) -> Examples:
    """Three words of a class and two of any class."""
    draw = np.random.default_rng(seed)
    every = [word for words in WORDS.values() for word in words]
    rows, nodes = [], []
    for name, words in WORDS.items():
        for _ in range(count):
            rows.append(" ".join([*draw.choice(words, 3), *draw.choice(every, 2)]))
            nodes.append(TREE.find(name))
    return Examples(rows, np.array(nodes))


def train(**settings: Any) -> am.model.Run:
    return fit(TrainConfig.make(encoder="tfidf", calibration="none", **settings), TREE, texts())


def predict(model: Any, inputs: list[str]) -> np.ndarray:
    """The most probable leaf of each text."""
    logp = torch.cat(list(model.node_log_probs(inputs)))
    nodes: np.ndarray = TREE.leaves[logp[:, torch.tensor(TREE.leaves)].argmax(1).numpy()]
    return nodes


def logits(model: Any, inputs: list[str]) -> np.ndarray:
    (features,) = model.features(inputs, 10_000)
    with torch.inference_mode():
        found: np.ndarray = model.head._linear(features).numpy()
    return found


def test_each_softmax_is_the_scaled_svm_of_its_parent() -> None:
    run = train(validation=0, strength=2.0, prune=0)
    examples = texts()
    (features,) = run.model.features(examples.inputs, 10_000)
    X = csr_matrix(features.to_dense().numpy().astype(np.float64))
    top = TREE.ancestor_at(examples.nodes, 1)
    below = np.flatnonzero(top == TREE.find("animal"))
    svm = LinearSVC(C=2.0, tol=1e-4).fit(X[below], examples.nodes[below])
    ours = logits(run.model, [examples.inputs[i] for i in below])[:, svm.classes_ - 1]
    assert np.allclose(ours / 3.0, svm.decision_function(X[below]), atol=0.02)


@pytest.mark.parametrize("head", ["hierarchical", "flat", "blended"])
def test_learns_and_gives_probabilities(head: str) -> None:
    run = train(head=head)
    assert run.curve[0]["accuracy"] > 0.8
    test = texts(seed=1)
    logp = torch.cat(list(run.model.node_log_probs(test.inputs)))
    assert torch.allclose(logp[:, torch.tensor(TREE.leaves)].exp().sum(1), torch.ones(len(test)), atol=1e-5)
    loss = -logp[torch.arange(len(test)), torch.from_numpy(test.nodes)].mean()
    assert loss < 0.7


def test_scales_make_the_held_out_loss_lower_than_other_scales() -> None:
    run = train(refit=False, validation=0.3)
    assert run.curve[0]["loss"] < train(refit=False, validation=0.3, strength=1e-3).curve[0]["loss"]
    for factor in (0.5, 2.0):
        head = run.model.head
        assert head.sparse_weight is not None
        assert head.bias is not None
        with torch.no_grad():
            head.sparse_weight.values.mul_(factor)
            head.bias.mul_(factor)
        _, held_out = am.data.folds.hold_out(texts(), 0.3, 0)
        assert held_out is not None
        logp = torch.cat(list(run.model.node_log_probs(held_out.inputs)))
        loss = -logp[torch.arange(len(held_out)), torch.from_numpy(held_out.nodes)].mean()
        assert float(loss) > run.curve[0]["loss"]
        with torch.no_grad():
            head.sparse_weight.values.div_(factor)
            head.bias.div_(factor)


def test_strength_auto_is_no_worse_than_the_default() -> None:
    # the loss that selects the strength is that of the softmaxes, without the rows of the classes of a blended head
    auto, default = (train(head="hierarchical", strength=strength) for strength in ("auto", None))
    assert auto.curve[0]["loss"] <= default.curve[0]["loss"] + 1e-6


@pytest.mark.parametrize("encoder", ["tfidf", "features"])
def test_the_search_for_the_strength_of_regression_starts_from_the_last_solution(
    monkeypatch: pytest.MonkeyPatch, encoder: str
) -> None:
    sizes, iterations = [], []
    regression = LogisticRegression.fit

    def count(self: LogisticRegression, *rest: Any, **more: Any) -> LogisticRegression:
        self.tol = 1e-6
        sizes.append(float(np.abs(getattr(self, "coef_", np.zeros(1))).max()))
        fitted = regression(self, *rest, **more)
        iterations.append(int(np.max(fitted.n_iter_)))
        return fitted

    def search(is_warm: bool) -> np.ndarray:
        with monkeypatch.context() as patch:
            patch.setattr(LogisticRegression, "fit", count)
            if not is_warm:
                patch.setattr("arbormax.training.problems._start", lambda *_: None)
            settings = {"solver": "convex", "strength": "auto", "convex_loss": "log", "prune": 0, "validation": 0.2}
            if encoder == "tfidf":
                run = train(head="hierarchical", **settings)
                return logits(run.model, texts(seed=1).inputs)
            nodes = np.repeat(TREE.leaves, 30)
            X = np.random.default_rng(0).normal(size=(len(nodes), 8)).astype(np.float32) + np.eye(8)[nodes % 8] * 2
            options = {"inputs": 8, "sparse": False}
            config = TrainConfig.make(encoder="features", encoder_options=options, head="hierarchical", **settings)
            return logits(fit(config, TREE, Examples(X.astype(np.float32), nodes)).model, X.astype(np.float32))

    cold = search(is_warm=False)
    cold_iterations = sum(iterations)
    assert not any(sizes)
    sizes.clear()
    iterations.clear()
    warm = search(is_warm=True)
    assert any(sizes)
    assert sum(iterations) < cold_iterations
    assert np.allclose(cold, warm, rtol=0.02, atol=0.02)


def test_same_settings_give_the_same_model_in_one_process_and_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("arbormax.training.convex.FEW_CLASSES", 0)  # so that each class has a problem, too
    one = train()
    monkeypatch.setattr("arbormax.training.convex._PARALLEL_WORK", 0.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    several = train()
    for name, tensor in one.model.state_dict().items():
        assert torch.equal(tensor, several.model.state_dict()[name]), name


def test_labels_at_inner_nodes_train_the_softmaxes_above() -> None:
    examples = texts()
    is_animal = TREE.ancestor_at(examples.nodes, 1) == TREE.find("animal")
    nodes = np.where(is_animal & (np.arange(len(examples)) % 2 == 0), TREE.find("animal"), examples.nodes)
    run = fit(TrainConfig.make(encoder="tfidf"), TREE, Examples(examples.inputs, nodes))
    test = texts(seed=1)
    assert (predict(run.model, test.inputs) == test.nodes).mean() > 0.8


def test_a_class_without_examples_is_unlikely_and_gets_a_row_from_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    examples = texts()
    rest = np.flatnonzero(examples.nodes != TREE.find("dog"))
    run = fit(TrainConfig.make(encoder="tfidf"), TREE, examples.take(rest))
    assert predict(run.model, ["bark paw fur"]) != TREE.find("dog")
    tree = TREE.with_texts({"dog": "bark paw fur"})
    run = fit(TrainConfig.make(encoder="tfidf"), tree, examples.take(rest))
    assert predict(run.model, ["bark bark bark paw"]) == TREE.find("dog")
    monkeypatch.setattr("arbormax.training.convex.FEW_CLASSES", 0)
    run = fit(TrainConfig.make(encoder="tfidf"), tree, examples.take(rest))
    assert predict(run.model, ["bark bark bark paw"]) == TREE.find("dog")


def test_a_class_without_examples_gets_a_row_from_its_name() -> None:
    examples = texts()
    rest = examples.take(np.flatnonzero(examples.nodes != TREE.find("dog")))
    assert predict(fit(TrainConfig.make(encoder="tfidf"), TREE, rest).model, ["dog dog paw"]) == TREE.find("dog")
    without = fit(TrainConfig.make(encoder="tfidf", names="none"), TREE, rest)
    assert predict(without.model, ["dog dog paw"]) != TREE.find("dog")


def test_examples_without_features_say_only_which_classes_occur() -> None:
    nodes = np.repeat(TREE.find_many(["cat", "dog", "oak"]), 5)
    X = csr_matrix(np.repeat([[0.0, 0.0], [0.0, 1.0]], [10, 5], axis=0).astype(np.float32))
    options = {"inputs": 2, "sparse": True}
    config = TrainConfig.make(encoder="features", encoder_options=options, head="hierarchical", validation=0)
    model = fit(config, TREE, Examples(X, nodes)).model
    logp = torch.cat(list(model.node_log_probs(X[:1])))[0]
    cat, dog, cow = logp[TREE.find_many(["cat", "dog", "cow"])].tolist()
    assert cat == dog > cow


def test_examples_of_weight_zero_are_not_used(capfd: pytest.CaptureFixture[str]) -> None:
    run = train(class_weight={"dog": 0.0}, names="none")
    assert predict(run.model, ["bark bark bark"]) != TREE.find("dog")
    assert not capfd.readouterr().err  # liblinear prints warnings


@pytest.mark.parametrize("few", [0, 200])
def test_a_blended_head_knows_branches_that_single_rows_cannot_separate(
    monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("arbormax.training.convex.FEW_CLASSES", few)
    tree = am.Taxonomy.from_nested({"equal": ["ab", "cd"], "crossed": ["ad", "cb"]})
    names = [name for name in tree.classes for _ in range(60)]
    examples = Examples([" ".join(name) for name in names], tree.find_many(names))
    settings = {"encoder_options": {"ngrams": 1, "char_ngrams": 0}, "validation": 0.2}
    plain, blended = (
        fit(TrainConfig.make(head=head, **settings), tree, examples) for head in ("hierarchical", "blended")
    )
    # no row can separate the branches, so half of the probability is in the wrong one
    assert plain.curve[0]["loss"] > 0.3
    assert blended.curve[0]["loss"] < plain.curve[0]["loss"] / 2
    assert blended.curve[0]["accuracy"] == 1.0


def test_the_blend_is_fitted_to_held_out_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("convex", "rivals"):
        monkeypatch.setattr(f"arbormax.training.{module}.FEW_CLASSES", 0)
    run, plain = train(validation=0.2), train(validation=0)
    assert float(plain.model.head.path_share) == pytest.approx(0.75)
    assert float(run.model.head.path_share) != pytest.approx(0.75)


@pytest.mark.parametrize(("count", "share"), [(64, 0.25), (65, 0.5), (200, 0.5), (201, 0.75)])
def test_the_share_of_the_path_grows_with_the_number_of_classes(count: int, share: float) -> None:
    names = [f"class{i}" for i in range(count)]
    tree = am.Taxonomy.from_nested({"first": names[::2], "second": names[1::2]})
    examples = Examples(names, tree.find_many(names))
    model = fit(TrainConfig.make(encoder="tfidf", validation=0), tree, examples).model
    assert float(model.head.path_share) == pytest.approx(share)


def test_few_classes_have_a_small_share_of_the_path_and_a_fitted_factor() -> None:
    model = train(validation=0.2, refit=False).model
    assert torch.equal(model.head.path_share, torch.tensor([0.25]))
    _, held_out = am.data.folds.hold_out(texts(), 0.2, 0)
    assert held_out is not None
    targets = torch.from_numpy(TREE.class_of[held_out.nodes])
    (features,) = model.features(held_out.inputs, 10_000)
    with torch.inference_mode():
        on_path, own = model.head.parts(features)
        losses = [float(cross_entropy(0.25 * on_path + factor * own, targets)) for factor in (0.5, 1.0, 2.0)]
    assert losses[1] == min(losses)


def test_rivals_are_not_examples_that_may_belong_to_the_class() -> None:
    run = train()
    examples = texts()
    nodes = np.where(examples.nodes == TREE.find("cow"), TREE.find("animal"), examples.nodes)
    (features,) = run.model.features(examples.inputs, 10_000)
    rivals = find_rivals(run.model.head, csr_matrix(features.to_dense().numpy()), nodes)
    assert len(rivals) == TREE.num_leaves
    for leaf, items in zip(TREE.leaves, rivals, strict=True):
        assert len(items)
        assert not np.isin(leaf, nodes[items])
        assert not (np.isin(TREE.find("animal"), nodes[items]) and TREE.parent[leaf] == TREE.find("animal"))


def test_a_row_is_regularised_less_in_the_direction_of_its_text() -> None:
    draw = np.random.default_rng(0)
    X = csr_matrix(draw.random((30, 12)).astype(np.float32))
    targets = (np.asarray(X[:, 0].todense()).ravel() > 0.5).astype(np.int64)
    text = csr_matrix(np.eye(1, 12, dtype=np.float32))
    options = SolverOptions("squared_hinge", 1.0, 0)
    plain, directed = (solve_rows(X, targets, 2, None, options, texts)[0] for texts in (None, text))
    assert directed.shape == plain.shape
    assert directed[1, 0] > 1.2 * plain[1, 0]


def test_class_weights_move_the_border() -> None:
    text = ["paw fur"]
    share = []
    for weight in (0.1, 10.0):
        run = train(class_weight={"cat": weight}, validation=0)
        share.append(next(run.model.node_log_probs(text))[0, TREE.find("cat")].item())
    assert share[0] < share[1]


def test_is_saved_loaded_edited_and_fine_tuned(tmp_path: Path) -> None:
    run = train()
    save_model(run.model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    inputs = texts(seed=1).inputs
    before = torch.cat(list(run.model.node_log_probs(inputs)))
    assert torch.equal(torch.cat(list(loaded.node_log_probs(inputs))), before)
    edited = am.edit(loaded.head).add("horse", under="animal").done()
    assert edited.head is not None
    assert edited.head.taxonomy.num_leaves == TREE.num_leaves + 1
    optimiser = torch.optim.SGD(run.model.head.parameters(), lr=1.0)
    features = run.model.encoder(*run.model.encoder.collate(run.model.encoder.encode(inputs)))
    target = torch.from_numpy(texts(seed=1).nodes)
    first = run.model.head.loss(features, target, target_kind="node")
    first.backward()
    optimiser.step()
    assert run.model.head.loss(features, target, target_kind="node") < first


def test_pruning_makes_the_model_smaller() -> None:
    full, small = (train(prune=size).model.head.sparse_weight for size in (0, 0.2))
    assert full is not None
    assert small is not None
    assert len(small.values) < len(full.values)


def test_dense_features_get_multinomial_regression() -> None:
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(3, 8))
    y = draw.integers(3, size=300)
    X = (centres[y] + draw.normal(size=(300, 8))).astype(np.float32)
    flat = am.HierarchicalClassifier(head="flat", scale=False, validation=0, strength=5.0).fit(X, y)
    size = float(np.square(X, dtype=np.float64).sum() / len(X))
    reference = LogisticRegression(C=5.0 / size, tol=1e-6, max_iter=1000).fit(X, y)
    assert np.allclose(flat.predict_proba(X), reference.predict_proba(X), atol=1e-2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": "bag", "solver": "convex"}, "trained with the head"),
        ({"encoder": "tfidf", "solver": "convex", "head": "shared"}, "cannot train the head 'shared'"),
        ({"encoder": "tfidf", "solver": "convex", "learning_rate": 0.1}, "learning_rate: not a setting"),
        ({"encoder": "tfidf", "solver": "convex", "label_smoothing": 0.1}, "label_smoothing: not a setting"),
        ({"encoder": "tfidf", "solver": "convex", "names": "tied"}, "names: not a setting"),
        ({"encoder": "tfidf", "solver": "adam", "strength": 3.0}, "strength: a setting of the convex solver"),
        ({"encoder": "tfidf", "strength": 0}, "strength"),
        ({"encoder": "tfidf", "strength": "weak"}, "strength"),
        ({"encoder": "tfidf", "convex_loss": "hinge"}, "convex_loss"),
        ({"encoder": "tfidf", "prune": -1}, "prune"),
    ],
)
def test_wrong_settings_are_errors(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TrainConfig.make(**settings).resolved()


def test_hints_name_the_convex_solver_only_where_it_is_possible() -> None:
    with pytest.raises(OptionError) as possible:
        TrainConfig.make(encoder="tfidf", strength=3.0, epochs=2).resolved()
    assert possible.value.fix == {"solver": "convex"}
    for settings in ({"encoder": "tfidf", "head": "shared"}, {"encoder": "bag"}):
        with pytest.raises(OptionError) as impossible:
            TrainConfig.make(strength=3.0, **settings).resolved()
        assert not impossible.value.fix


def test_auto_selects_adam_where_its_settings_are_given() -> None:
    assert TrainConfig.make(encoder="tfidf").resolved().solver == "convex"
    assert TrainConfig.make(encoder="tfidf", epochs=2).resolved().solver == "adam"
    assert TrainConfig.make(encoder="tfidf", head="shared").resolved().solver == "adam"
    assert TrainConfig.make(encoder="bag").resolved().solver == "adam"
