"""`explain`, and the drawings of `taxonomy show`."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

TEXT = "goal match team"


def test_the_path_its_probabilities_and_its_words_are_told(run, model):
    told = run("explain", model, TEXT)
    assert told.code == 0, told.err
    assert told.out.splitlines()[0] == TEXT
    assert "▸ news" in told.out
    assert "▸ sport ◂ the answer" in told.out
    assert " %" in told.out
    assert "goal +" in told.out
    assert "gradient × input" in told.out


def test_an_explanation_is_json_for_scripts(run, model):
    found = json.loads(run("explain", model, TEXT, "--json", "--siblings", 1).out)
    assert (found["text"], found["path"]) == (TEXT, ["news", "sport"])
    assert [token["text"] for token in found["tokens"]] == TEXT.split()
    assert len(found["nodes"]) == 3


def test_a_model_that_is_not_sure_stops_early(run, model):
    found = json.loads(run("explain", model, "unheard-of", "--tau", 0.99, "--json").out)
    assert found["stopped_at"] < len(found["steps"])
    assert "the answer is the root" in run("explain", model, "unheard-of", "--tau", 0.99).out


def test_an_explanation_is_drawn(run, model, tmp_path):
    text = "<script>alert('goal')</script>"
    told = run("explain", model, text, "--svg", tmp_path / "why.svg")
    assert told.code == 0
    drawing = (tmp_path / "why.svg").read_text("utf-8")
    assert ET.fromstring(drawing).findtext("{http://www.w3.org/2000/svg}title") == text
    assert "<script" not in drawing


def test_a_text_cannot_steer_the_terminal(run, model):
    assert "\u001b" not in run("explain", model, "goal\u001b[31m match").out


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "MODEL", "   "],
        ["explain", "none", "goal"],
        ["explain", "MODEL", "goal", "--decoder", "best"],
        ["explain", "MODEL", "goal", "--decoder", "leaf", "--tau", "0.5"],
        ["explain", "MODEL", "goal", "--siblings", "0"],
        ["explain", "MODEL", "goal", "--svg", "none/why.svg"],
        ["taxonomy", "show", "trec", "--counts", "MODEL"],
        ["taxonomy", "show", "trec", "--counts", "nothing"],
        ["taxonomy", "show", "trec", "--svg", "none/t.svg"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_shown_is_refused_in_one_line(refused, model, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    refused(*(str(model) if word == "MODEL" else word for word in words))
    assert not list(tmp_path.iterdir())


def test_bars_tell_the_share_of_the_classes(run, tmp_path):
    (tmp_path / "tree.txt").write_text("news/sport\nnews/weather\nnews/art\nshop/hats\n")
    told = run("taxonomy", "show", tmp_path / "tree.txt").out.splitlines()
    assert told[1].split() == ["├──", "news", "(3", "classes)", "█████████", "75.0", "%"]
    assert told[5].split() == ["└──", "shop", "(1", "class)", "███", "25.0", "%"]
    assert told[1].index("█") == told[5].index("█")


def test_examples_are_counted_at_every_node(run, model, texts):
    told = run("taxonomy", "show", model, "--counts", texts / "train.csv")
    assert told.code == 0, told.err
    assert "120 examples" in told.out.splitlines()[0]
    found = json.loads(run("taxonomy", "show", model, "--counts", texts / "train.csv", "--json").out)["examples"]
    counts = {tuple(row["path"]): row["examples"] for row in found}
    assert counts[()] == counts["news",] + counts["shop",] == 120
    assert counts["news",] == counts["news", "sport"] + counts["news", "weather"] > 0


def test_a_tree_is_drawn_as_a_picture_and_for_graphviz(run, tmp_path):
    (tmp_path / "tree.json").write_text(json.dumps({"<script>": ["x", "y"]}))
    told = run("taxonomy", "show", tmp_path / "tree.json", "--svg", tmp_path / "t.svg", "--dot", tmp_path / "t.dot")
    assert told.code == 0
    ET.parse(tmp_path / "t.svg")
    assert "<script" not in (tmp_path / "t.svg").read_text("utf-8")
    assert r'label="<script>\n2"' in (tmp_path / "t.dot").read_text("utf-8")


@pytest.mark.parametrize(("how", "drawn"), [(["--depth", 1], "ab"), (["--max-children", 1], "ax"), ([], "abxyz")])
def test_a_picture_shows_as_much_of_a_tree_as_is_asked_for(run, tmp_path, how, drawn):
    (tmp_path / "tree.json").write_text(json.dumps({"a": ["x", "y"], "b": ["z"]}))
    files = ["--svg", tmp_path / "t.svg", "--dot", tmp_path / "t.dot"]
    assert run("taxonomy", "show", tmp_path / "tree.json", *files, *how).code == 0
    texts = {text.text for text in ET.parse(tmp_path / "t.svg").getroot().iter("{http://www.w3.org/2000/svg}text")}
    assert set(drawn) == texts & set("abxyz")
    assert set(drawn) == set(re.findall(r'label="([abxyz])\b', (tmp_path / "t.dot").read_text("utf-8")))
