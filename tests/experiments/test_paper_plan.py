"""What a study may be, what cross-validation chooses, and where the files of a study are looked for."""

import json
from pathlib import Path

import numpy as np
import pytest
from small_study import BAG, LABELS, LSTM, ONE_BAG, SVC, put_split, put_vectors, study
from study import Arm, Study, choose
from study.choice import fold_curves
from study.files import find_tree, load_training_texts, resolve_paths
from study.jobs import Job

from arbormax.data.datasets import MissingDataError
from arbormax.errors import InputError, OptionError
from arbormax.model import TrainConfig

PAPER = Path(__file__).parents[2] / "experiments" / "paper"
ARM = Arm(name="bag", encoder="bag", grid={"learning_rate": [0.1, 0.2]}, settings={"schedule": "constant"})


def fold(number, rate, macro_f1, accuracy=None):
    """A fold's record with these curves."""
    pairs = zip(macro_f1, accuracy or macro_f1, strict=True)
    curve = [{"epoch": epoch, "macro_f1": f1, "accuracy": acc} for epoch, (f1, acc) in enumerate(pairs, start=1)]
    return {"fold": number, "point": {"learning_rate": rate}, "curve": curve}


def loaded(tmp_path, values):
    path = tmp_path / "r8.json"
    path.write_text(values if isinstance(values, str) else json.dumps(values), "utf-8")
    return Study.load(path)


# The choice


def test_the_choice_is_the_best_mean_over_the_folds_at_its_best_epoch():
    records = [
        fold(1, 0.1, [0.1, 0.9, 0.2], [0.3, 0.4, 0.5]),
        fold(0, 0.2, [0.5, 0.6, 0.7]),
        fold(0, 0.1, [0.3, 0.1, 0.4], [0.5, 0.6, 0.7]),
        fold(1, 0.2, [0.5, 0.6, 0.5]),
    ]
    choice = choose(ARM, records, 2)
    assert (choice.point, choice.epochs) == ({"learning_rate": 0.2}, 2)  # the single best epoch, 0.9, is of the other
    assert (choice.macro_f1, choice.accuracy) == pytest.approx((0.6, 0.6))
    assert [score["epochs"] for score in choice.scores] == [2, 2]
    assert [score["macro_f1"] for score in choice.scores] == pytest.approx([0.5, 0.6])
    assert [score["accuracy"] for score in choice.scores] == pytest.approx([0.5, 0.6])
    assert json.loads(json.dumps(choice.to_dict()))["point"] == {"learning_rate": 0.2}


def test_only_epochs_of_all_folds_count():
    table = fold_curves([fold(0, 0.1, [0.8, 0.2])["curve"], fold(1, 0.1, [0.1, 0.2, 0.3, 0.7])["curve"]], "macro_f1")
    np.testing.assert_array_equal(table, [[0.8, 0.2], [0.1, 0.2]])
    arm = ARM.model_copy(update={"grid": {"learning_rate": [0.1]}})
    choice = choose(arm, [fold(0, 0.1, [0.8, 0.2]), fold(1, 0.1, [0.1, 0.2, 0.3, 0.9])], 2)
    assert (choice.epochs, choice.macro_f1) == (1, pytest.approx(0.45))


def test_without_early_the_last_epoch_is_selected():
    arm = ARM.model_copy(update={"early": False})
    records = [fold(n, rate, curve) for n in (0, 1) for rate, curve in ((0.1, [0.9, 0.3]), (0.2, [0.1, 0.4]))]
    choice = choose(arm, records, 2)
    assert (choice.point, choice.epochs, choice.macro_f1) == ({"learning_rate": 0.2}, 2, pytest.approx(0.4))


def test_the_first_of_equal_points_is_selected():
    records = [fold(n, rate, [0.1, 0.5, 0.5]) for n in (0, 1) for rate in (0.2, 0.1)]
    choice = choose(ARM, records, 2)
    assert (choice.point, choice.epochs) == ({"learning_rate": 0.1}, 2)


def test_a_missing_fold_is_an_error():
    with pytest.raises(InputError, match=r"bag has 1 of 2 folds at \{'learning_rate': 0.2\}"):
        choose(ARM, [fold(0, 0.1, [0.5]), fold(1, 0.1, [0.5]), fold(1, 0.2, [0.5])], 2)


# The plan


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"dataset": "r88", "arms": [BAG]}, "found 'r88'; did you mean 'r8'"),
        ({"dataset": "icd10cm", "arms": [BAG]}, "expected one of trec, 20ng, r8, r52, found 'icd10cm'"),
        ({"arms": [BAG]}, "needs the option 'dataset'$"),
        ({"dataset": "r8", "arms": []}, "at least one arm"),
        ({"dataset": "r8", "arms": [BAG], "fold": 3}, "no option 'fold'; did you mean 'folds'"),
        ({"dataset": "r8", "arms": [BAG], "folds": 1}, "folds: .* 2, found 1"),
        ({"dataset": "r8", "arms": [BAG, SVC, BAG]}, "must differ, found bag, svc, bag"),
        ({"dataset": "r8", "arms": [{"name": "bag"}]}, "arm 0 needs the option 'encoder'"),
        ({"dataset": "r8", "arms": [{**BAG, "setings": {}}]}, "arm 0 has no option 'setings'; did you mean 'settings'"),
        ({"dataset": "r8", "arms": [BAG, {**SVC, "tree": "deep"}]}, "r8 has no tree 'deep'"),
        ({"dataset": "r8", "arms": [{**BAG, "heads": ["flet"]}]}, r"arms\.0\.heads\.0: .*found 'flet'"),
        ({"dataset": "r8", "arms": [{**BAG, "name": "../bag"}]}, r"arms\.0\.name: .*found '\.\./bag'"),
        ({"dataset": "r8", "arms": [{**BAG, "encoder": "bug"}]}, "'bug'.*did you mean 'bag'"),
        ({"dataset": "r8", "arms": [{**BAG, "preset": "papr"}]}, "did you mean 'paper'"),
        ({"dataset": "r8", "arms": [{**BAG, "settings": {"epoch": 3}}]}, "no option 'epoch'; did you mean 'epochs'"),
        ({"dataset": "r8", "arms": [{**BAG, "settings": {"encoder_options.dims": 3}}]}, "did you mean 'dim'"),
        ({"dataset": "r8", "arms": [{**BAG, "settings": {"encoder_option.dim": 3}}]}, "no option 'encoder_option.dim'"),
        ({"dataset": "r8", "arms": [{**BAG, "settings": {"gamma": 1.0}}]}, "gamma: acts on sibling groups"),
        ({"dataset": "r8", "arms": [{**BAG, "grid": {"epochs": []}}]}, "the grid of bag has no value for epochs"),
        ({"dataset": "r8", "arms": [{**BAG, "grid": {"epochs": [1, 0]}}]}, "epochs: .*found 0"),
        ({"dataset": "r8", "arms": [{**BAG, "grid": {"epochs": [2, 2]}}]}, "the same point twice"),
        ({"dataset": "r8", "arms": [{**BAG, "heads": ["svc"]}]}, "to no other; found svc"),
        ({"dataset": "r8", "arms": [{**SVC, "heads": ["flat"]}]}, "to no other; found flat"),
        ({"dataset": "r8", "arms": [{**SVC, "early": True}]}, "svc has no epochs to select from: set early to false"),
    ],
)
def test_an_error_in_a_plan_names_its_file(tmp_path, values, message):
    with pytest.raises(OptionError, match=message) as caught:
        loaded(tmp_path, values)
    assert str(caught.value).startswith(f"{tmp_path / 'r8.json'}: ")
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_without_a_study_is_an_error(tmp_path):
    with pytest.raises(InputError, match=r"r8\.json is not JSON"):
        loaded(tmp_path, '{"dataset": ')
    with pytest.raises(InputError, match=r"r8\.json contains no JSON object"):
        loaded(tmp_path, "[]")
    with pytest.raises(InputError, match=r"r52\.json does not exist"):
        Study.load(tmp_path / "r52.json")


def test_a_plan_is_read_from_json(tmp_path):
    assert loaded(tmp_path, {"dataset": "r8", "folds": 2, "arms": [BAG, SVC]}) == study()


def test_only_selects_each_named_arm_once(tmp_path):
    plan = study(BAG, SVC, LSTM)
    assert [arm.name for arm in plan.only(["lstm", "bag", "lstm"]).arms] == ["lstm", "bag"]
    with pytest.raises(OptionError, match="expected arms of r8 \\(bag, svc, lstm\\), found 'bga'; did you mean 'bag'"):
        plan.only(["bga"])
    with pytest.raises(OptionError, match="expected at least one arm of bag, svc, lstm"):
        plan.only([])


def test_each_point_of_the_grid_has_a_file():
    arm = Arm(**{**BAG, "grid": {"encoder_options.dim": [4, 8], "tau": [0.0]}, "heads": ["hierarchical"]})
    assert arm.points == [{"encoder_options.dim": 4, "tau": 0.0}, {"encoder_options.dim": 8, "tau": 0.0}]
    names = [Job(study(arm), arm, "hierarchical", point, fold=1).file for point in arm.points]
    assert names == [f"r8/folds/bag-hierarchical-dim{dim}-tau0.0-fold1.json" for dim in (4, 8)]


def test_a_value_with_a_slash_stays_in_one_file_name():
    plan = study(ONE_BAG)
    job = Job(plan, plan.arms[0], "flat", {"encoder_options.model": "maker/model"}, fold=0)
    assert job.file.startswith("r8/folds/bag-flat-modelmaker")
    assert job.file.count("/") == 2


@pytest.mark.parametrize("count", [8, 20, 100])
def test_a_study_of_some_rows_has_every_label(tmp_path, monkeypatch, count):
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    put_split(tmp_path, "train", 96)
    plan = study(ONE_BAG, rows=count)
    _, train = load_training_texts(plan, plan.arms[0])
    assert len(train) == min(count, 96)
    assert len(set(train.nodes.tolist())) == len(LABELS)


def test_the_quick_study_is_small():
    quick = Study.load(PAPER / "trec.json").quick()
    (arm,) = quick.arms
    assert (arm.name, arm.heads, arm.points, arm.seeds) == ("bilstm", ("flat", "hierarchical"), [{}], 1)
    assert (quick.folds, quick.rows) == (2, 2000)
    config = arm.config("flat", {}, 0)
    assert (config.epochs, config.schedule, config.encoder_options["vectors"]) == (8, "constant", "glove.6B")
    with pytest.raises(OptionError, match="found 'bilstm'"):
        study(BAG).quick()


# The paper's protocol


@pytest.mark.parametrize("name", ["trec", "20ng", "r8", "r52"])
@pytest.mark.parametrize("encoder", ["bilstm", "lstm"])
def test_the_studies_follow_the_protocol_of_the_paper(name, encoder):
    plan = Study.load(PAPER / f"{name}.json")
    arm = plan.arm(encoder)
    assert (plan.dataset, plan.folds, plan.rows, arm.encoder, arm.tree) == (name, 4, None, encoder, "paper")
    assert set(arm.heads) == {"flat", "hierarchical", "shared"}
    assert arm.seeds >= 10
    hidden = set()
    for head in arm.heads:
        for point in arm.points:
            config = arm.config(head, point, 3)
            options = config.options
            assert (config.encoder, config.head, config.seed) == (encoder, head, 3)
            assert (config.learning_rate, config.head_learning_rate, config.schedule) == (1e-3, 1e-3, "constant")
            assert (config.warmup, config.weight_decay, config.batch_size, config.clip) == (0.0, 0.0, 10, 5.0)
            assert (options.dropout, options.tokens, options.vectors) == (0.5, "whitespace", "glove.6B")
            hidden.add(options.hidden)
    assert hidden == {100, 150}
    job = Job(plan, arm, "flat", arm.points[0], fold=0)
    assert job.config.patience == arm.config("flat", arm.points[0], 0).patience


@pytest.mark.parametrize("name", ["trec", "20ng", "r8", "r52"])
def test_the_number_of_epochs_is_selected_only_with_a_constant_rate(name):
    for arm in Study.load(PAPER / f"{name}.json").arms:
        if arm.early:
            assert {arm.config(head, point, 0).schedule for head in arm.heads for point in arm.points} == {"constant"}


def test_the_deeper_tree_has_the_classes_of_the_paper_in_their_order():
    assert find_tree("r52", "deep").classes == find_tree("r52", "paper").classes
    with pytest.raises(OptionError, match="r8 has no tree 'deep'"):
        find_tree("r8", "deep")


# Word vectors and models


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    return tmp_path


def vectors_of(**options):
    config = TrainConfig.make(encoder="lstm", encoder_options={"vectors": "glove.6B", **options})
    return resolve_paths(config).encoder_options


def test_the_best_existing_vectors_are_used(root):
    for name in ("glove.6B.100d.subset.npz", "glove.6B.100d.txt", "glove.6B.300d.txt"):
        path = put_vectors(root, name)
        assert vectors_of(hidden=4) == {"hidden": 4, "vectors": str(path)}
    (root / "glove" / "glove.6B.300d.txt").unlink()
    (root / "glove" / "glove.6B.zip").write_bytes(b"")
    assert vectors_of() == {"vectors": str(root / "glove" / "glove.6B.zip"), "dim": 300}


def test_missing_vectors_are_an_error_with_their_paths(root):
    with pytest.raises(MissingDataError) as caught:
        vectors_of()
    for name in ("glove.6B.300d.txt", "glove.6B.100d.txt", "glove.6B.100d.subset.npz"):
        assert str(root / "glove" / name) in str(caught.value)


def test_vectors_given_as_a_file_are_used(root):
    assert vectors_of(vectors="/some/where.txt") == {"vectors": "/some/where.txt"}


def test_a_local_model_is_used_if_it_exists(root):
    config = TrainConfig.make(encoder="transformer", encoder_options={"model": "maker/small"})
    assert resolve_paths(config) == config
    (root / "models" / "small").mkdir(parents=True)
    assert resolve_paths(config).encoder_options == {"model": str(root / "models" / "small")}
    assert config.encoder_options == {"model": "maker/small"}
