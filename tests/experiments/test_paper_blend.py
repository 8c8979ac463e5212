"""A blend: the weighted mean of what other arms found, chosen and measured as they are."""

import json

import numpy as np
import pytest
from small_study import BAG, ONE_BAG, put_split, records, run, study
from study import Study, StudyError

from arbormax.errors import OptionError

ONE = {**ONE_BAG, "early": False, "keep": True}
OTHER = {**ONE, "name": "other", "settings": {**ONE["settings"], "learning_rate": 0.1}}
BLEND = {
    "name": "blend",
    "encoder": "blend",
    "of": ["bag", "other"],
    "heads": ["flat"],
    "early": False,
    "grid": {"weights": [[1.0, 0.0], [0.5, 0.5], [0.25, 0.75]]},
    "seeds": 1,
}


@pytest.fixture(autouse=True)
def data(tmp_path, monkeypatch):
    root = tmp_path / "data"
    monkeypatch.setenv("ARBORMAX_DATA", str(root))
    put_split(root, "train")
    put_split(root, "test", 24, seed=1)
    return root


def test_a_blend_is_the_weighted_mean_of_its_arms(tmp_path):
    assert run(study(BLEND, ONE, OTHER), tmp_path)
    record = records(tmp_path, "runs")["runs/blend-flat-seed0.json"]
    kept = [np.load(tmp_path / "r8" / "probabilities" / "runs" / f"{name}-flat-seed0.npy") for name in ("bag", "other")]
    parts = [np.exp(logp.astype(float)) for logp in kept]
    first, second = record["chosen"]["point"]["weights"]
    assert record["predicted"] == (first * parts[0] + second * parts[1]).argmax(1).tolist()
    assert {"nll", "ece", "operating_curve_area", "macro_f1"} <= set(record)


def test_a_blend_with_one_weight_of_one_equals_that_arm(tmp_path):
    assert run(study(ONE, OTHER, {**BLEND, "grid": {"weights": [[0.0, 1.0]]}}), tmp_path)
    found = records(tmp_path)
    assert found["runs/blend-flat-seed0.json"]["predicted"] == found["runs/other-flat-seed0.json"]["predicted"]
    for fold in (0, 1):
        blend, other = (found[f"folds/{name}-fold{fold}.json"] for name in ("blend-flat-weights0.0_1.0", "other-flat"))
        assert blend["curve"][0]["macro_f1"] == pytest.approx(other["curve"][0]["macro_f1"])


def test_the_weights_do_not_depend_on_the_test_split(tmp_path, monkeypatch):
    assert run(study(ONE, OTHER, BLEND), tmp_path / "one")
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path / "elsewhere"))
    put_split(tmp_path / "elsewhere", "train")
    put_split(tmp_path / "elsewhere", "test", 9, seed=2, shift=3)
    assert run(study(ONE, OTHER, BLEND), tmp_path / "two")
    assert records(tmp_path / "one", "choices") == records(tmp_path / "two", "choices")
    items = [records(tmp_path / name, "runs")["runs/blend-flat-seed0.json"]["items"] for name in ("one", "two")]
    assert items == [24, 9]


def test_the_folds_of_a_blend_need_no_test_split(tmp_path, data):
    (data / "r8" / "test.tsv").unlink()
    with pytest.raises(StudyError, match=r"test\.tsv beside it"):
        run(study(ONE, OTHER, BLEND), tmp_path)
    assert len([name for name in records(tmp_path, "folds") if "blend" in name]) == 6


def test_a_blend_of_arms_with_new_settings_is_an_error(tmp_path):
    run(study(ONE, OTHER, BLEND), tmp_path)
    for path in (tmp_path / "r8").glob("*/other-*.json"):
        path.unlink()
    changed = {**OTHER, "settings": {**OTHER["settings"], "epochs": 1}}
    with pytest.raises(OptionError, match=r"blend-flat-weights.*has other settings \(of\)"):
        run(study(ONE, changed, BLEND), tmp_path)


def test_missing_probabilities_are_an_error(tmp_path):
    run(study(ONE, OTHER), tmp_path)
    (tmp_path / "r8" / "probabilities" / "folds" / "other-flat-fold1.npy").unlink()
    with pytest.raises(StudyError, match=r"other-flat-fold1\.npy is missing.*remove r8/folds/other-flat-fold1\.json"):
        run(study(ONE, OTHER, BLEND), tmp_path)


def test_selecting_a_blend_includes_its_arms():
    assert [arm.name for arm in study(ONE, BAG | {"name": "more"}, OTHER, BLEND).only(["blend"]).arms] == [
        "bag",
        "other",
        "blend",
    ]


@pytest.mark.parametrize(
    ("arms", "message"),
    [
        ([ONE, OTHER, {**BLEND, "of": []}], "needs the arms to combine"),
        ([ONE, OTHER, {**BLEND, "of": ["bag", "nobody"]}], "found 'nobody'"),
        ([ONE, {**OTHER, "keep": False}, BLEND], "other differs"),
        ([{**ONE, "early": True}, OTHER, BLEND], "bag differs"),
        ([ONE, OTHER, {**BLEND, "seeds": 2}], "as many seeds; bag differs"),
        ([ONE, OTHER, {**BLEND, "heads": ["flat", "shared"]}], "needs the heads shared of bag"),
        ([ONE, OTHER, {**BLEND, "grid": {}}], "contains only weights"),
        ([ONE, OTHER, {**BLEND, "grid": {"weights": [[0.5, 0.6]]}}], "2 numbers that sum to 1"),
        ([ONE, OTHER, {**BLEND, "early": True}], "blend has no epochs to select from"),
    ],
)
def test_an_invalid_blend_is_an_error(tmp_path, arms, message):
    (tmp_path / "r8.json").write_text(json.dumps({"dataset": "r8", "arms": arms}), "utf-8")
    with pytest.raises(OptionError, match=message):
        Study.load(tmp_path / "r8.json")
