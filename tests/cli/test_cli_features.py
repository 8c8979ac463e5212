"""`arbormax evaluate`, `predict` and `report` for models of feature matrices."""

import json
import shutil

import numpy as np
import pytest

import arbormax as am

NAMES = ["length", "width", "height"]
CLASSES = [("plant", "rose"), ("plant", "oak"), ("animal", "cat")]
LABELS = np.array([" > ".join(path) for path in CLASSES])
CENTRES = np.array([[0.0, 0.0, 4.0], [0.0, 4.0, 0.0], [4.0, 0.0, 0.0]])


def matrix(count, seed=0):
    """Rows around the centre of each class, and their labels."""
    draw = np.random.default_rng(seed)
    classes = draw.integers(0, 3, count)
    return (CENTRES[classes] + draw.normal(size=(count, 3))).astype(np.float32), LABELS[classes]


def write_csv(path, X, y, names=NAMES):
    rows = [",".join([*(repr(float(value)) for value in row), label]) for row, label in zip(X, y, strict=True)]
    path.write_text("\n".join([",".join([*names, "label"]), *rows]) + "\n")
    return path


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A classifier without names of columns, saved after an evaluation."""
    path = tmp_path_factory.mktemp("features") / "model"
    clf = am.HierarchicalClassifier(head="hierarchical", epochs=10, accelerator="cpu").fit(*matrix(200))
    clf.evaluate(*matrix(60, seed=1))
    return clf.save(path)


@pytest.fixture
def table(tmp_path):
    return write_csv(tmp_path / "test.csv", *matrix(60, seed=1))


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def test_every_file_gives_the_measures_of_the_estimator(run, folder, table, tmp_path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, y = matrix(60, seed=1)
    expected = json.loads((folder / "metrics.json").read_text())["test"]
    pq.write_table(pa.table({**dict(zip(NAMES, X.T, strict=True)), "label": y.tolist()}), tmp_path / "test.parquet")
    rows = [{**dict(zip(NAMES, row.tolist(), strict=True)), "label": label} for row, label in zip(X, y, strict=True)]
    (tmp_path / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "test.tsv").write_text(table.read_text().replace(",", "\t"))
    paths = np.array([label.split(" > ") for label in y])
    files = [table, *(tmp_path / f"test.{suffix}" for suffix in ("tsv", "jsonl", "parquet"))]
    files += [npz(tmp_path / "a.npz", X=X, y=y), npz(tmp_path / "b.npz", X=X.astype(np.float64), y=paths)]
    assert expected["accuracy"] > 0.8
    for file in files:
        result = run("evaluate", folder, file, "--json")
        assert result.code == 0, (file, result.err)
        assert json.loads(result.out) == expected, file


def test_the_record_of_an_evaluation_is_that_of_the_estimator_and_is_reported(run, folder, table, tmp_path):
    assert run("evaluate", folder, table, "--out", tmp_path / "m.json", "--predictions", tmp_path / "p.jsonl").code == 0
    written, saved = json.loads((tmp_path / "m.json").read_text()), json.loads((folder / "metrics.json").read_text())
    for part in ("items", "tree", "severity", "confusions", "forks", "calibration", "answers", "config"):
        assert written["details"][part] == saved["details"][part], part
    assert {name: written[name] for name in saved["test"]} == saved["test"]
    assert written["training"] == saved["training"]
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert sum(row["right"] for row in rows) / len(rows) == written["accuracy"]
    assert set(rows[0]) == {"label", "predicted", "predicted_path", "right"}
    for source in (tmp_path / "m.json", folder):
        result = run("report", source, "--out", tmp_path / "r.html")
        assert result.code == 0, result.err
        assert "animal" in (tmp_path / "r.html").read_text()


def test_predictions_are_those_of_the_estimator(run, folder, table, tmp_path):
    X, _ = matrix(60, seed=1)
    expected = [found.to_dict() for found in am.HierarchicalClassifier.load(folder).predict_details(X, top_k=2)]
    for words in (
        [table, "--features", "length,width,height"],
        [table, "--features", "l*th,*dth,height"],
        [npz(tmp_path / "x.npz", X=X)],
    ):
        result = run("predict", folder, *words, "--top-k", "2")
        assert result.code == 0, result.err
        rows = [json.loads(line) for line in result.out.splitlines()]
        assert [{name: row[name] for name in row if name != "line"} for row in rows] == expected
    result = run("predict", folder, table, "--features", "length,width,height", "--keep")
    first = json.loads(result.out.splitlines()[0])
    assert (first["length"], first["predicted_label"]) == (repr(float(X[0, 0])), expected[0]["label"])


def test_columns_are_found_by_the_names_of_the_training(run, refused, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = matrix(100)
    clf = am.HierarchicalClassifier(epochs=5, accelerator="cpu").fit(pd.DataFrame(X, columns=NAMES), y)
    clf.save(tmp_path / "named")
    frame = pd.DataFrame({"id": range(100), "height": X[:, 2], "label": y, "width": X[:, 1], "length": X[:, 0]})
    frame.to_csv(tmp_path / "shuffled.csv", index=False)
    result = run("evaluate", tmp_path / "named", tmp_path / "shuffled.csv", "--json")
    assert json.loads(result.out)["accuracy"] == clf.score(pd.DataFrame(X, columns=NAMES), y)
    assert run("predict", tmp_path / "named", tmp_path / "shuffled.csv").code == 0
    frame.rename(columns={"width": "widht"}).to_csv(tmp_path / "other.csv", index=False)
    message = refused("evaluate", tmp_path / "named", tmp_path / "other.csv")
    assert "no column 'width'; did you mean 'widht'" in message
    assert "--features" in message


@pytest.mark.parametrize(
    ("content", "words", "expected"),
    [
        ("a,b,label\n1,2,cat\n", [], "expected 3 columns of features, found 2, besides the label 'label': 'a', 'b'"),
        ("a,b,c,d,label\n1,2,3,4,cat\n", [], "try --features A,B"),
        ("a,b,c,d,label\n1,2,3,4,cat\n", ["--features", "a,b,e*"], "no column 'e*'"),
        ("a,b,c,label\n1,x,3,cat\n", [], "line 2: 'b' is 'x', not a finite 32-bit number"),
        ("a,b,c,label\n1,,3,cat\n", [], "line 2: 'b' is '', not a finite 32-bit number"),
        ("a,b,c,label\n1,nan,3,cat\n", [], "line 2: 'b' is 'nan', not a finite 32-bit number"),
        ("a,b,c,label\n1,2,-inf,cat\n", [], "line 2: 'c' is '-inf', not a finite 32-bit number"),
        ("a,b,c,label\n1,2,1e300,cat\n", [], "line 2: 'c' is '1e300', not a finite 32-bit number"),
        ("a,b,c,label\n1,2,3,\n", [], "'label' is empty"),
        ("a,b,c\n1,2,3\n", [], "no column 'label'"),
        ("a,b,c,kind\n1,2,3,cat\n", ["--label", "knid"], "did you mean 'kind'"),
        ("a,b,c,label\n", [], "no rows"),
        ("a,b,c,label\n1,2,3,cat\n", ["--text", "a"], "--text"),
        ("a,b,c,label\n1,2,3,cat\n", ["--split", "train"], "--split"),
    ],
)  # fmt: skip
def test_wrong_tables_of_features_are_reported(refused, folder, tmp_path, content, words, expected):
    (tmp_path / "t.csv").write_text(content)
    assert expected in refused("evaluate", folder, tmp_path / "t.csv", *words)


def test_bad_rows_can_be_skipped(run, refused, folder, tmp_path):
    X, y = matrix(20)
    table = write_csv(tmp_path / "t.csv", X, y)
    table.write_text(table.read_text() + "1,2,x,plant > oak\n3,,1,animal > cat\n")
    assert "2 rows cannot be used" in refused("evaluate", folder, table, lines=3)
    result = run("evaluate", folder, table, "--skip-bad-rows", "--json")
    assert json.loads(result.out)["items"] == 20
    assert "2 rows skipped: line 22: 'height' is 'x'" in result.err
    assert run("predict", folder, table, "--features", ",".join(NAMES), "--skip-bad-rows").out.count("\n") == 20


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"X": np.zeros((3, 3))}, "arrays with X and y ('y is not a file"),
        ({"data": np.zeros(3), "y": LABELS}, "arrays with X and y ('X is not a file"),
        ({"X": np.zeros((3, 2)), "y": LABELS}, "expected numbers of shape (rows, 3) in X, found float64 of (3, 2)"),
        ({"X": np.zeros((3, 3)), "y": LABELS[:2]}, "for each of the 3 rows in y, found <U12 of (2,)"),
        ({"X": np.array([["a"] * 3] * 3), "y": LABELS}, "numbers of shape (rows, 3) in X, found <U1 of (3, 3)"),
        ({"X": np.zeros((3, 3), complex), "y": LABELS}, "complex128"),
        ({"X": np.zeros((3, 3)), "y": np.zeros(3, complex)}, "for each of the 3 rows in y, found complex128 of (3,)"),
        ({"X": np.array([[0, 0, 0], [0, np.nan, 0], [0, 0, 0]]), "y": LABELS}, "row 2: 'column 1' is nan, not"),
        ({"X": np.zeros((0, 3)), "y": LABELS[:0]}, "no rows"),
        ({"X": np.zeros((3, 3)), "y": LABELS.astype(object)}, "arrays with X and y (Object arrays"),
    ],
)  # fmt: skip
def test_wrong_arrays_are_reported(refused, folder, tmp_path, arrays, expected):
    assert expected in refused("evaluate", folder, npz(tmp_path / "t.npz", **arrays))


def test_a_damaged_archive_is_reported(refused, folder, tmp_path):
    (tmp_path / "t.npz").write_bytes(b"PK\x03\x04 not an archive")
    assert "t.npz" in refused("evaluate", folder, tmp_path / "t.npz")
    with (tmp_path / "one.npz").open("wb") as file:
        np.save(file, np.zeros((3, 3)))
    assert "expected an .npz file of plain arrays with X and y ('numpy.ndarray' object" in refused(
        "evaluate", folder, tmp_path / "one.npz"
    )
    assert "no such file" in refused("evaluate", folder, tmp_path / "none.npz")
    file = npz(tmp_path / "a.npz", X=np.zeros((3, 3)), y=LABELS)
    assert "--features: a.npz" in refused("evaluate", folder, file, "--features", "a,b,c")


def test_texts_and_features_are_not_mixed_up(refused, folder, model, texts, table, tmp_path):
    assert "expected 3 columns of features, found 1" in refused("evaluate", folder, texts / "test.csv")
    assert "classifies feature matrices" in refused("predict", folder, "--message", "a goal")
    assert "classifies feature matrices" in refused("evaluate", folder, "icd10cm")
    assert "--text: test.csv: no column 'text'" in refused("evaluate", model, table)
    for command in ("evaluate", "predict"):
        file = npz(tmp_path / "a.npz", X=np.zeros((3, 3)), y=LABELS)
        assert "classifies texts" in refused(command, model, file)
        assert "--features" in refused(command, model, texts / "test.csv", "--features", "a")


def test_a_decoder_is_evaluated(run, refused, folder, model, texts, table):
    plain = json.loads(run("evaluate", folder, table, "--json").out)
    for words in (["--tau", "0.99"], ["--decoder", "threshold", "--decoder-option", "tau=0.99"]):
        found = json.loads(run("evaluate", folder, table, "--json", *words).out)
        assert (found["nll"], found["ece"]) == (plain["nll"], plain["ece"])
        assert found["accuracy"] < plain["accuracy"]
        assert found["hp"] > plain["hp"]
    X, y = matrix(60, seed=1)
    clf = am.HierarchicalClassifier.load(folder)
    nodes = clf.predict_nodes(X, tau=0.99)
    assert found["hf"] == am.metrics.evaluate([tuple(label.split(" > ")) for label in y], nodes, clf.taxonomy_)["hf"]
    assert "--decoder" in refused("evaluate", model, texts / "test.csv", "--decoder", "laef")
    assert "--tau" in refused("evaluate", model, texts / "test.csv", "--tau", "2")
    assert run("evaluate", model, texts / "test.csv", "--decoder", "greedy").code == 0


def test_the_number_of_items_is_printed_once(run, folder, table):
    printed = run("evaluate", folder, table).out
    assert "items" in printed
    assert "\n  count " not in printed


def test_a_damaged_record_of_a_classifier_is_reported(refused, folder, table, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "classifier.json").write_text("{")
    assert "classifier.json is not valid JSON" in refused("evaluate", copy, table)
