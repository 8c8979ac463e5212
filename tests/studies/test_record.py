"""The details of an evaluation, against counting item by item; and the text of metrics.json."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import zlib
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.model import ModelFolderError, TrainConfig, save_model
from arbormax.model.folder import format_metrics
from arbormax.studies.details import MAX_PAIRS, QUOTE_LENGTH, THRESHOLDS, build_details, evaluation_details, shorten
from arbormax.studies.evaluate import evaluate_log_probs
from arbormax.studies.record import Record, build
from strategies import taxonomies

TREE = am.Taxonomy.from_nested({"animal": {"bird": ["owl", "hen"], "fish": ["cod", "eel"]}, "plant": ["oak", "rye"]})


def random_scores(tax, seed, count=12, inner=True):
    """Random texts with any node as their label, and random node log-probabilities."""
    draw = torch.Generator().manual_seed(seed)
    logp = am.functional.node_log_probs(2 * torch.randn(count, tax.num_nodes - 1, generator=draw), tax)
    pool = torch.arange(tax.num_nodes) if inner else torch.tensor(tax.leaves)
    nodes = pool[torch.randint(len(pool), (count,), generator=draw)].numpy()
    return Examples([f"text number {item}" for item in range(count)], nodes), logp


def evaluate_details(tax, examples, logp, size=5, **options):
    found = evaluate_log_probs(logp.split(size), examples, tax)
    return found, evaluation_details(examples, found, **options)


def ancestors_and_self(tax, node):
    """The node and its ancestors."""
    return {node, *tax.ancestors(node).tolist()}


@given(tax=taxonomies(), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_every_node_counts_the_texts_at_or_below_it(tax, seed):
    examples, logp = random_scores(tax, seed)
    found, details = evaluate_details(tax, examples, logp)
    support, predicted, correct = Counter(), Counter(), Counter()
    for true, pred in zip(examples.nodes.tolist(), found.predicted.tolist(), strict=True):
        support.update(ancestors_and_self(tax, true))
        predicted.update(ancestors_and_self(tax, pred))
        correct.update(ancestors_and_self(tax, true) & ancestors_and_self(tax, pred))
    for name, counts in (("support", support), ("predicted", predicted), ("correct", correct)):
        assert details["tree"][name] == [counts[node] for node in range(tax.num_nodes)]
    assert details["tree"]["names"] == list(tax.names)
    assert details["tree"]["children"] == [len(tax.children(node)) for node in range(tax.num_nodes)]


@given(tax=taxonomies(), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_mistakes_are_counted_by_pair_by_fork_and_by_height(tax, seed):
    examples, logp = random_scores(tax, seed)
    found, details = evaluate_details(tax, examples, logp)
    pairs, forks, heights = Counter(), Counter(), Counter()
    for true, pred in zip(examples.nodes.tolist(), found.predicted.tolist(), strict=True):
        if true == pred:
            continue
        meet = tax.lca(true, pred)
        pairs[true, pred] += 1
        heights[int(tax.height[meet])] += 1
        branch = [
            next((n for n in sorted(ancestors_and_self(tax, node)) if tax.parent[n] == meet), node)
            for node in (true, pred)
        ]
        forks[tuple(branch)] += 1
    assert {tuple(row[:2]): row[2] for row in details["confusions"]["pairs"]} == pairs
    assert {tuple(row[:2]): row[2] for row in details["forks"]["pairs"]} == forks
    assert details["severity"] == [heights[height] for height in range(1, tax.depth + 1)]
    costs = [count * tax.height[tax.lca(one, other)] for one, other, count in details["confusions"]["pairs"]]
    assert costs == sorted(costs, reverse=True)
    assert details["confusions"]["all_mistakes"] == sum(pairs.values())


@given(tax=taxonomies(), seed=st.integers(0, 99))
@settings(max_examples=8)
def test_answers_are_those_of_the_threshold_decoder(tax, seed):
    examples, logp = random_scores(tax, seed)
    _, details = evaluate_details(tax, examples, logp)
    answers = details["answers"]
    for place in range(0, len(THRESHOLDS), 9):
        nodes = am.decode.threshold(logp, tax, THRESHOLDS[place]).tolist()
        answered, right = [0] * (tax.depth + 1), [0] * (tax.depth + 1)
        for true, node in zip(examples.nodes.tolist(), nodes, strict=True):
            answered[tax.node_depth[node]] += 1
            right[tax.node_depth[node]] += node in ancestors_and_self(tax, true)
        assert answers["answered"][place] == answered
        assert answers["right"][place] == right
        assert answers["classes"][place] == sum(bool(tax.is_leaf[node]) for node in nodes)


def test_the_bins_give_the_measured_calibration_error():
    examples, logp = random_scores(TREE, 3, count=200)
    found, details = evaluate_details(TREE, examples, logp)
    for error, level in zip(found.metrics["ece"], details["calibration"], strict=True):
        gaps = np.abs(np.array(level["right"]) - np.array(level["confidence"])).sum() / sum(level["count"])
        assert gaps == pytest.approx(error, abs=1e-4)


def test_batches_change_no_detail():
    examples, logp = random_scores(TREE, 5, count=64)
    _, details = evaluate_details(TREE, examples, logp, size=64)
    assert evaluate_details(TREE, examples, logp, size=7)[1] == details


def test_the_items_can_be_unpacked():
    examples, logp = random_scores(TREE, 6, count=40)
    found, details = evaluate_details(TREE, examples, logp)
    for name, nodes in (("true", examples.nodes), ("predicted", found.predicted)):
        data = zlib.decompress(base64.b64decode(details["items"][name]))
        assert np.frombuffer(data, "<u4").tolist() == nodes.tolist()
    assert details["items"]["digest"] == examples.digest()


def test_only_the_costliest_pairs_are_listed_and_the_others_counted():
    tax = am.Taxonomy.from_nested([f"c{number}" for number in range(80)])
    one, other = (side.ravel() for side in np.meshgrid(tax.leaves, tax.leaves))
    examples = Examples(["x"] * 6401, np.append(one, 5))
    details = build_details(examples, np.append(other, 9), tax)["confusions"]
    assert len(details["pairs"]) == MAX_PAIRS
    assert details["pairs"][0] == [5, 9, 2]
    assert details["all_pairs"] == 80 * 79
    assert details["all_mistakes"] == 80 * 79 + 1


def test_the_most_confident_mistakes_of_a_pair_are_quoted_each_text_once():
    oak, rye = TREE.find("oak"), TREE.find("rye")
    examples = Examples(["a", "b", "c", "d"], np.array([oak, oak, oak, oak]))
    confidence = np.array([0.2, 0.9, 0.5, 0.4])
    details = build_details(examples, np.array([rye, rye, rye, rye]), TREE, confidence=confidence)["confusions"][
        "examples"
    ]
    assert details == [
        [{"text": "b", "probability": 0.9}, {"text": "c", "probability": 0.5}, {"text": "d", "probability": 0.4}]
    ]
    twice = build_details(examples, np.full((2, 4), rye), TREE)
    assert [quote["text"] for quote in twice["confusions"]["examples"][0]] == ["a", "b", "c"]
    assert twice["confusions"]["pairs"] == [[oak, rye, 8]]
    assert twice["seeds"] == 2


def test_texts_can_be_left_out():
    examples, logp = random_scores(TREE, 8, count=40)
    assert "text number" in json.dumps(evaluate_details(TREE, examples, logp)[1])
    assert "text number" not in json.dumps(evaluate_details(TREE, examples, logp, texts=False)[1])


def test_long_texts_are_cut_and_surrogates_replaced():
    assert shorten("a  b\n\tc") == "a b c"
    assert len(shorten("long " * 500)) <= QUOTE_LENGTH
    assert shorten("long " * 500).endswith("…")
    shorten("lone \ud800 surrogate").encode("utf-8")


def test_the_file_has_a_line_for_each_part_of_the_details():
    examples, logp = random_scores(TREE, 9, count=30)
    found, details = evaluate_details(TREE, examples, logp)
    metrics = {"test": {"accuracy": found.metrics["accuracy"]}, "details": details}
    text = format_metrics(metrics)
    assert json.loads(text) == metrics
    assert sum(line.startswith('    "') for line in text.splitlines()) == len(details) + 1
    assert format_metrics({"a": 1}) == '{\n  "a": 1\n}\n'
    assert json.loads(format_metrics({"details": details})) == {"details": details}


def test_a_record_is_read_back_from_a_model_folder(tmp_path):
    examples = Examples(["owl hoots", "oak grows"] * 6, np.array([TREE.find("owl"), TREE.find("oak")] * 6))
    config = TrainConfig(encoder="bag", encoder_options={"dim": 4}, epochs=1, batch_size=4, validation=0.0)
    run = am.training.fit(config, TREE, examples)
    record = build(run, examples, test=examples, data={"name": "toys"}, command="train toys")
    save_model(run.model, tmp_path, record.to_dict())
    read = Record.read(tmp_path)
    assert read == record
    assert read.training.parameters == run.model.num_parameters
    assert read.training.train_items == 12
    assert read.test["accuracy"] == am.studies.evaluate(run.model, examples).metrics["accuracy"]
    assert set(Record.read(tmp_path).to_dict(details=False)) == {"test", "training", "data"}


def test_a_record_of_wrong_types_raises_an_error(tmp_path):
    (tmp_path / "metrics.json").write_text('{"training": {"epochs": "many"}}')
    with pytest.raises(ModelFolderError, match="schema"):
        Record.read(tmp_path)
    assert Record.read(tmp_path / "none") == Record()


def test_evaluation_and_its_record_do_not_load_lightning():
    code = "import sys, arbormax.studies.record; assert 'pytorch_lightning' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
