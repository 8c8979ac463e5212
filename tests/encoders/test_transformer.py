"""The transformer encoder, with a tiny BERT."""

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from arbormax.data.ragged import Ragged
from arbormax.encoders.transformer import TransformerEncoder, TransformerOptions
from arbormax.errors import InputError, MissingDependencyError, OptionError
from fake_packages import install

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "owl", "mouse", "eat", "##s", "a", "."]
TEXTS = ["The owl eats a mouse.", "a mouse", "", "the the the the owl"]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    numbers = {word: number for number, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(numbers, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=40,
    )
    transformers.utils.logging.disable_progress_bar()
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(folder)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.utils.logging.enable_progress_bar()
    return folder


def made(bert: Path, **options: object) -> TransformerEncoder:
    encoder = TransformerEncoder.fit(TEXTS, TransformerOptions(model=str(bert), **options))
    assert isinstance(encoder, TransformerEncoder)
    return encoder


def features(encoder: TransformerEncoder, texts: list[str]) -> torch.Tensor:
    return encoder.eval()(*encoder.collate(encoder.encode(texts)))


def states(bert: Path, text: str) -> torch.Tensor:
    """(T, D) the last layer for one text, from transformers itself."""
    model = transformers.BertModel.from_pretrained(bert).eval()
    ids = transformers.AutoTokenizer.from_pretrained(bert)(text, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return model(ids).last_hidden_state[0]


def test_texts_become_word_pieces_between_special_tokens(bert: Path):
    rows = made(bert).encode(["The owls", "", "bat"])
    assert rows.values.tolist() == [2, 4, 5, 8, 3, 2, 3, 2, 1, 3]
    assert rows.lengths.tolist() == [5, 2, 3]
    assert len(made(bert).encode([])) == 0


def test_a_batch_is_padded_to_its_longest_text(bert: Path):
    encoder = made(bert)
    ids, mask = encoder.collate(encoder.encode(["the owl", "a"]))
    assert ids.tolist() == [[2, 4, 5, 3], [2, 9, 3, 0]]
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_features_are_the_pooled_last_layer_whatever_the_padding(bert: Path, pooling: str):
    found = features(made(bert, pooling=pooling), TEXTS)
    pooled = [states(bert, text).mean(0) if pooling == "mean" else states(bert, text)[0] for text in TEXTS]
    assert found.shape == (4, 32)
    torch.testing.assert_close(found, torch.stack(pooled))


def test_long_texts_are_truncated_to_the_option_and_to_the_models_positions(bert: Path):
    long = "the owl " * 100
    assert made(bert, max_length=8).encode([long]).lengths.tolist() == [8]
    encoder = made(bert)
    assert encoder.encode([long]).lengths.tolist() == [40]
    assert features(encoder, [long]).isfinite().all()


def test_positions_that_start_after_the_padding_index_are_subtracted(bert: Path, tmp_path: Path):
    config = transformers.RobertaConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=12,
        pad_token_id=0,
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    encoder = TransformerEncoder(transformers.RobertaModel(config), tokenizer, TransformerOptions(model="made"))
    assert encoder.encode(["the " * 50]).lengths.tolist() == [11]
    assert features(encoder, ["the " * 50]).isfinite().all()


def test_a_row_without_any_token_has_finite_features(bert: Path):
    encoder = made(bert).eval()
    found = encoder(*encoder.collate(Ragged.from_lists([[], [2, 4, 3]])))
    assert found.isfinite().all()


def test_gradients_reach_every_weight_but_the_unused_pooler(bert: Path):
    encoder = made(bert).train()
    encoder(*encoder.collate(encoder.encode(TEXTS))).square().sum().backward()
    without = {name for name, weight in encoder.named_parameters() if weight.grad is None}
    assert without == {name for name, _ in encoder.named_parameters() if "pooler" in name}
    assert all(not weight.requires_grad for name, weight in encoder.named_parameters() if name in without)


def test_a_frozen_model_has_nothing_to_train_and_the_same_features_in_training(bert: Path):
    encoder = made(bert, freeze=True, dropout=0.0)
    inputs = encoder.collate(encoder.encode(TEXTS))
    assert not any(weight.requires_grad for weight in encoder.parameters())
    found = encoder.train()(*inputs)
    assert not found.requires_grad
    torch.testing.assert_close(found, encoder.eval()(*inputs))


def test_gradient_checkpointing_changes_no_gradient(bert: Path):
    grads = []
    for gradient_checkpointing in (False, True):
        encoder = made(bert, gradient_checkpointing=gradient_checkpointing, dropout=0.0).train()
        torch.manual_seed(3)
        encoder(*encoder.collate(encoder.encode(TEXTS))).square().sum().backward()
        grads.append(torch.cat([w.grad.flatten() for w in encoder.parameters() if w.grad is not None]))
    torch.testing.assert_close(*grads)


def test_states_of_half_precision_are_pooled_in_float32(bert: Path, monkeypatch: pytest.MonkeyPatch):
    # a stub, since not every CPU multiplies bfloat16 matrices
    states_BTD = torch.full((1, 30, 32), 1.0, dtype=torch.bfloat16)
    states_BTD[0, 0] = 1.0 + 2**-7
    encoder = made(bert).eval()
    monkeypatch.setattr(encoder.model, "forward", lambda **_: SimpleNamespace(last_hidden_state=states_BTD))
    found = encoder(torch.ones(1, 30, dtype=torch.int64), torch.ones(1, 30, dtype=torch.int64))
    torch.testing.assert_close(found, torch.full((1, 32), 1.0 + 2**-7 / 30), rtol=1e-6, atol=0.0)


def test_a_saved_encoder_loads_without_its_first_folder(bert: Path, tmp_path: Path):
    encoder = made(bert)
    encoder.save(tmp_path)
    names = {file.name for file in (tmp_path / "transformer").iterdir()}
    assert {"config.json", "tokenizer.json"} <= names
    assert not any(name.endswith((".safetensors", ".bin")) for name in names)
    again = TransformerEncoder.load(tmp_path, TransformerOptions(model="/no/longer/there"))
    again.load_state_dict(encoder.state_dict())
    assert torch.equal(features(again, TEXTS), features(encoder, TEXTS))


def test_a_model_is_loaded_from_an_installed_package(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    install(tmp_path, "tiny-bert", {f"tiny_bert/model/{path.name}": path.read_bytes() for path in bert.iterdir()})
    monkeypatch.syspath_prepend(tmp_path)
    encoder = TransformerEncoder.fit(TEXTS, TransformerOptions(model="tiny-bert"))
    torch.testing.assert_close(features(encoder, TEXTS), features(made(bert), TEXTS))


def test_a_model_in_several_packages_is_joined(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    archive = Path(shutil.make_archive(str(tmp_path / "whole"), "zip", bert.parent, bert.name)).read_bytes()
    for part, content in enumerate((archive[:5000], archive[5000:]), start=1):
        install(tmp_path, f"tiny-part-{part:03d}", {f"tiny-part_{part:03d}/input/tiny.zip.{part:03d}": content})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path / "data"))
    encoder = TransformerEncoder.fit(TEXTS, TransformerOptions(model="tiny"))
    torch.testing.assert_close(features(encoder, TEXTS), features(made(bert), TEXTS))


def test_pickled_weights_are_refused(bert: Path, tmp_path: Path):
    (tmp_path / "config.json").write_text((bert / "config.json").read_text())
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80")
    with pytest.raises(InputError, match=r"cannot be loaded as a transformer: .*model\.safetensors"):
        made(tmp_path)


def test_weights_of_another_model_are_refused(bert: Path, tmp_path: Path):
    for file in bert.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}))
    with pytest.raises(InputError, match=r"lack encoder\.layer\.2"):
        made(tmp_path)


def test_a_model_with_custom_code_is_refused(bert: Path, tmp_path: Path):
    for file in bert.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    strange = {"model_type": "strange", "auto_map": {"AutoConfig": "code.C", "AutoModel": "code.M"}}
    (tmp_path / "config.json").write_text(json.dumps(strange))
    (tmp_path / "code.py").write_text("raise SystemExit('code was run')")
    with pytest.raises(InputError, match="cannot be loaded"):
        made(tmp_path)


def test_a_model_that_generates_text_is_refused(bert: Path):
    config = transformers.T5Config(
        vocab_size=len(WORDS), d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, decoder_start_token_id=0
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    with pytest.raises(OptionError, match="t5"):
        TransformerEncoder(transformers.T5Model(config), tokenizer, TransformerOptions(model="made"))


def test_a_folder_without_a_model_is_an_error(tmp_path: Path):
    (tmp_path / "notes.md").write_text("")
    with pytest.raises(InputError, match="cannot be loaded as a transformer"):
        made(tmp_path)
    with pytest.raises(InputError, match="it is neither a folder nor"):
        made(tmp_path / "missing")


def test_the_error_about_an_unknown_model_name_suggests_a_folder(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError, match="give the folder of a downloaded model"):
        made(Path("nobody/nothing"))


def test_the_error_about_a_missing_library_names_its_extra(bert: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingDependencyError, match=r"arbormax\[transformers\]"):
        made(bert)


def test_loading_prints_nothing_and_restores_the_librarys_settings(bert: Path, capfd: pytest.CaptureFixture[str]):
    before = transformers.utils.logging.get_verbosity()
    made(bert)
    assert capfd.readouterr() == ("", "")
    assert transformers.utils.logging.get_verbosity() == before
    assert transformers.utils.logging.is_progress_bar_enabled()
    assert before >= logging.NOTSET


def test_encoders_are_registered_without_importing_their_libraries():
    code = (
        "import sys, arbormax.encoders.tfidf, arbormax.encoders.transformer\n"
        "from arbormax.encoders import ENCODERS\n"
        "print(ENCODERS['tfidf'].__name__, ENCODERS['transformer'].__name__, "
        "'transformers' in sys.modules, 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["TfidfEncoder", "TransformerEncoder", "False", "False"]


def test_many_texts_are_encoded_like_a_few(bert: Path, monkeypatch: pytest.MonkeyPatch):
    encoder = made(bert)
    whole = encoder.encode(TEXTS)
    monkeypatch.setattr("arbormax.encoders.transformer._CHUNK", 3)
    parts = encoder.encode(TEXTS)
    np.testing.assert_array_equal(parts.values, whole.values)
    np.testing.assert_array_equal(parts.offsets, whole.offsets)


# ----------------------------------------------------------------------------------------------------------- the words


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("text", [*TEXTS, "½ Owl’s\n東京", "the owl " * 40])
def test_gates_of_one_do_not_change_the_features(bert, pooling, text):
    encoder = made(bert, pooling=pooling, freeze=True)
    gates = torch.ones(len(encoder.spans(text)), requires_grad=True)
    assert torch.allclose(encoder.eval().gated_features(text, gates), features(encoder, [text]), atol=1e-5)


def test_the_pieces_of_a_word_are_one_word(bert):
    encoder, text = made(bert), " The owl eats\na mouse."
    assert [text[start:end] for start, end in encoder.spans(text)] == ["The", "owl", "eats", "a", "mouse", "."]
    gates = torch.ones(6, requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder.eval().gated_features(text, gates)[0, 0], gates)
    assert gradient.abs().min() > 0


@pytest.mark.parametrize("side", ["right", "left"])
def test_truncated_words_have_spans_and_no_influence(bert, side):
    encoder, text = made(bert, max_length=5), "the owl a mouse eat"
    encoder.tokenizer.truncation_side = side
    places = encoder.spans(text)
    assert sorted(text[start:end] for start, end in places) == sorted(text.split())
    gates = torch.ones(len(places), requires_grad=True)
    (gradient,) = torch.autograd.grad(encoder.eval().gated_features(text, gates)[0, 0], gates)
    read = {text[start:end] for (start, end), part in zip(places, gradient.tolist(), strict=True) if part}
    assert read == ({"the", "owl", "a"} if side == "right" else {"a", "mouse", "eat"})


def test_a_tokenizer_without_offsets_has_no_gated_features(bert, monkeypatch):
    encoder = made(bert)
    monkeypatch.setattr(encoder, "tokenizer", SimpleNamespace(is_fast=False))
    assert encoder.gated_features("the owl", torch.ones(2)) is None
    assert encoder.spans("the owl.") == [(0, 3), (4, 8)]
