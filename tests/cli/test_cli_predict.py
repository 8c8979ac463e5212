"""`arbormax predict` and `evaluate`: streams in, rows out."""

import csv
import gzip
import io
import json
import signal
import time
import tracemalloc

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_tools import program, rows, write_csv

from arbormax import Taxonomy
from arbormax.data.columns import InputColumns
from arbormax.model import load_model
from arbormax.model.predict import NodeNames
from arbormax.model.rows import ROWS, predict_rows, read_rows

LABELS = {"sport", "weather", "shoes", "hats"}


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_one_text_is_printed_as_a_path_with_probabilities(run, model):
    result = run("predict", model, "--message", "goal match team", "--top-k", "2")
    assert result.code == 0
    assert "└── news  0." in result.out
    assert "    └── sport  0." in result.out
    assert "most probable classes" in result.out


def test_one_text_as_json_agrees_with_the_library(run, model):
    result = json.loads(run("predict", model, "-m", "goal match team", "--json", "--top-k", "4").out)
    assert result["path"] == ["news", "sport"]
    assert result["label"] == "sport"
    loaded = load_model(model)
    logp = next(loaded.node_log_probs(["goal match team"]))[0].exp()
    tax = loaded.taxonomy
    assert result["probabilities"] == pytest.approx(
        [logp[tax.find("news")].item(), logp[tax.find("sport")].item()], abs=1e-5
    )
    assert sum(best["probability"] for best in result["top"]) == pytest.approx(1, abs=1e-4)
    assert {best["label"] for best in result["top"]} == LABELS


def test_a_threshold_stops_at_an_inner_node_or_the_root(run, model):
    unsure = "goal rain"
    whole = json.loads(run("predict", model, "-m", unsure, "--json").out)
    between = sum(whole["probabilities"]) / 2
    result = json.loads(run("predict", model, "-m", unsure, "--json", "--tau", between).out)
    assert result["path"] == whole["path"][:1]
    assert result["label"] == whole["path"][0]
    root = json.loads(run("predict", model, "-m", unsure, "--json", "--decoder", "threshold", "--tau", "0.999999").out)
    assert (root["label"], root["path"], root["probabilities"]) == ("", [], [])
    assert "root" in run("predict", model, "-m", unsure, "--tau", "0.999999").out


@pytest.mark.parametrize("decoder", ["leaf", "greedy", "threshold"])
def test_every_decoder_can_be_chosen(run, model, decoder):
    assert run("predict", model, "-m", "goal match", "--decoder", decoder).code == 0


def test_a_table_gives_one_line_of_json_for_every_row(run, model, texts):
    result = run("predict", model, texts / "test.csv")
    assert result.code == 0
    predicted = lines(result.out)
    assert [row["line"] for row in predicted] == list(range(2, 32))
    assert set(predicted[0]) == {"line", "label", "path", "probabilities"}


def test_input_columns_come_first_and_keep_their_names(run, model, texts):
    predicted = lines(run("predict", model, texts / "test.csv", "--keep", "--top-k", "1").out)
    assert list(predicted[0]) == [
        "text",
        "label",
        "predicted_label",
        "predicted_path",
        "predicted_probabilities",
        "predicted_top",
    ]
    right = sum(" > ".join(row["predicted_path"]) == row["label"] for row in predicted)
    assert right > 15


def test_columns_without_a_conflict_keep_their_names(run, model, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": 7, "text": "goal", "more": {"x": [1]}}\n')
    (row,) = lines(run("predict", model, tmp_path / "a.jsonl", "--keep").out)
    assert (row["id"], row["more"], row["label"]) == (7, {"x": [1]}, "sport")


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_every_format_contains_the_same_predictions(run, model, texts, tmp_path, suffix):
    out = tmp_path / f"out.{suffix}"
    result = run("predict", model, texts / "test.csv", "--keep", "--top-k", "2", "--out", out)
    assert result.code == 0, result.err
    assert result.out == ""
    assert "30 rows" in result.err
    expected = lines(run("predict", model, texts / "test.csv", "--keep", "--top-k", "2").out)
    if suffix == "parquet":
        assert pq.read_table(out).to_pylist() == expected
    elif suffix == "jsonl":
        assert lines(out.read_text()) == expected
    else:
        found = list(csv.DictReader(io.StringIO(out.read_text()), delimiter="," if suffix == "csv" else "\t"))
        assert [row["predicted_label"] for row in found] == [row["predicted_label"] for row in expected]
        assert found[0]["predicted_path"] == " > ".join(expected[0]["predicted_path"])
        numbers = [float(p) for p in found[0]["predicted_probabilities"].split(";")]
        assert numbers == expected[0]["predicted_probabilities"]
        assert found[0]["predicted_top2_label"] == expected[0]["predicted_top"][1]["label"]
    assert [path.name for path in tmp_path.iterdir()] == [out.name]


def test_the_output_can_be_evaluated_as_labels(run, model, texts, tmp_path):
    assert run("predict", model, texts / "test.csv", "--keep", "--out", tmp_path / "p.csv").code == 0
    result = run("evaluate", model, tmp_path / "p.csv", "--label", "predicted_path", "--json")
    assert json.loads(result.out)["accuracy"] == 1


def test_a_txt_file_has_one_text_per_line(run, model, tmp_path):
    content = 'goal "team\n\nrain, sun\r\nbrim\tcap'
    (tmp_path / "a.txt").write_bytes(content.encode())
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(content.encode()))
    for result in (
        run("predict", model, tmp_path / "a.txt", "--keep"),
        run("predict", model, tmp_path / "a.txt.gz", "--keep"),
    ):
        found = lines(result.out)
        assert [row["text"] for row in found] == ['goal "team', "rain, sun", "brim\tcap"]
    assert [row["line"] for row in lines(run("predict", model, tmp_path / "a.txt").out)] == [1, 3, 4]


def test_stdin_is_read_as_lines_or_in_the_given_format(run, model):
    for words in (["-"], []):
        result = run("predict", model, *words, input="goal team\nrain sun\n")
        assert [row["label"] for row in lines(result.out)] == ["sport", "weather"]
    result = run(
        "predict", model, "-", "--input-format", "csv", "--text", "body", "--format", "csv", input="n,body\n1,goal\n"
    )
    assert result.out.splitlines()[1].startswith("2,sport,")


def test_other_columns_delimiters_and_positions(run, model, tmp_path):
    (tmp_path / "a.csv").write_text("1;goal team\n2;rain\n")
    result = run("predict", model, tmp_path / "a.csv", "--no-header", "--delimiter", ";", "--text", "1")
    assert [row["label"] for row in lines(result.out)] == ["sport", "weather"]


def test_bad_rows_are_reported_with_their_lines_and_skipped_on_request(run, refused, model, tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("text,n\ngoal,1\n,2\nrain,3,4\nsun,5\n")
    out = tmp_path / "out.csv"
    message = refused("predict", model, bad, "--out", out, lines=None)
    assert "line 3" in message
    assert "line 4" in message
    assert "--skip-bad-rows" in message
    assert [path.name for path in tmp_path.iterdir()] == ["bad.csv"]
    result = run("predict", model, bad, "--skip-bad-rows", "--out", out)
    assert result.code == 0
    assert "2 rows skipped" in result.err
    assert len(out.read_text().splitlines()) == 3


def test_one_bad_row_is_reported_in_one_line(refused, model, tmp_path):
    (tmp_path / "bad.csv").write_text("text,n\n,1\n")
    refused("predict", model, tmp_path / "bad.csv")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a.csv", "-m", "x"], "--message"),
        (["-m", "x", "--out", "o.csv"], "--message"),
        (["-m", " "], "empty"),
        (["none.csv"], "none.csv"),
        (["."], "folder"),
        (["a.xls"], "suffix"),
        (["a.csv", "--text", "txet"], "did you mean 'text'"),
        (["a.csv", "--out", "o.xls"], "suffix"),
        (["a.csv", "--out", "none/o.csv"], "does not exist"),
        (["a.csv", "--out", "."], None),
        (["a.csv", "--out", "a.csv"], "is the input file"),
        (["a.csv", "--format", "xml"], "--format"),
        (["a.csv", "--format", "parquet"], "--out"),
        (["a.csv", "--json", "--format", "csv"], "--json"),
        (["a.csv", "--decoder", "best"], "--decoder"),
        (["a.csv", "--decoder", "leaf", "--tau", "0.5"], "--tau"),
        (["a.csv", "--tau", "1.5"], "--tau"),
        (["a.csv", "--tau", "nan"], "--tau"),
        (["a.csv", "--top-k", "-1"], "--top-k"),
        (["a.csv", "--batch-size", "0"], "--batch-size"),
        (["a.txt", "--text", "body", "--text", "title"], "--input-format"),
        (["empty.csv"], "no texts"),
        (["empty.txt"], None),
        (["nothing.csv"], "empty"),
        (["a.parquet"], "Parquet"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_are_reported_in_one_line(refused, model, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("text\ngoal\n")
    for name, content in (
        ("a.xls", "x"),
        ("a.txt", "goal\n"),
        ("empty.csv", "text\n"),
        ("empty.txt", ""),
        ("nothing.csv", ""),
    ):
        (tmp_path / name).write_text(content)
    (tmp_path / "a.parquet").write_text("no parquet")
    before = sorted(path.name for path in tmp_path.iterdir())
    message = refused("predict", model, *words)
    assert expected is None or expected in message
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_folder_without_a_model_is_an_error(refused, texts, tmp_path):
    for folder in (tmp_path, tmp_path / "none", texts / "test.csv"):
        assert "not a model" in refused("predict", folder, "-m", "x")


def test_a_damaged_model_is_an_error(refused, model, tmp_path):
    import shutil

    copy = shutil.copytree(model, tmp_path / "copy")
    (copy / "model.safetensors").write_bytes((model / "model.safetensors").read_bytes()[:-1])
    assert "model.safetensors" in refused("predict", copy, "-m", "x")
    (copy / "model.safetensors").unlink()
    assert "missing" in refused("predict", copy, "-m", "x")
    (copy / "config.json").write_text("{")
    assert "JSON" in refused("predict", copy, "-m", "x")


def test_rows_are_read_lazily(model):
    read = 0

    class Endless(io.RawIOBase):
        name = "endless"

        def readable(self):
            return True

        def readinto(self, buffer):
            nonlocal read
            chunk = (b"goal team\n" * (len(buffer) // 10 + 1))[: len(buffer)]
            buffer[: len(chunk)] = chunk
            read += len(chunk)
            return len(chunk)

    rows = read_rows(io.BufferedReader(Endless()), InputColumns(), format="txt")
    found = predict_rows(load_model(model), rows, batch_size=64, on_bad_rows=lambda problems: None)
    for _ in range(ROWS + 5):
        assert next(found)["label"] == "sport"
    assert read < 10 * 4 * ROWS + (1 << 20)


def peak(run, model, file, out):
    """The most memory, in MiB, that Python held while it predicted the rows of a file."""
    tracemalloc.start()
    try:
        assert run("predict", model, file, "--keep", "--top-k", "2", "--out", out).code == 0
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(run, model, tmp_path):
    few, many = (write_csv(tmp_path / f"{count}.csv", count) for count in (2 * ROWS, 8 * ROWS))
    peak(run, model, few, tmp_path / "o.csv")  # what is imported at the first time
    assert peak(run, model, many, tmp_path / "o.csv") < 1.2 * peak(run, model, few, tmp_path / "o.csv")
    assert len((tmp_path / "o.csv").read_text().splitlines()) == 2 * ROWS + 1


def test_a_killed_run_leaves_no_output_file(model, tmp_path):
    file = write_csv(tmp_path / "many.csv", 200_000)
    out = tmp_path / "out.csv"
    process = program("predict", model, file, "--out", out, start=True)
    for _ in range(600):
        if [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]:
            break
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert not out.exists()


def test_labels_of_nodes_can_be_found():
    tax = Taxonomy.from_nested({"a": {"x": ["1", "2"], "z": ["q"]}, "b": {"x": ["1"], "y": ["a/c"]}})
    names = NodeNames(tax)
    assert names.label(0) == ""
    for node in range(1, tax.num_nodes):
        assert tax.find(names.label(node)) == node


def test_evaluation_prints_every_measure(run, model, texts):
    result = run("evaluate", model, texts / "test.csv")
    assert result.code == 0
    metrics = json.loads(run("evaluate", model, texts / "test.csv", "--json").out)
    for name in metrics:
        assert name in result.out
    assert metrics == json.loads((model / "metrics.json").read_text())["test"]


def test_evaluation_writes_measures_and_predictions(run, model, texts, tmp_path):
    words = ["--out", tmp_path / "m.json", "--predictions", tmp_path / "p.jsonl"]
    assert run("evaluate", model, texts / "test.csv", *words).code == 0
    metrics = json.loads((tmp_path / "m.json").read_text())
    predicted = lines((tmp_path / "p.jsonl").read_text())
    assert sum(row["right"] for row in predicted) / len(predicted) == metrics["accuracy"]
    assert {row["predicted"] for row in predicted} <= LABELS


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["none.csv"], "none.csv"),
        (["tset.csv"], None),
        (["trec"], None),
        (["icd10cm", "--text", "body"], "--text"),
        (["test.csv", "--split", "middle"], "--split"),
        (["test.csv", "--split", "train"], "--split"),
        (["test.csv", "--predictions", "p.xls"], "suffix"),
        (["test.csv", "--out", "none/m.json"], "none"),
        (["test.csv", "--label", "lable"], "did you mean 'label'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_arguments_of_an_evaluation_are_reported(refused, model, texts, tmp_path, monkeypatch, words, expected):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    (tmp_path / "test.csv").write_text((texts / "test.csv").read_text())
    (tmp_path / "other.csv").write_text("text,label\nwarm,shop > coats\n")
    message = refused("evaluate", model, *words, lines=None if words == ["trec"] else 1)
    assert expected is None or expected in message


def test_a_dataset_with_another_taxonomy_is_an_error(refused, model, tmp_path, monkeypatch):
    monkeypatch.setenv("ARBORMAX_DATA", str(tmp_path))
    (tmp_path / "r8").mkdir()
    for split in ("train", "test"):
        (tmp_path / "r8" / f"{split}.tsv").write_text("earn\tprofit rose\n")
    assert "another taxonomy" in refused("evaluate", model, "r8")


def test_columns_of_a_parquet_input_keep_their_types(run, model, tmp_path):
    rows_in = [{"text": text, "n": n, "none": None} for n, (text, _) in enumerate(rows(5))]
    pq.write_table(pa.Table.from_pylist(rows_in), tmp_path / "a.parquet")
    assert run("predict", model, tmp_path / "a.parquet", "--keep", "--out", tmp_path / "o.parquet").code == 0
    found = pq.read_table(tmp_path / "o.parquet").to_pylist()
    assert [row["n"] for row in found] == [0, 1, 2, 3, 4]


def test_a_parquet_file_may_begin_with_root_predictions(tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    from arbormax.data.tables import writing
    from arbormax.data.tables.writing import open_writer

    monkeypatch.setattr(writing, "ROW_GROUP", 2)
    with open_writer(tmp_path / "x.parquet", None) as write:
        for path, shares in [([], []), ([], []), (["a", "b"], [0.9, 0.8])]:
            write({"label": "x", "path": path, "probabilities": shares})
    found = pq.read_table(tmp_path / "x.parquet").to_pylist()
    assert found[2] == {"label": "x", "path": ["a", "b"], "probabilities": [0.9, 0.8]}
