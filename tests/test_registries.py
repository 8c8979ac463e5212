"""A head, a decoder, a measure and an encoder, each registered in one place, appear everywhere."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from arbormax.cli.app import app
from arbormax.decode import DECODERS
from arbormax.encoders import ENCODERS, BagEncoder
from arbormax.errors import OptionError
from arbormax.heads import HEADS, FlatSoftmax
from arbormax.induce import INDUCERS, induce
from arbormax.induce.forest import Forest
from arbormax.metrics import MEASURES, Measure
from arbormax.model import Model, TrainConfig
from arbormax.studies.compare import compare
from toy import TREE, examples

pytestmark = pytest.mark.usefixtures("toys")
FAST = ["--epochs", "1", "--batch-size", "16", "--encoder", "bag", "-o", "dim=4", "--accelerator", "cpu"]


class ToyHead(FlatSoftmax):
    """A flat softmax under another name."""


class ToyEncoder(BagEncoder):
    """A bag of words under another name."""

    name = "toy-encoder"


def toy_decoder(logp_BN: torch.Tensor, tax, depth: int = 1) -> torch.Tensor:
    """The ancestor of the best leaf at a depth."""
    leaves = tax.leaves[logp_BN[:, torch.tensor(tax.leaves)].argmax(1).numpy()]
    return torch.from_numpy(tax.ancestor_at(leaves, np.full(len(leaves), depth)))


def first_letter(true_nodes, pred_nodes, tax) -> np.ndarray:
    names = tax.names
    return np.array([names[t][0] == names[p][0] for t, p in zip(true_nodes, pred_nodes, strict=True)])


def toy_inducer(items, chosen, shape) -> Forest:
    """All classes below the root."""
    del items, shape
    return Forest(np.array([-1]), np.zeros(len(chosen), np.int64))


TOY_MEASURE = Measure("toy_measure", "first letters of toys", "share", "higher", per_item=first_letter)


@pytest.fixture(scope="module")
def toys():
    """Registers one toy of each kind."""
    added = [
        (HEADS, "toy-head", ToyHead),
        (DECODERS, "toy-decoder", toy_decoder),
        (MEASURES, "toy_measure", TOY_MEASURE),
        (ENCODERS, "toy-encoder", ToyEncoder),
        (INDUCERS, "toy-inducer", toy_inducer),
    ]
    for registry, name, entry in added:
        registry.add(name, entry, f"a {registry.kind} for tests")
    yield
    for registry, name, _ in added:
        registry.remove(name)


@pytest.fixture(scope="module")
def program():
    """Runs a command of the program and returns what it prints."""

    def program(*words) -> str:
        result = CliRunner().invoke(app, [str(word) for word in words], prog_name="arbormax", env={"COLUMNS": "200"})
        assert result.exit_code == 0, (result.output, result.exception)
        return result.stdout

    return program


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """A CSV file of labelled texts."""
    path = tmp_path_factory.mktemp("toys") / "texts.csv"
    data = examples()
    rows = [f"{text},{' > '.join(TREE.path(node))}" for text, node in zip(data.inputs, data.nodes, strict=True)]
    path.write_text("\n".join(["text,label", *rows]))
    return path


@pytest.fixture(scope="module")
def trained(toys, program, texts):
    """The folder of a model with the toy head and the toy encoder."""
    folder = texts.parent / "model"
    program("train", texts, "--test", texts, "--encoder", "toy-encoder", "--head", "toy-head", "--out", folder, *FAST)
    return folder


@pytest.mark.parametrize("command", ["train", "crossval", "compare", "search"])
def test_help_lists_the_toy_head_and_the_toy_encoder(program, command):
    text = program(command, "--help")
    assert "toy-encoder" in text
    assert "toy-head" in text


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_help_lists_the_toy_decoder(program, command):
    assert "toy-decoder" in program(command, "--help")


@pytest.mark.parametrize(
    ("option", "name"), [("head", "toy-head"), ("encoder", "toy-encoder"), ("decoder", "toy-decoder")]
)
def test_the_shell_completes_the_names_of_toys(option, name):
    command = "predict" if option == "decoder" else "train"
    words = f"arbormax {command} x --{option} toy"
    environment = {"_ARBORMAX_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "4"}
    result = CliRunner().invoke(app, [], prog_name="arbormax", env=environment)
    assert result.stdout.split() == [name]


def test_a_toy_method_induces_trees(program, texts):
    assert "toy-inducer" in program("taxonomy", "induce", "--help")
    assert induce(None, ["a", "b", "c"], "toy-inducer", 2).depth == 1


def test_help_lists_encoders_of_texts_only(program):
    (line,) = [line for line in program("train", "--help").splitlines() if "--encoder " in line]
    assert "transformer" in line
    assert "features" not in line


def test_the_command_line_trains_measures_and_predicts_with_the_toys(program, texts, trained):
    found = json.loads((trained / "metrics.json").read_text())
    assert 0 <= found["test"]["toy_measure"] <= 1
    assert "toy_measure" in json.loads(program("evaluate", trained, texts, "--json"))
    row = json.loads(program("predict", trained, "--message", "owlish", "--decoder", "toy-decoder", "--json"))
    assert len(row["path"]) == 1
    words = ["predict", trained, "--message", "owlish", "--decoder", "toy-decoder", "--json"]
    assert json.loads(program(*words, "--decoder-option", "depth=0"))["path"] == []


def test_the_schema_of_the_service_lists_the_toys():
    from arbormax.serve import create_app

    config = TrainConfig.make(encoder="toy-encoder", head="toy-head", encoder_options={"dim": 4})
    document = create_app(Model.new(examples().inputs, TREE, config)).openapi()
    for path in ("/v1/predict", "/v1/explain"):
        request = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert "toy-decoder" in json.dumps(request["properties"]["decoder"])
        assert "depth" in request["properties"]  # the option of the decoder
    responses = json.dumps(document["components"]["schemas"])
    assert '"toy-head"' in responses
    assert '"toy-encoder"' in responses


def test_a_comparison_trains_the_toys_and_bootstraps_the_toy_measure():
    config = TrainConfig.make(encoder="toy-encoder", encoder_options={"dim": 4}, epochs=1)
    result = compare(config, TREE, examples(40), examples(20, 1), heads=["flat", "toy-head"], seeds=[0], resamples=20)
    assert result.table()["toy-head"]["toy_measure"]["mean"] == result.table()["flat"]["toy_measure"]["mean"]
    (difference,) = [found for found in result.differences if found.measure == "toy_measure"]
    assert difference.sentence.startswith("toy-head − flat, first letters of toys: 0.0 points")


def test_the_report_shows_the_toys(program, texts, tmp_path, trained):
    program("compare", texts, "--heads", "flat,toy-head", "--seeds", "0", "--folds", "2", "--resamples", "20",
            "--encoder", "toy-encoder", "--out", tmp_path / "comparison", *FAST)  # fmt: skip
    program("report", tmp_path / "comparison", "--out", tmp_path / "comparison.html")
    program("report", trained, "--out", tmp_path / "model.html")
    for page in ("comparison.html", "model.html"):
        text = (tmp_path / page).read_text()
        assert "toy-head" in text
        assert "first letters of toys" in text.lower()


def test_unknown_names_are_errors_that_list_the_toys():
    for registry, name in ((HEADS, "toy-head"), (DECODERS, "toy-decoder"), (ENCODERS, "toy-encoder")):
        with pytest.raises(OptionError, match=f"unknown {registry.kind} 'toy'.*available: .*{name}"):
            registry.check("toy")
