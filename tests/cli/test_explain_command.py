"""`explain`, and the drawings of `taxonomy show`."""

import json
import re
import xml.etree.ElementTree as ET

import pytest

TEXT = "goal match team"


def test_path_probabilities_and_words_are_printed(run, model):
    result = run("explain", model, TEXT)
    assert result.code == 0, result.err
    assert result.out.splitlines()[0] == TEXT
    assert "▸ news" in result.out
    assert "▸ sport ◂ prediction" in result.out
    assert " %" in result.out
    assert "goal +" in result.out
    assert "gradient × input" in result.out


def test_an_explanation_can_be_printed_as_json(run, model):
    found = json.loads(run("explain", model, TEXT, "--json", "--siblings", 1).out)
    assert (found["text"], found["path"]) == (TEXT, ["news", "sport"])
    assert [token["text"] for token in found["tokens"]] == TEXT.split()
    assert len(found["nodes"]) == 3


def test_a_threshold_stops_early(run, model):
    found = json.loads(run("explain", model, "unheard-of", "--tau", 0.99, "--json").out)
    assert found["stopped_at"] < len(found["steps"])
    assert "the prediction is the root" in run("explain", model, "unheard-of", "--tau", 0.99).out


def test_an_explanation_can_be_drawn(run, model, tmp_path):
    text = "<script>alert('goal')</script>"
    result = run("explain", model, text, "--svg", tmp_path / "why.svg")
    assert result.code == 0
    drawing = (tmp_path / "why.svg").read_text("utf-8")
    assert ET.fromstring(drawing).findtext("{http://www.w3.org/2000/svg}title") == text
    assert "<script" not in drawing


def test_control_characters_of_a_text_are_escaped(run, model):
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
def test_invalid_input_is_reported_in_one_line(refused, model, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    refused(*(str(model) if word == "MODEL" else word for word in words))
    assert not list(tmp_path.iterdir())


def test_bars_show_the_share_of_the_classes(run, tmp_path):
    (tmp_path / "tree.txt").write_text("news/sport\nnews/weather\nnews/art\nshop/hats\n")
    result = run("taxonomy", "show", tmp_path / "tree.txt").out.splitlines()
    assert result[1].split() == ["├──", "news", "(3", "classes)", "█████████", "75.0", "%"]
    assert result[5].split() == ["└──", "shop", "(1", "class)", "███", "25.0", "%"]
    assert result[1].index("█") == result[5].index("█")


def test_examples_are_counted_at_every_node(run, model, texts):
    result = run("taxonomy", "show", model, "--counts", texts / "train.csv")
    assert result.code == 0, result.err
    assert "120 examples" in result.out.splitlines()[0]
    found = json.loads(run("taxonomy", "show", model, "--counts", texts / "train.csv", "--json").out)["examples"]
    counts = {tuple(row["path"]): row["examples"] for row in found}
    assert counts[()] == counts["news",] + counts["shop",] == 120
    assert counts["news",] == counts["news", "sport"] + counts["news", "weather"] > 0


def test_a_tree_is_drawn_as_a_picture_and_for_graphviz(run, tmp_path):
    (tmp_path / "tree.json").write_text(json.dumps({"<script>": ["x", "y"]}))
    result = run("taxonomy", "show", tmp_path / "tree.json", "--svg", tmp_path / "t.svg", "--dot", tmp_path / "t.dot")
    assert result.code == 0
    ET.parse(tmp_path / "t.svg")
    assert "<script" not in (tmp_path / "t.svg").read_text("utf-8")
    assert r'label="<script>\n2"' in (tmp_path / "t.dot").read_text("utf-8")


@pytest.mark.parametrize(("how", "drawn"), [(["--depth", 1], "ab"), (["--max-children", 1], "ax"), ([], "abxyz")])
def test_a_picture_shows_the_requested_part_of_the_tree(run, tmp_path, how, drawn):
    (tmp_path / "tree.json").write_text(json.dumps({"a": ["x", "y"], "b": ["z"]}))
    files = ["--svg", tmp_path / "t.svg", "--dot", tmp_path / "t.dot"]
    assert run("taxonomy", "show", tmp_path / "tree.json", *files, *how).code == 0
    texts = {text.text for text in ET.parse(tmp_path / "t.svg").getroot().iter("{http://www.w3.org/2000/svg}text")}
    assert set(drawn) == texts & set("abxyz")
    assert set(drawn) == set(re.findall(r'label="([abxyz])\b', (tmp_path / "t.dot").read_text("utf-8")))
