"""What is made of a study's records: rows, differences, the headline, and their pages."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from study import differences as module
from study import files, markdown
from study.differences import (
    common_seeds,
    differences,
    differences_text,
    read_differences,
    store_differences,
)
from study.summary import PAPER, headline, mean_curves, read_results, rows

import arbormax as am
from arbormax.data import datasets
from arbormax.data.examples import Examples
from arbormax.errors import InputError, OptionError
from arbormax.metrics.bootstrap import bootstrap

TAX = am.Taxonomy.from_nested({"a": ["x", "y", "v"], "b": ["z", "w"]})
TRUTH = TAX.leaves[np.arange(40) % TAX.num_leaves]
POINT = {"encoder_options.hidden": 150}
COMMAND = "python tables.py"


def put(folder: Path, dataset: str, kind: str, name: str, record) -> Path:
    path = folder / dataset / kind / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record if isinstance(record, str) else json.dumps(record), "utf-8")
    return path


def predictions(share: float, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(len(TRUTH)) < share, TRUTH, rng.choice(TAX.leaves, len(TRUTH)))


def put_run(folder, arm, head, seed, share=0.8, dataset="trec", **more) -> Path:
    nodes = predictions(share, 100 * seed + len(head))
    record = {
        "dataset": dataset,
        "arm": arm,
        "encoder": arm,
        "head": head,
        "tree": "paper",
        "seed": seed,
        "chosen": {"point": POINT, "epochs": 7, "macro_f1": 0.75},
        "vectors": "glove.6B.100d.txt",
        **am.metrics.evaluate(TRUTH, nodes, TAX),
        "nll": 0.5,
        "seconds": 3.0,
        "device": "one GPU",
        "predicted": TAX.class_of[nodes].tolist(),
        **more,
    }
    return put(folder, dataset, "runs", f"{arm}-{head}-{seed}", record)


def put_choice(folder, arm, head, macro_f1, dataset="trec", **more) -> Path:
    record = {"dataset": dataset, "arm": arm, "encoder": arm, "head": head, "tree": "paper", "point": POINT}
    record |= {"epochs": 7, "macro_f1": macro_f1, "accuracy": 0.9, "scores": [], **more}
    return put(folder, dataset, "choices", f"{arm}-{head}", record)


def put_fold(folder, fold, values, head="flat", point=POINT) -> Path:
    curve = [{"epoch": i, "loss": 1.0, "macro_f1": v, "accuracy": v, "hf": v} for i, v in enumerate(values, start=1)]
    record = {"dataset": "trec", "arm": "bilstm", "head": head, "fold": fold, "point": point, "curve": curve}
    return put(folder, "trec", "folds", f"bilstm-{head}-{fold}-{len(point)}", record)


@pytest.fixture
def folder(tmp_path):
    """BiLSTM with 3 flat, 4 hierarchical and no shared seeds; LinearSVC; MiniLM chosen but not run."""
    for seed in range(3):
        put_run(tmp_path, "bilstm", "flat", seed, 0.6)
    for seed in range(1, 5):
        put_run(tmp_path, "bilstm", "hierarchical", seed, 0.9)
    put_run(tmp_path, "svc", "svc", 0, chosen={"point": {"C": 1.0}, "epochs": None, "macro_f1": 0.7})
    put_choice(tmp_path, "bilstm", "flat", 0.70)
    put_choice(tmp_path, "bilstm", "hierarchical", 0.72)
    put_choice(tmp_path, "minilm", "shared", 0.86)
    return tmp_path


def here(monkeypatch):
    """Let the made-up test split be the dataset's."""
    monkeypatch.setattr(datasets, "load_split", lambda *_: Examples(["text"] * len(TRUTH), TRUTH))
    monkeypatch.setattr(files, "tree", lambda _: TAX)


def absent(monkeypatch):
    def load(*_):
        raise datasets.MissingDataError("no texts")

    monkeypatch.setattr(datasets, "load_split", load)


# Reading


def test_all_invalid_files_are_in_one_error(folder):
    put(folder, "trec", "runs", "cut", '{"dataset": "tr')
    put(folder, "trec", "choices", "list", [])
    put(folder, "r8", "choices", "less", {"dataset": "r8", "arm": "bag", "head": "flat", "point": {}})
    put_choice(folder, "bag", "flat", 0.5, dataset="r52")
    put(folder, "r52", "folds", "moved", json.loads(put_fold(folder, 0, [0.5]).read_text("utf-8")))
    with pytest.raises(InputError) as caught:
        read_results(folder)
    result = str(caught.value)
    for part in ("trec/runs/cut.json: not JSON", "trec/choices/list.json", "r8/choices/less.json", "macro_f1", "moved"):
        assert part in result
    assert "r52/choices" not in result


def test_duplicate_runs_are_an_error(folder):
    run = json.loads((folder / "trec/runs/bilstm-flat-0.json").read_text("utf-8"))
    put(folder, "trec", "runs", "again", run)
    with pytest.raises(InputError, match=r"bilstm-flat-0.json: the same arm, head, seed as trec/runs/again.json"):
        read_results(folder)


def test_a_missing_folder_is_an_error(tmp_path):
    with pytest.raises(InputError, match="not a folder"):
        read_results(tmp_path / "none")


# Rows


def test_a_row_has_mean_and_deviation_over_its_seeds(folder):
    results = read_results(folder)
    flat, hierarchical, svc = rows(results, "trec")
    assert (flat.head, flat.seeds, hierarchical.seeds, svc.arm) == ("flat", (0, 1, 2), (1, 2, 3, 4), "svc")
    each = [am.metrics.evaluate(TRUTH, predictions(0.6, 100 * seed + 4), TAX) for seed in range(3)]
    for name in ("macro_f1", "hf", "mistake_severity"):
        assert flat.mean[name] == pytest.approx(np.mean([values[name] for values in each]))
        assert flat.std[name] == pytest.approx(np.std([values[name] for values in each], ddof=1))
    assert flat.levels == pytest.approx(np.mean([values["level_accuracy"] for values in each], axis=0))
    assert (flat.point, flat.epochs, flat.cv_macro_f1, flat.vectors) == (POINT, 7, 0.75, "glove.6B.100d.txt")
    assert svc.std == {}
    assert rows(results, "r8") == []


def test_seeds_with_different_settings_are_an_error(folder):
    put_run(folder, "bilstm", "flat", 9, chosen={"point": {}, "epochs": 7, "macro_f1": 0.75})
    with pytest.raises(InputError, match=r"bilstm-flat-0.json and .*bilstm-flat-9.json differ in chosen"):
        rows(read_results(folder), "trec")


def test_a_row_is_outdated_if_other_settings_are_selected_later(folder):
    put_choice(folder, "bilstm", "flat", 0.70, epochs=9)
    results = read_results(folder)
    assert [row.outdated for row in rows(results, "trec")] == [True, False, False]
    assert "outdated: other settings are now selected" in markdown.section(results, "trec", {})


# Headline and curves


def test_the_headline_does_not_depend_on_test_results(folder):
    assert headline(read_results(folder), "trec")["arm"] == "minilm"
    for path in (folder / "trec" / "runs").glob("*.json"):
        run = json.loads(path.read_text("utf-8"))
        run |= {"macro_f1": 5.0 if run["head"] == "flat" else -5.0, "accuracy": 1.0}
        path.write_text(json.dumps(run), "utf-8")
    best = headline(read_results(folder), "trec")
    assert (best["arm"], best["head"]) == ("minilm", "shared")
    assert headline(read_results(folder), "r8") is None


def test_curves_contain_the_epochs_of_all_folds(tmp_path):
    put_fold(tmp_path, 0, [0.1, 0.3])
    put_fold(tmp_path, 1, [0.3, 0.5, 0.7, 0.6])
    put_fold(tmp_path, 2, [0.9], point={})
    results = read_results(tmp_path)
    curve = mean_curves(results, "trec", "bilstm", "flat", POINT)
    assert curve.epochs == (1, 2)
    assert curve.mean == pytest.approx([0.2, 0.4])
    assert (curve.low, curve.high, curve.folds) == ((0.1, 0.3), (0.3, 0.5), 2)
    assert mean_curves(results, "trec", "bilstm", "flat", {}).mean == (0.9,)
    assert mean_curves(results, "trec", "bilstm", "shared", POINT) is None


# Differences


def test_heads_are_compared_on_their_common_seeds(folder):
    results = read_results(folder)
    assert common_seeds(results, "trec", "bilstm", "hierarchical") == (1, 2)
    found = differences(results, "trec", "bilstm", TRUTH, TAX, resamples=200)
    assert {difference.head for difference in found} == {"hierarchical"}
    sides = [
        np.stack([predictions(share, 100 * s + length) for s in (1, 2)]) for share, length in ((0.9, 12), (0.6, 4))
    ]
    sets = dict(zip(("hierarchical", "flat"), sides, strict=True))
    expected = bootstrap(TRUTH, sets, TAX, baseline="flat", resamples=200).differences["hierarchical"]
    assert {d.measure: (d.mean, d.low, d.high) for d in found} == {d.measure: expected[d.measure] for d in found}
    assert len(found) == 6


def test_each_head_has_its_own_common_seeds(folder):
    put_run(folder, "bilstm", "shared", 0)
    found = differences(read_results(folder), "trec", "bilstm", TRUTH, TAX, resamples=50)
    assert [d.head for d in found if d.measure == "hf"] == ["hierarchical", "shared"]


def test_an_arm_without_a_flat_head_has_no_differences(folder):
    put_run(folder, "lstm", "hierarchical", 0)
    assert differences(read_results(folder), "trec", "lstm", TRUTH, TAX) == []


def test_predictions_of_another_split_or_tree_are_an_error(folder):
    results = read_results(folder)
    with pytest.raises(InputError, match=r"bilstm-flat-1.json: 40 predictions for 39"):
        differences(results, "trec", "bilstm", TRUTH[1:], TAX)
    with pytest.raises(InputError, match=r"bilstm-flat-1.json: the accuracy of its predictions is"):
        differences(results, "trec", "bilstm", TRUTH[::-1], TAX)


def test_stored_differences_are_used_without_the_texts(folder, monkeypatch):
    results = read_results(folder)
    absent(monkeypatch)
    assert store_differences(results, folder) == {}
    assert "no interval yet" in markdown.section(results, "trec", {})
    here(monkeypatch)
    made = store_differences(results, folder, resamples=100)
    absent(monkeypatch)
    again = store_differences(read_results(folder), folder, resamples=100)
    assert again == made
    assert made["trec"]["bilstm"].current
    assert made["trec"]["bilstm"].seeds == {"hierarchical": (1, 2)}
    assert "svc" not in made["trec"]


def test_outdated_differences_are_computed_again(folder, monkeypatch):
    here(monkeypatch)
    store_differences(read_results(folder), folder)
    put_run(folder, "bilstm", "flat", 3, 0.6)
    results = read_results(folder)
    old = read_differences(results, folder)["trec"]
    assert not old["bilstm"].current
    assert "older records" in markdown.section(results, "trec", old)
    stored = (folder / "trec" / "differences.json").read_text("utf-8")
    fresh = store_differences(results, folder, write=False)["trec"]
    assert fresh["bilstm"].seeds == {"hierarchical": (1, 2, 3)}
    assert (folder / "trec" / "differences.json").read_text("utf-8") == stored != differences_text("trec", fresh)


def test_only_a_changed_arm_is_computed_again(folder, monkeypatch):
    for head in ("flat", "shared"):
        put_run(folder, "bag", head, 0)
    here(monkeypatch)
    store_differences(read_results(folder), folder, resamples=50)
    put_run(folder, "bag", "flat", 1)
    put_run(folder, "bag", "shared", 1)
    made = []
    real = module.differences
    monkeypatch.setattr(module, "differences", lambda *given: made.append(given[2]) or real(*given))
    store_differences(read_results(folder), folder, resamples=50)
    assert made == ["bag"]


def test_the_labels_are_found_in_the_tree_of_the_arm(tmp_path, monkeypatch):
    deep = am.Taxonomy.from_nested({"b": ["w", "z"], "a": [{"c": ["v", "y"]}, "x"]})
    for head in ("flat", "hierarchical"):
        nodes = deep.find_many([TAX.names[node] for node in predictions(0.8, len(head))])
        put_run(
            tmp_path,
            "bilstm-deep",
            head,
            0,
            tree="deep",
            accuracy=float(np.mean(predictions(0.8, len(head)) == TRUTH)),
            predicted=deep.class_of[nodes].tolist(),
        )
    here(monkeypatch)
    trees = {"paper": TAX, "deep": deep}
    results = read_results(tmp_path)
    made = store_differences(results, tmp_path, resamples=20, tree_of=lambda _, name: trees[name])
    accuracy = made["trec"]["bilstm-deep"].get("hierarchical", "accuracy").mean
    assert accuracy == pytest.approx(np.mean(predictions(0.8, 12) == TRUTH) - np.mean(predictions(0.8, 4) == TRUTH))
    with pytest.raises(OptionError, match="trec has no tree 'deep'"):
        store_differences(results, tmp_path, resamples=30)


def test_an_invalid_file_of_differences_is_an_error(folder):
    (folder / "trec" / "differences.json").write_text("{}", "utf-8")
    with pytest.raises(InputError, match=r"differences\.json is not a file of differences"):
        read_differences(read_results(folder), folder)


# Pages


def test_the_page_lists_missing_parts_and_is_deterministic(folder, monkeypatch):
    here(monkeypatch)
    results = read_results(folder)
    found = store_differences(results, folder, resamples=200)
    text = markdown.page(results, found, {"tree-r8": "figures/tree-r8.svg"}, COMMAND)
    assert text == markdown.page(
        read_results(folder), read_differences(results, folder, 200), {"tree-r8": "figures/tree-r8.svg"}, COMMAND
    )
    assert text.startswith(f"<!-- generated by `{COMMAND}`")
    assert "(figures/tree-r8.svg)" in text
    assert "tree-trec" not in text
    assert "## Reuters-52\n\nNo training is evaluated on the test split: not run yet." in text
    assert "Shared against flat: not run yet." in text
    assert "Not run yet: BiLSTM (shared), LSTM (flat, hierarchical, shared), bag of words" in text
    assert "**MiniLM-L6, shared**, hidden 150, 7 epochs. On the test split: not run yet." in text
    assert "Hierarchical is better than flat in macro-F1, +" in text
    assert "(2 common seeds)" in text
    assert "glove.6B.100d.txt" in text
    assert "nan" not in text


def test_the_paper_table_has_the_paper_and_our_means(folder, monkeypatch):
    here(monkeypatch)
    results = read_results(folder)
    table = rows(results, "trec")
    found = store_differences(results, folder, resamples=200)["trec"]["bilstm"]
    lines = [line.strip("| ").split(" | ") for line in markdown.paper_table(table, "trec", found).splitlines()]
    mean, std = table[0].mean["macro_f1"], table[0].std["macro_f1"]
    assert lines[2][:4] == ["macro-F1", "72.6", f"{100 * mean:.1f} ± {100 * std:.1f}", "74.3"]
    assert lines[2][5] == "not run yet"
    assert lines[-1] == ["seeds", "1", "3 seeds", "1", "4 seeds", "–", "2 common seeds"]
    assert {len(line) for line in lines if "---" not in line[0]} == {7}


def test_the_headline_is_compared_with_linearsvc_and_the_state_of_the_art(folder):
    put_run(folder, "minilm", "shared", 0, macro_f1=0.874, accuracy=0.914)
    put_run(folder, "svc", "svc", 0, macro_f1=0.677, accuracy=0.924, chosen={"point": {}, "epochs": None})
    results = read_results(folder)
    text = " ".join(markdown.headline_text(results, "trec", rows(results, "trec")).split())
    assert "in macro-F1 19.7 points above it (67.7), in accuracy 1.0 point below it (92.4)" in text
    assert "is 5.8 points below the state of the art in the paper, 97.2" in text
    assert "MiniLM-L6, shared: 87.4 / 91.4 |" in markdown.overview(results, {})


def test_a_headline_that_was_added_later_names_the_best_of_the_others(folder):
    put_run(folder, "minilm", "shared", 0, macro_f1=0.874, accuracy=0.914)
    put_choice(folder, "blend-all", "flat", 0.999)
    put_run(folder, "blend-all", "flat", 0, macro_f1=0.9, accuracy=0.95)
    results = read_results(folder)
    text = " ".join(markdown.headline_text(results, "trec", rows(results, "trec")).split())
    assert "added after the others were evaluated on the test split" in text
    assert "The best of the others: MiniLM-L6, shared: 87.4 / 91.4" in text
    assert "90.0 / 95.0 (added later; otherwise MiniLM-L6, shared: 87.4 / 91.4) |" in markdown.overview(results, {})


def test_planned_and_missing_runs_are_listed(folder):
    plan = {
        ("bilstm", "flat"): 10,
        ("bilstm", "hierarchical"): 4,
        ("minilm-deep", "hierarchical"): 5,
        ("svc", "svc"): 1,
    }
    results = read_results(folder)
    text = markdown.section(results, "trec", {}, planned=plan)
    assert "| BiLSTM, flat | 3 of 10 |" in text
    assert "| BiLSTM, hierarchical | 4 |" in text
    assert "Not run yet: MiniLM-L6, deeper tree (hierarchical).\n" in text
    left = "MiniLM-L6, deeper tree (hierarchical), TF-IDF + LinearSVC"
    assert f"It may change: cross-validation is not finished for {left}." in text
    assert "MiniLM-L6, shared: test not run yet (so far) |" in markdown.overview(results, {}, {"trec": plan})


def test_an_arm_without_a_flat_head_is_not_compared(folder):
    put_run(folder, "bilstm-deep", "hierarchical", 0, tree="deep")
    results = read_results(folder)
    text = markdown.section(results, "trec", {}, planned={("bilstm-deep", "hierarchical"): 1})
    line = next(line for line in text.splitlines() if line.startswith("| BiLSTM, deeper tree, hierarchical | 1 |"))
    assert line.split(" | ")[4] == "–"
    assert "not comparable" in text


def test_the_overview_has_a_line_per_dataset_even_without_results(tmp_path):
    text = markdown.overview(read_results(tmp_path), {})
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 4
    assert lines[2].count("not run yet") == 5
    assert "| Reuters-52 | 63.6 | 64.4 | not run yet" in lines[5]


def test_the_paper_has_four_measures_for_every_dataset():
    assert {len(side) for paper in PAPER.values() for side in (paper.flat, paper.hierarchical)} == {4}
    assert PAPER["r8"].hierarchical["macro_f1"] == 92.939


# The script


@pytest.fixture
def tables(folder, tmp_path_factory, monkeypatch):
    """The script's `main` on a made-up repository with these records."""
    here(monkeypatch)
    root = tmp_path_factory.mktemp("root")
    put_fold(folder, 0, [0.5, 0.6, 0.7])
    (root / "experiments" / "paper").mkdir(parents=True)
    (root / "experiments" / "paper" / "results").symlink_to(folder)
    script = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "paper" / "tables.py"))
    return root, lambda *argv: script["main"](argv, root)


def test_the_script_writes_what_its_check_then_accepts(tables, monkeypatch, capsys):
    root, run = tables
    assert run("--check") == 1
    assert not (root / "docs").exists()
    assert run() == 0
    names = {path.stem for path in (root / "docs" / "figures").glob("*.svg")}
    assert names == {"tree-trec", "tree-20ng", "tree-r8", "tree-r52", "curves", "differences"}
    page = (root / "docs" / "results.md").read_text("utf-8")
    assert all(f"(figures/{name}.svg)" in page for name in names)
    assert run("--check") == 0
    absent(monkeypatch)
    assert run("--check") == 0


def test_the_script_says_when_records_are_newer_than_the_intervals(tables, folder, monkeypatch, capsys):
    _, run = tables
    run()
    absent(monkeypatch)
    put_run(folder, "bilstm", "flat", 3, 0.6)
    assert run("--check") == 1
    assert "the records of bilstm are newer than the stored intervals" in capsys.readouterr().err


def test_errors_are_counted_by_class_frequency(tmp_path):
    names = np.array(TAX.names)[TRUTH]
    wrong = {"x": "y", "z": "x"}  # a sibling, and another branch: 8 of 40 texts each
    found = TAX.class_of[TAX.find_many([wrong.get(name, name) for name in names])]
    put_run(tmp_path, "bilstm", "flat", 0, predicted=found.tolist())
    examples = Examples(["text"] * len(TRUTH), TRUTH)
    script = runpy.run_path(str(Path(__file__).parents[2] / "experiments" / "why" / "tables.py"))
    data = SimpleNamespace(taxonomy=TAX, train=examples, test=examples)
    lines = script["error_rates"](read_results(tmp_path), "trec", "bilstm", data)
    assert lines == ["| TREC, BiLSTM, flat | 1 | 20.0 | 20.0 | – | – | – | – |"]
