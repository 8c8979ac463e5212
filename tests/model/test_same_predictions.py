"""The command line, the service, both estimators and Ray return the same predictions, to the last digit."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from starlette.testclient import TestClient
from typer.testing import CliRunner

import arbormax as am
from arbormax.cli.app import app
from arbormax.model.predict import Decoding, predict
from arbormax.serve.app import create_app
from text_toy import LABELS, TAX, TEXTS, small

WAYS = [
    pytest.param({"decoder": "leaf", "top_k": 3}, id="leaf"),
    pytest.param({"decoder": "threshold", "options": {"tau": 0.6}, "top_k": 2}, id="threshold"),
    pytest.param({"decoder": "greedy"}, id="greedy"),
]
UNSEEN = [*TEXTS[:8], "pixel bios orbit", "apple pill", "?", "a word that training never saw"]


def train_small():
    return small().fit(TEXTS, LABELS)


def train_large():
    tax = am.Taxonomy.from_parents([-1, *(node // 17 for node in range(17 + 17**2 + 17**3))])
    labels = [tax.classes[500 * (i % 9)] for i in range(90)]
    return small(tax, epochs=20, head="hierarchical").fit([f"{TEXTS[i % 9]} word{i % 9}" for i in range(90)], labels)


@pytest.fixture(scope="module", params=[train_small, train_large], ids=["small tree", "large tree"])
def clf(request):
    found = request.param()
    assert found.model_.head.searches == (request.param is train_large)
    return found


@pytest.fixture(scope="module")
def folder(clf, tmp_path_factory):
    return clf.save(tmp_path_factory.mktemp("model"))


def command_options(way):
    words = ["--decoder", way["decoder"], "--top-k", way.get("top_k", 0)]
    return [*words, *(["--tau", way["options"]["tau"]] if "options" in way else [])]


def run_command(*words):
    result = CliRunner().invoke(app, ["predict", *map(str, words), "--device", "cpu"], prog_name="arbormax")
    assert result.exit_code == 0, (result.output, result.exception)
    return result


def write_texts(tmp_path):
    file = tmp_path / "texts.parquet"
    pq.write_table(pa.table({"text": UNSEEN}), file)
    return file


def rows_of_library(clf, way):
    return [prediction.to_dict() for prediction in predict(clf.model_, UNSEEN, **way)]


def without_line(rows):
    return [{name: value for name, value in row.items() if name != "line"} for row in rows]


@pytest.mark.parametrize("way", WAYS)
def test_the_command_line_returns_the_predictions_of_the_library(clf, folder, tmp_path, way):
    out = tmp_path / "out.jsonl"
    run_command(folder, write_texts(tmp_path), *command_options(way), "--out", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert without_line(rows) == rows_of_library(clf, way)


@pytest.mark.parametrize("way", WAYS)
def test_the_service_returns_the_predictions_of_the_library(clf, way):
    body = {"texts": UNSEEN, "decoder": way["decoder"], "top_k": way.get("top_k", 0)}
    with TestClient(create_app(clf.model_), base_url="http://localhost") as client:
        found = client.post("/v1/predict", json={**body, **way.get("options", {})}).json()["predictions"]
    expected = rows_of_library(clf, way)
    assert [{name: row[name] for name in expected[0]} for row in found] == expected


@pytest.mark.parametrize("way", WAYS)
def test_the_text_classifier_returns_the_predictions_of_the_library(clf, way):
    details = clf.predict_details(UNSEEN, way["decoder"], top_k=way.get("top_k", 0), **way.get("options", {}))
    expected = rows_of_library(clf, way)
    assert [prediction.to_dict() for prediction in details] == expected
    nodes = clf.predict_nodes(UNSEEN, decoder=way["decoder"], **way.get("options", {}))
    assert [list(clf.taxonomy_.path(node)) for node in nodes] == [row["path"] for row in expected]
    if way["decoder"] == "leaf":
        assert clf.predict(UNSEEN).tolist() == [row["label"] for row in expected]
        assert [list(path) for path in clf.predict_paths(UNSEEN)] == [row["path"] for row in expected]
    if way.get("top_k"):
        probabilities, labels = clf.topk(UNSEEN, way["top_k"])
        found = [
            [{"label": label, "probability": round(p, 6)} for label, p in zip(*row, strict=True)]
            for row in zip(labels.tolist(), probabilities.tolist(), strict=True)
        ]
        assert found == [row["top"] for row in expected]


@pytest.mark.parametrize("way", WAYS)
def test_the_classifier_of_matrices_returns_the_predictions_of_the_same_head(clf, way):
    X = torch.cat(list(clf.model_.features(UNSEEN))).numpy()
    labels = clf.predict(UNSEEN)
    matrix_clf = am.HierarchicalClassifier(
        clf.taxonomy_, head=clf.model_.config.head, scale=False, epochs=1, accelerator="cpu"
    ).fit(X, labels)
    matrix_clf.model_.head.load_state_dict(clf.model_.head.state_dict())
    found = matrix_clf.predict_details(X, way["decoder"], top_k=way.get("top_k", 0), **way.get("options", {}))
    assert [prediction.to_dict() for prediction in found] == rows_of_library(clf, way)
    assert matrix_clf.predict(X).tolist() == labels.tolist()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:`use_.*` is deprecated:DeprecationWarning")
@pytest.mark.parametrize("way", WAYS[1:2])
def test_ray_returns_the_predictions_of_the_library(clf, folder, tmp_path, way):
    pytest.importorskip("ray.data", reason="needs arbormax[ray]")
    out = tmp_path / "out.parquet"
    run_command(folder, write_texts(tmp_path), *command_options(way), "--engine", "ray", "--workers", 1, "--out", out)
    assert without_line(pq.read_table(out).to_pylist()) == rows_of_library(clf, way)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_batch_size_changes_no_label_and_at_most_the_last_digit(clf, way, batch_size):
    together = list(predict(clf.model_, UNSEEN, **way))
    grouped = list(predict(clf.model_, UNSEEN, **way, batch_size=batch_size))
    for one, other in zip(together, grouped, strict=True):
        assert (one.node, one.label, one.path) == (other.node, other.label, other.path)
        assert [label for label, _ in one.alternatives] == [label for label, _ in other.alternatives]
        np.testing.assert_allclose(one.probabilities, other.probabilities, rtol=0, atol=2e-6)


def test_more_alternatives_than_classes_are_an_error_everywhere(clf, folder):
    count = clf.taxonomy_.num_leaves
    message = f"expected at most {count:,}, the number of classes, found {count + 1:,}"
    with pytest.raises(am.errors.OptionError, match=f"top_k: {message}"):
        predict(clf.model_, UNSEEN, top_k=count + 1)
    with pytest.raises(am.errors.OptionError, match=f"top_k: {message}"):
        clf.predict_details(UNSEEN, top_k=count + 1)
    result = CliRunner().invoke(app, ["predict", str(folder), "-m", "text", "--top-k", str(count + 1)])
    assert (result.exit_code, result.stderr) == (2, f"arbormax: --top-k: {message}\n")
    with TestClient(create_app(clf.model_), base_url="http://localhost") as client:
        assert client.post("/v1/predict", json={"texts": ["text"], "top_k": count + 1}).status_code == 422


def test_a_decoder_is_checked_with_its_options():
    with pytest.raises(am.errors.OptionError, match="decoder: unknown decoder 'leav'; did you mean 'leaf'"):
        Decoding("leav")
    with pytest.raises(am.errors.OptionError, match="tau: decoder 'leaf' does not have this option"):
        Decoding("leaf", {"tau": 0.5})
    with pytest.raises(am.errors.OptionError, match="tau: expected a probability"):
        Decoding("threshold", {"tau": 2}).check(TAX)
    with pytest.raises(am.errors.OptionError, match="top_k: expected a whole number"):
        Decoding(top_k=-1)


def test_a_root_prediction_has_an_empty_path(clf):
    (found,) = predict(clf.model_, ["text"], decoder="threshold", options={"tau": 1.0})
    assert (found.node, found.label, found.path, found.probabilities, found.probability) == (0, "", (), (), 1.0)
    assert found.to_dict() == {"label": "", "path": [], "probabilities": []}


def test_weights_that_are_not_numbers_are_reported(clf):
    model = small(epochs=1).fit(TEXTS, LABELS).model_
    with torch.no_grad():
        model.head.weight.fill_(torch.nan)
    with pytest.raises(am.errors.ArbormaxError, match="NaN probabilities"):
        list(predict(model, ["text"]))
