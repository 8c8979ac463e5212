"""`arbormax predict --engine ray`: the rows of the local engine, each once, from any number of workers."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from arbormax import Taxonomy
from arbormax.cli.app import app
from arbormax.data import Examples, iter_rows
from arbormax.encoders.bag import BagEncoder
from arbormax.model import TrainConfig, save_model
from arbormax.model.rows import ROWS
from arbormax.training import fit

pytest.importorskip("ray.data", reason="needs arbormax[ray]")

# Ray copies its own settings, among them outdated ones such as `use_push_based_shuffle`
pytestmark = pytest.mark.filterwarnings("ignore:`use_.*` is deprecated:DeprecationWarning")

WORDS = {"sport": "goal match team", "weather": "rain sun wind", "shoes": "boot heel lace", "hats": "brim cap felt"}
# kills the process that meets the text, once for each marker that is not there yet
KILLER = """
import os, signal
from arbormax.encoders.bag import BagEncoder

once, markers = BagEncoder.encode, {markers!r}

def encode(self, texts):
    if "the end" in texts:
        for marker in markers:
            if not os.path.exists(marker):
                open(marker, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
    return once(self, texts)

BagEncoder.encode = encode
"""


def corpus_rows(count, seed=0):
    draw = random.Random(seed)
    for number in range(count):
        label = draw.choice(list(WORDS))
        yield {"n": number, "text": " ".join(draw.choices(WORDS[label].split(), k=4)), "label": label}


def write(path, rows, **options):
    path.parent.mkdir(exist_ok=True, parents=True)
    pq.write_table(pa.Table.from_pylist(list(rows)), path, **options)
    return path


def run_predict(*words):
    return CliRunner().invoke(app, ["predict", *map(str, words)], prog_name="arbormax")


def predicted(out, *words):
    """The table that a command wrote."""
    result = run_predict(*words, "--device", "cpu", "--out", out)
    assert result.exit_code == 0, (result.output, result.exception)
    assert not list(out.parent.glob(".*"))
    return pq.read_table(out)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    tree = Taxonomy.from_nested({"news": ["sport", "weather"], "shop": ["shoes", "hats"]})
    rows = list(corpus_rows(80))
    examples = Examples([row["text"] for row in rows], tree.find_many([row["label"] for row in rows]))
    config = TrainConfig.make(encoder="bag", encoder_options={"dim": 8}, epochs=4, learning_rate=0.05, patience=None)
    return save_model(fit(config, tree, examples).model, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def cluster():
    import ray

    from arbormax.integrations.ray import _session

    with _session(ray, 2):
        yield


@pytest.fixture
def killing(tmp_path, monkeypatch):
    """Writes a module that kills the workers that import it, so many times, and gives its name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(BagEncoder, "encode", BagEncoder.encode)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def killing(times):
        name = f"killing_{times}"
        markers = [str(tmp_path / f"killed{time}") for time in range(times)]
        Path(f"{name}.py").write_text(KILLER.format(markers=markers))
        return name

    return killing


@pytest.mark.slow
def test_rows_are_complete_and_in_order_if_a_worker_is_killed(cluster, killing, model, tmp_path):
    rows = list(corpus_rows(6 * ROWS + 100))
    rows[5 * ROWS]["text"] = "the end"  # the second batch of the second span
    file = write(tmp_path / "in" / "a.parquet", rows, row_group_size=3000)
    expected = predicted(tmp_path / "local.parquet", model, file, "--keep", "--top-k", "2")
    words = ["--engine", "ray", "--workers", "2", "--import", killing(1), "--keep", "--top-k", "2"]
    found = predicted(tmp_path / "ray.parquet", model, file, *words)
    assert (tmp_path / "killed0").exists()
    assert found.schema == expected.schema
    assert found["n"].to_pylist() == list(range(len(rows)))
    assert found.equals(expected)


@pytest.mark.slow
def test_rows_that_kill_every_worker_end_the_run(cluster, killing, model, tmp_path):
    rows = list(corpus_rows(ROWS + 10))
    rows[ROWS + 5]["text"] = "the end"
    file = write(tmp_path / "in" / "a.parquet", rows)
    words = ["--engine", "ray", "--workers", "1", "--import", killing(99), "--out", tmp_path / "out.parquet"]
    result = run_predict(model, file, *words)
    assert result.exit_code == 2, (result.output, result.exception)
    assert "rows 1 to 2,058" in result.stderr
    assert "4 workers died" in result.stderr
    assert not list(tmp_path.glob("*out.parquet*"))


@pytest.mark.slow
def test_the_files_of_a_folder_are_concatenated(cluster, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    counts = {"a.parquet": ROWS + 7, "b.parquet": 0, "c/d.parquet": 5}
    empty = pa.table({"n": pa.array([], pa.int64()), "text": pa.array([], pa.string())})
    for seed, (name, count) in enumerate(counts.items()):
        rows = [{"n": row["n"], "text": row["text"]} for row in corpus_rows(count, seed)]
        pq.write_table(empty, write(Path("in", name), [{}])) if not rows else write(Path("in", name), rows)
    write(Path("in", "_notes.parquet"), [{"other": 1}])
    found = predicted(tmp_path / "ray.parquet", model, "in", "--engine", "ray")
    parts = {name: predicted(tmp_path / "local.parquet", model, f"in/{name}") for name in counts if counts[name]}
    assert found.column_names == ["file", "line", "label", "path", "probabilities"]
    assert found.drop_columns("file").equals(pa.concat_tables(parts.values()).combine_chunks())
    assert found["file"].to_pylist() == [f"in/{name}" for name in counts for _ in range(counts[name])]
    again = predicted(
        tmp_path / "again.parquet", model, "in/[ab].parquet", "in/c/d.parquet", "in/a.parquet", "--engine", "ray"
    )
    assert again.equals(found)


@pytest.mark.slow
def test_bad_rows_are_handled_as_by_the_local_engine(cluster, model, tmp_path):
    rows = list(corpus_rows(2 * ROWS))
    rows[5]["text"], rows[ROWS + 1]["text"], rows[ROWS + 2]["text"] = "", None, "  "
    file = write(tmp_path / "a.parquet", rows)
    messages = []
    for engine in ("local", "ray"):
        result = run_predict(model, file, "--engine", engine, "--out", tmp_path / "out.parquet")
        assert result.exit_code == 2
        messages.append(result.stderr)
    assert messages[0] == messages[1]
    assert "row 6" in messages[1]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet"]
    local, ray = (
        predicted(tmp_path / f"{engine}.parquet", model, file, "--skip-bad-rows", "--tau", "0.9", "--engine", engine)
        for engine in ("local", "ray")
    )
    assert ray.equals(local)
    assert ray.num_rows == 2 * ROWS - 3


def test_the_columns_of_the_model_make_the_text(cluster, tmp_path):
    import arbormax as am

    rows = [{"n": n, "name": "scarf", "about": "warm", "brand": ("Acme", "Bolt")[n % 2]} for n in range(40)]
    clf = am.TextClassifier({"a": ["x", "y"]}, text_columns=["name", "about"], also=["brand"])
    folder = clf.fit(rows, ["x", "y"] * 20).save(tmp_path / "m")
    table = write(tmp_path / "rows.parquet", rows)
    found = predicted(tmp_path / "out.parquet", folder, table, "--engine", "ray", "--workers", 2)
    assert found == predicted(tmp_path / "local.parquet", folder, table)
    assert found["label"].to_pylist() == ["x", "y"] * 20
    given = ["--text", "name", "--text", "about", "--also", "brand"]
    assert found == predicted(tmp_path / "given.parquet", folder, table, "--engine", "ray", "--workers", 2, *given)


@pytest.mark.slow
def test_the_program_starts_and_stops_ray_silently(model, tmp_path):
    file = write(tmp_path / "a.parquet", corpus_rows(100))
    command = [sys.executable, "-m", "arbormax", "predict", model, file, "--engine", "ray", "--workers", "1"]
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": quiet}
    result = subprocess.run([*command, "--out", tmp_path / "out.parquet"], timeout=240, **options)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr == f"written: {tmp_path / 'out.parquet'}, 100 rows\n"

    stopped = subprocess.Popen([*command, "--out", tmp_path / "stopped.parquet"], **options)
    while not list(tmp_path.glob(".arbormax-*.tmp")):
        time.sleep(0.05)
    stopped.send_signal(signal.SIGINT)
    out, err = stopped.communicate(timeout=120)
    assert (stopped.returncode, out, err) == (130, "", "arbormax: stopped\n")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "out.parquet"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a.csv", "--out", "o.parquet"], "Parquet"),
        (["a.parquet", "--input-format", "csv", "--out", "o.parquet"], "Parquet"),
        (["-", "--out", "o.parquet"], "Parquet"),
        (["--out", "o.parquet"], "Parquet"),
        (["-m", "goal", "--out", "o.parquet"], "Parquet"),
        (["a.parquet"], "--out FILE.parquet"),
        (["a.parquet", "--json", "--out", "o.parquet"], "--json cannot be combined with --engine ray"),
        (["nowhere", "--out", "o.parquet"], "nowhere: found no Parquet file"),
        (["a.parquet", "--out", "o.csv"], "--out FILE.parquet"),
        (["a.parquet", "--delimiter", ";", "--out", "o.parquet"], "--delimiter"),
        (["a.parquet", "--text", "txet", "--out", "o.parquet"], "did you mean 'text'"),
        (["a.parquet", "--device", "cuda:1", "--out", "o.parquet"], "cuda:1"),
        (["a.parquet", "--workers", "0", "--out", "o.parquet"], "--workers"),
        (["a.parquet", "--out", "a.parquet"], "inputs"),
        (["a.parquet", "--out", "none/o.parquet"], "does not exist"),
        (["empty.parquet", "--out", "o.parquet"], "no texts"),
        (["none.parquet", "--out", "o.parquet"], "none.parquet"),
        (["broken.parquet", "--out", "o.parquet"], "not a complete Parquet file"),
        (["*.part", "--out", "o.parquet"], "*.part: found no Parquet file"),
        (["bare", "--out", "o.parquet"], ".parquet"),
        (["full", "--out", "full/o.parquet"], "among the inputs"),
        (["a.parquet", "other.parquet", "--keep", "--out", "o.parquet"], "one table"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_input_is_reported_before_ray_starts(model, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("arbormax.integrations.ray._resources", None)
    monkeypatch.setattr("arbormax.integrations.ray._session", lambda *_: pytest.fail("started"))
    for name in ("a.parquet", "full/a.parquet"):
        write(Path(name), corpus_rows(3))
    write(Path("other.parquet"), [{"text": "goal", "m": 1}])
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), "empty.parquet")
    Path("a.csv").write_text("text\ngoal\n")
    Path("broken.parquet").write_text("no")
    Path("bare").mkdir()
    before = sorted(Path().rglob("*"))
    result = run_predict(model, *words, "--engine", "ray")
    assert result.exit_code == 2, (result.output, result.exception)
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert sorted(Path().rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--workers", "2"], "--engine ray"),
        (["--engine", "rya"], "did you mean 'ray'"),
        (["b.csv"], "--engine ray takes several"),
    ],
)
def test_options_of_ray_are_errors_with_the_local_engine(model, words, message):
    result = run_predict(model, "a.csv", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_cluster_that_does_not_answer_is_reported_at_once(model, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    file = write(tmp_path / "a.parquet", corpus_rows(3))
    result = run_predict(model, file, "--engine", "ray", "--out", tmp_path / "o.parquet")
    assert result.exit_code == 2
    assert "RAY_ADDRESS=127.0.0.1:1" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["a.parquet"]


def test_the_error_without_ray_names_the_extra(model, tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name == "ray" or name.startswith("ray.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    file = write(tmp_path / "a.parquet", corpus_rows(3))
    result = run_predict(model, file, "--engine", "ray", "--out", tmp_path / "o.parquet")
    assert result.exit_code == 2
    assert "arbormax[ray]" in result.stderr


@pytest.mark.parametrize("group", [1, 7, 100])
@pytest.mark.parametrize("span", [(0, 0), (0, 5), (3, 60), (14, 21), (59, 60), (60, 99), (70, 80)])
def test_a_span_of_a_parquet_file_can_be_read(tmp_path, group, span):
    file = write(tmp_path / "a.parquet", corpus_rows(60), row_group_size=group)
    batches = list(iter_rows(file, ["text"], 9, records=True, span=span))
    lines = [line for batch in batches for line in batch.lines]
    assert lines == list(range(span[0] + 1, min(span[1], 60) + 1))
    assert [row["n"] + 1 for batch in batches for row in batch.rows] == lines
