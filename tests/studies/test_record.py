"""What a report is made from, against counting item by item."""

from __future__ import annotations

import base64
import json
import zlib
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import arbormax as am
from arbormax.data.examples import Examples
from arbormax.model.folder import format_metrics
from arbormax.studies.details import MAX_PAIRS, QUOTE_LENGTH, THRESHOLDS, Recorder, build_details, shorten
from arbormax.studies.evaluate import evaluate_log_probs
from strategies import taxonomies

TREE = am.Taxonomy.from_nested({"animal": {"bird": ["owl", "hen"], "fish": ["cod", "eel"]}, "plant": ["oak", "rye"]})


def scored(tax, seed, count=12, inner=True):
    """Random texts with any node as their label, and random node log-probabilities."""
    draw = torch.Generator().manual_seed(seed)
    logp = am.functional.node_log_probs(2 * torch.randn(count, tax.num_nodes - 1, generator=draw), tax)
    pool = torch.arange(tax.num_nodes) if inner else torch.tensor(tax.leaves)
    nodes = pool[torch.randint(len(pool), (count,), generator=draw)].numpy()
    return Examples([f"text number {item}" for item in range(count)], nodes), logp


def recorded(tax, examples, logp, size=5, **options):
    recorder = Recorder(tax)
    found = evaluate_log_probs(logp.split(size), examples, tax, recorder=recorder)
    return found, recorder.details(examples, found.predicted, **options)


def above(tax, node):
    """The node and all above it."""
    return {node, *tax.ancestors(node).tolist()}


@given(tax=taxonomies(), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_every_node_has_the_texts_at_or_below_it(tax, seed):
    examples, logp = scored(tax, seed)
    found, told = recorded(tax, examples, logp)
    support, predicted, correct = Counter(), Counter(), Counter()
    for true, pred in zip(examples.nodes.tolist(), found.predicted.tolist(), strict=True):
        support.update(above(tax, true))
        predicted.update(above(tax, pred))
        correct.update(above(tax, true) & above(tax, pred))
    for name, counts in (("support", support), ("predicted", predicted), ("correct", correct)):
        assert told["tree"][name] == [counts[node] for node in range(tax.num_nodes)]
    assert told["tree"]["names"] == list(tax.names)
    assert told["tree"]["children"] == [len(tax.children(node)) for node in range(tax.num_nodes)]


@given(tax=taxonomies(), seed=st.integers(0, 99))
@settings(max_examples=12)
def test_mistakes_are_counted_by_pair_by_fork_and_by_height(tax, seed):
    examples, logp = scored(tax, seed)
    found, told = recorded(tax, examples, logp)
    pairs, forks, heights = Counter(), Counter(), Counter()
    for true, pred in zip(examples.nodes.tolist(), found.predicted.tolist(), strict=True):
        if true == pred:
            continue
        meet = tax.lca(true, pred)
        pairs[true, pred] += 1
        heights[int(tax.height[meet])] += 1
        branch = [next((n for n in sorted(above(tax, node)) if tax.parent[n] == meet), node) for node in (true, pred)]
        forks[tuple(branch)] += 1
    assert {tuple(row[:2]): row[2] for row in told["confusions"]["pairs"]} == pairs
    assert {tuple(row[:2]): row[2] for row in told["forks"]["pairs"]} == forks
    assert told["severity"] == [heights[height] for height in range(1, tax.depth + 1)]
    costs = [count * tax.height[tax.lca(one, other)] for one, other, count in told["confusions"]["pairs"]]
    assert costs == sorted(costs, reverse=True)
    assert told["confusions"]["all_mistakes"] == sum(pairs.values())


@given(tax=taxonomies(), seed=st.integers(0, 99))
@settings(max_examples=8)
def test_answers_are_those_of_the_threshold_decoder(tax, seed):
    examples, logp = scored(tax, seed)
    _, told = recorded(tax, examples, logp)
    answers = told["answers"]
    for place in range(0, len(THRESHOLDS), 9):
        nodes = am.decode.threshold(logp, tax, THRESHOLDS[place]).tolist()
        answered, right = [0] * (tax.depth + 1), [0] * (tax.depth + 1)
        for true, node in zip(examples.nodes.tolist(), nodes, strict=True):
            answered[tax.node_depth[node]] += 1
            right[tax.node_depth[node]] += node in above(tax, true)
        assert answers["answered"][place] == answered
        assert answers["right"][place] == right
        assert answers["classes"][place] == sum(bool(tax.is_leaf[node]) for node in nodes)


def test_the_bins_give_the_calibration_error_that_is_measured():
    examples, logp = scored(TREE, 3, count=200)
    found, told = recorded(TREE, examples, logp)
    for error, level in zip(found.metrics["ece"], told["calibration"], strict=True):
        gaps = np.abs(np.array(level["right"]) - np.array(level["confidence"])).sum() / sum(level["count"])
        assert gaps == pytest.approx(error, abs=1e-4)


def test_a_recorder_changes_no_measure_and_batches_change_no_detail():
    examples, logp = scored(TREE, 5, count=64)
    found, told = recorded(TREE, examples, logp, size=64)
    assert evaluate_log_probs([logp], examples, TREE).metrics == found.metrics
    assert recorded(TREE, examples, logp, size=7)[1] == told


def test_the_items_can_be_unpacked():
    examples, logp = scored(TREE, 6, count=40)
    found, told = recorded(TREE, examples, logp)
    for name, nodes in (("true", examples.nodes), ("predicted", found.predicted)):
        data = zlib.decompress(base64.b64decode(told["items"][name]))
        assert np.frombuffer(data, "<u4").tolist() == nodes.tolist()
    assert told["items"]["digest"] == examples.digest()


def test_only_the_costliest_pairs_are_listed_and_the_others_counted():
    tax = am.Taxonomy.from_nested([f"c{number}" for number in range(80)])
    one, other = (side.ravel() for side in np.meshgrid(tax.leaves, tax.leaves))
    examples = Examples(["x"] * 6401, np.append(one, 5))
    told = build_details(examples, np.append(other, 9), tax)["confusions"]
    assert len(told["pairs"]) == MAX_PAIRS
    assert told["pairs"][0] == [5, 9, 2]
    assert told["all_pairs"] == 80 * 79
    assert told["all_mistakes"] == 80 * 79 + 1


def test_the_surest_mistakes_of_a_pair_are_quoted_each_text_once():
    oak, rye = TREE.find("oak"), TREE.find("rye")
    examples = Examples(["a", "b", "c", "d"], np.array([oak, oak, oak, oak]))
    confidence = np.array([0.2, 0.9, 0.5, 0.4])
    told = build_details(examples, np.array([rye, rye, rye, rye]), TREE, confidence=confidence)["confusions"][
        "examples"
    ]
    assert told == [
        [{"text": "b", "probability": 0.9}, {"text": "c", "probability": 0.5}, {"text": "d", "probability": 0.4}]
    ]
    twice = build_details(examples, np.full((2, 4), rye), TREE)
    assert [quote["text"] for quote in twice["confusions"]["examples"][0]] == ["a", "b", "c"]
    assert twice["confusions"]["pairs"] == [[oak, rye, 8]]
    assert twice["seeds"] == 2


def test_texts_stay_out_where_that_is_asked_for():
    examples, logp = scored(TREE, 8, count=40)
    assert "text number" in json.dumps(recorded(TREE, examples, logp)[1])
    assert "text number" not in json.dumps(recorded(TREE, examples, logp, texts=False)[1])


def test_long_texts_are_cut_and_odd_ones_made_writable():
    assert shorten("a  b\n\tc") == "a b c"
    assert len(shorten("long " * 500)) <= QUOTE_LENGTH
    assert shorten("long " * 500).endswith("…")
    shorten("lone \ud800 surrogate").encode("utf-8")


def test_the_file_has_a_line_for_each_part_of_the_details():
    examples, logp = scored(TREE, 9, count=30)
    found, told = recorded(TREE, examples, logp)
    metrics = {"test": {"accuracy": found.metrics["accuracy"]}, "details": told}
    text = format_metrics(metrics)
    assert json.loads(text) == metrics
    assert sum(line.startswith('    "') for line in text.splitlines()) == len(told) + 1
    assert format_metrics({"a": 1}) == '{\n  "a": 1\n}\n'
    assert json.loads(format_metrics({"details": told})) == {"details": told}
