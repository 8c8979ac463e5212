"""Exported graphs: inputs, outputs, agreement with torch, and the files of the folder."""

import copy
import json
import os
import re
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import arbormax as am
from arbormax.errors import MissingDependencyError, OptionError
from arbormax.integrations import onnx as export
from arbormax.integrations._graph import build_graph
from arbormax.integrations.onnx import ExportError, export_model, graph_inputs
from arbormax.model import load_model, save_model
from arbormax.model.folder import ModelFolderError
from arbormax.model.network import Model
from arbormax.model.settings import TrainConfig

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

# uneven depth, an only child, groups of three sizes, and a custom class order
TAX = am.Taxonomy.from_nested(
    {"comp": ["graphics", {"sys": ["ibm", "mac"]}], "sci": ["med", "space", {"math": ["sets"]}]},
    classes=["space", "mac", "sets", "graphics", "ibm", "med"],
)
TRAINING = [
    "the pixel shader draws the pixel",
    "dos bios old dos bios",
    "the mac finder",
    "pill doctor",
    "rocket orbit moon the rocket orbit",
]
TEXTS = [
    "the rocket orbit of the moon",
    "",
    "pill",
    "never seen words alone",
    "the pixel shader draws the pixel " * 12,
    "l’été, ﬁnder: DOS bios's old",
    "dos bios dos bios",
]
OPTIONS = {"bag": {"dim": 8}, "lstm": {"dim": 8, "hidden": 6}, "bilstm": {"dim": 8, "hidden": 6}, "tfidf": {}}
ENCODERS = [*OPTIONS, "transformer"]
FORMATS = ["onnx", "torch-export"]
HEADS = ["hierarchical", "flat", "shared"]
ALL = [(encoder, head) for encoder in ENCODERS for head in HEADS]
# Every graph uses the head in the same way; `make test-slow` tests all combinations.
SOME = [*((encoder, "hierarchical") for encoder in ENCODERS), ("bag", "shared"), ("tfidf", "flat")]


@pytest.fixture(scope="session")
def bert(tmp_path_factory):
    """A tiny BERT in a folder."""
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    folder = tmp_path_factory.mktemp("bert")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "pixel", "rocket", "orbit", "pill", "dos", "bio", "##s", "of"]
    numbers = {word: number for number, word in enumerate(words)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(0)
    transformers.utils.logging.disable_progress_bar()
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)
    config = transformers.BertConfig(vocab_size=len(words), max_position_embeddings=40, **sizes)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.utils.logging.enable_progress_bar()
    return folder


@pytest.fixture(scope="session")
def made(request):
    """Builds a model with uneven probabilities, like a trained one."""

    def made(encoder="bag", head="hierarchical", **options):
        if encoder == "transformer":
            options = {"model": str(request.getfixturevalue("bert")), **options}
        config = TrainConfig.make(encoder=encoder, head=head, encoder_options={**OPTIONS.get(encoder, {}), **options})
        model = Model.new(TRAINING, TAX, config)
        torch.manual_seed(1)
        with torch.no_grad():
            model.head.weight.mul_(20 if encoder != "transformer" else 5)
            model.head.bias.normal_()
            for name, parameter in model.encoder.named_parameters():
                parameter.mul_(3 if encoder in ("lstm", "bilstm") or name == "weight" else 1)
        return model

    return made


@pytest.fixture(scope="session")
def exported(made, tmp_path_factory):
    """Returns a model and its export, created once."""
    known = {}

    def exported(encoder="bag", head="hierarchical", format="onnx"):
        key = (encoder, head, format)
        if key not in known:
            model = made(encoder, head).train()
            known[key] = model, export_model(model, tmp_path_factory.mktemp("export") / "out", format)
            assert model.training
            assert model.encoder.training
            assert model.head.weight.requires_grad
        return known[key]

    return exported


def runner(folder):
    """A function from named arrays to leaf and node log-probabilities."""
    if (folder / "model.onnx").exists():
        session = onnxruntime.InferenceSession(folder / "model.onnx")
        return lambda arrays: session.run(["leaf_log_probs", "node_log_probs"], arrays)
    module = torch.export.load(folder / "model.pt2").module()
    return lambda arrays: [part.numpy() for part in module(*map(torch.from_numpy, arrays.values()))]


def truth(model, texts):
    (node_BN,) = (part.numpy() for part in model.node_log_probs(texts))
    return node_BN[:, TAX.leaves], node_BN


def agrees(model, folder):
    run = runner(folder)
    for texts in (TEXTS, TEXTS[:1], TEXTS[1:2], TEXTS[2:3], TEXTS * 9):
        leaf_BC, node_BN = run(graph_inputs(model, texts))
        assert leaf_BC.shape == (len(texts), TAX.num_leaves)
        for found, right in zip((leaf_BC, node_BN), truth(model, texts), strict=True):
            assert np.abs(found - right).max() <= 1e-5


def has_the_documented_inputs_and_outputs(encoder, folder):
    session = onnxruntime.InferenceSession(folder / "model.onnx")
    inputs = {"tfidf": ["input_ids", "counts"], "transformer": ["input_ids", "attention_mask"]}
    assert [each.name for each in session.get_inputs()] == inputs.get(encoder, ["input_ids"])
    assert all(each.shape == ["batch", "length"] for each in session.get_inputs())
    assert {each.name: each.shape for each in session.get_outputs()} == {
        "leaf_log_probs": ["batch", TAX.num_leaves],
        "node_log_probs": ["batch", TAX.num_nodes],
    }


def example_of_the_card_agrees(model, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    (block,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text("utf-8"), re.DOTALL)
    assert "import arbormax" not in block
    for text, right in zip(TEXTS, truth(model, TEXTS)[0], strict=True):
        values = {}
        exec(block.replace('"a text"', repr(text)), values)
        assert np.abs(np.asarray(values["leaf_log_probs"]) - right).max() <= 1e-5
        assert capsys.readouterr().out.strip() == TAX.classes[right.argmax()]


# An export to ONNX takes seconds, so one test checks everything about it.
@pytest.mark.parametrize(("encoder", "head"), SOME)
def test_onnxruntime_agrees_with_torch_at_any_batch_and_length(exported, encoder, head, monkeypatch, capsys):
    model, made = exported(encoder, head)
    assert np.ptp(truth(model, TEXTS)[0]) > 1  # or agreement would say little
    agrees(model, made.folder)
    has_the_documented_inputs_and_outputs(encoder, made.folder)
    example_of_the_card_agrees(model, made.folder, monkeypatch, capsys)


@pytest.mark.parametrize("encoder", ["bag", "bilstm", "tfidf", "transformer"])
def test_a_loaded_torch_export_agrees_with_torch(exported, encoder, monkeypatch, capsys):
    model, made = exported(encoder, format="torch-export")
    agrees(model, made.folder)
    example_of_the_card_agrees(model, made.folder, monkeypatch, capsys)


@pytest.mark.parametrize("encoder", ["bag", "tfidf"])
def test_ngrams_of_characters_are_exported(made, tmp_path, monkeypatch, capsys, encoder):
    model = made(encoder, char_ngrams=5, min_char_ngrams=2, char_weight=0.3)
    export = export_model(model, tmp_path / "out", "torch-export")
    agrees(model, export.folder)
    example_of_the_card_agrees(model, export.folder, monkeypatch, capsys)


@pytest.mark.parametrize("format", FORMATS)
def test_a_head_with_adapters_is_exported(tmp_path, format):
    config = TrainConfig.make(encoder="bag", encoder_options=OPTIONS["bag"], adapter=3)
    model = Model.new(TRAINING, TAX, config)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
    agrees(model, export_model(model, tmp_path / "out", format).folder)


@pytest.mark.parametrize("format", ["onnx", "torch-export"])
@pytest.mark.parametrize("head", ["hierarchical", "flat", "blended"])
def test_sparse_weights_are_exported(tmp_path, head, format):
    labels = [TAX.classes[i % TAX.num_leaves] for i in range(60)]
    clf = am.TextClassifier(TAX, head=head, validation=0).fit(
        [f"{label} word{i}" for i, label in enumerate(labels)], labels
    )
    assert clf.model_.head.sparse_weight is not None
    agrees(clf.model_, export_model(clf.model_, tmp_path / "out", format).folder)


@pytest.mark.slow
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(("encoder", "head"), ALL)
def test_every_encoder_is_exported_with_every_head(exported, encoder, head, format):
    model, made = exported(encoder, head, format)
    agrees(model, made.folder)


def test_the_metadata_contain_the_taxonomy_and_the_classes(exported, tmp_path):
    _, made = exported("bag")
    about = onnxruntime.InferenceSession(made.folder / "model.onnx").get_modelmeta().custom_metadata_map
    (tmp_path / "taxonomy.json").write_text(about["arbormax.taxonomy"], "utf-8")
    again = am.Taxonomy.load(tmp_path / "taxonomy.json")
    assert again == TAX
    assert again.classes == TAX.classes
    assert json.loads(about["arbormax.classes"]) == list(TAX.classes)
    assert about["arbormax.fingerprint"] == TAX.fingerprint
    assert about["arbormax.version"] == am.__version__
    assert (about["arbormax.encoder"], about["arbormax.head"]) == ("bag", "hierarchical")
    assert json.loads(about["arbormax.encoding"])["ngrams"] == 2


def test_a_torch_export_contains_the_same_metadata(exported):
    _, made = exported("bag", format="torch-export")
    files = {"export.json": "", "taxonomy.json": ""}
    torch.export.load(made.folder / "model.pt2", extra_files=files)
    assert files["taxonomy.json"] == (made.folder / "taxonomy.json").read_text("utf-8")
    assert json.loads(files["export.json"]) == json.loads((made.folder / "export.json").read_text("utf-8"))
    assert json.loads(files["export.json"])["classes"] == list(TAX.classes)


def test_the_folder_contains_the_graph_the_tree_the_vocabulary_and_a_card(exported):
    _, made = exported("bag")
    assert set(made.files) == {"README.md", "export.json", "model.onnx", "taxonomy.json", "vocabulary.txt"}
    assert {path.name for path in made.folder.iterdir()} == set(made.files)
    assert am.Taxonomy.load(made.folder / "taxonomy.json") == TAX
    words = (made.folder / "vocabulary.txt").read_text("utf-8").split("\n")
    assert words[:3] == ["<padding>", "<unknown>", "the"]
    assert "rocket orbit" in words
    assert 0 < made.difference <= 1e-5


def test_the_graph_contains_no_local_path(exported):
    for format_, name in zip(FORMATS, ("model.onnx", "model.pt2"), strict=True):
        data = (exported("bag", format=format_)[1].folder / name).read_bytes()
        for part in (os.fspath(Path(am.__file__).parent), "site-packages", ".py"):
            assert part.encode() not in data


def test_weights_of_a_large_model_have_their_own_file(made, tmp_path, monkeypatch):
    monkeypatch.setattr(export, "INLINE_BYTES", 0)
    model = made()
    result = export_model(model, tmp_path / "new", check=False)
    assert "model.onnx.data" in result.files
    os.rename(tmp_path / "new", tmp_path / "moved")
    agrees(model, tmp_path / "moved")


def test_words_of_the_vectors_alone_are_in_the_graph(made, tmp_path):
    (tmp_path / "v.txt").write_text("pill 1 2\nowl 3 1\nelk 1 -3\n")
    model = made("lstm", vectors=str(tmp_path / "v.txt"), dim=2)
    result = export_model(model, tmp_path / "out", "torch-export", check=False)
    assert result.difference is None
    found = runner(result.folder)(graph_inputs(model, ["owl pill", "elk"]))[1]
    assert np.abs(found - truth(model, ["owl pill", "elk"])[1]).max() <= 1e-5


def test_a_graph_that_disagrees_is_not_written(made, tmp_path, monkeypatch):
    def wrong(*given):
        graph = build_graph(*given)
        graph.head = copy.deepcopy(graph.head)
        with torch.no_grad():
            graph.head.bias[0] += 1e-3
        return graph

    export_model(made(), tmp_path / "out", "torch-export")
    before = (tmp_path / "out" / "model.pt2").read_bytes()
    monkeypatch.setattr(export, "build_graph", wrong)
    with pytest.raises(ExportError, match=r"does not agree.*nothing was written"):
        export_model(made(), tmp_path / "out", "torch-export", force=True)
    assert (tmp_path / "out" / "model.pt2").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_model_in_half_precision_is_exported_in_float32_and_not_changed(made, tmp_path):
    model = made().to(torch.bfloat16).train()
    export_model(model, tmp_path / "out", "torch-export")
    assert model.head.weight.dtype == torch.bfloat16
    assert model.head.weight.requires_grad
    assert model.training


def test_a_model_folder_is_exported_as_well(made, tmp_path):
    save_model(made(), tmp_path / "model")
    result = export_model(tmp_path / "model", tmp_path / "out", "torch-export")
    agrees(load_model(tmp_path / "model"), result.folder)
    with pytest.raises(ModelFolderError, match="not a model"):
        export_model(tmp_path / "none", tmp_path / "other", "torch-export")


def test_an_existing_export_is_replaced_only_with_force_and_other_folders_never(made, tmp_path):
    model, place = made(), tmp_path / "out"
    place.mkdir()  # an empty folder may exist
    export_model(model, place, "torch-export")
    with pytest.raises(OptionError, match="already contains an export; try force=True"):
        export_model(model, place, "torch-export")
    (place / "old").touch()
    export_model(model, place, "torch-export", force=True)
    assert not (place / "old").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    (tmp_path / "file").touch()
    with pytest.raises(OptionError, match="other files"):
        export_model(model, tmp_path / "mine", "torch-export", force=True)
    with pytest.raises(OptionError, match="is a file"):
        export_model(model, tmp_path / "file", "torch-export", force=True)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "mine", "file"}
    assert stat.S_IMODE(place.stat().st_mode) == stat.S_IMODE((tmp_path / "mine").stat().st_mode)


def test_a_model_that_cannot_be_exported_is_an_error(made, tmp_path, monkeypatch):
    model = made()
    with pytest.raises(OptionError, match=r"expected 'onnx' or 'torch-export', found 'onx'; did you mean 'onnx'"):
        export_model(model, tmp_path / "out", "onx")
    model.encoder = torch.nn.Identity()
    model.encoder.name = "mine"
    with pytest.raises(OptionError, match="the encoder 'mine' has no graph for export"):
        export_model(model, tmp_path / "out", "torch-export")
    for package in ("onnx", "onnxscript", "onnxruntime"):
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, package, None)
            with pytest.raises(MissingDependencyError, match=rf"package {package}: .*arbormax\[onnx\]"):
                export_model(made(), tmp_path / "out")
    assert not list(tmp_path.iterdir())


def test_progress_is_reported(made, tmp_path):
    result = []
    export_model(made(), tmp_path / "out", "torch-export", progress=lambda *step: result.append(step))
    assert result == [("tracing", 0, 3), ("writing", 1, 3), ("checking", 2, 3), ("written", 3, 3)]
