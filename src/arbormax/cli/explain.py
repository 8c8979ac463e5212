"""`arbormax explain`: the reasons for the prediction of one text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbormax.cli import output
from arbormax.cli.groups import expand_options
from arbormax.cli.inputs import read_text
from arbormax.cli.options import DecoderOptions, Json, LoadOptions
from arbormax.data.tokens import show_fields
from arbormax.errors import InputError

if TYPE_CHECKING:
    from rich.text import Text

    from arbormax.taxonomy.render import Branch

_WORDS = 4  # words to show that support a step, and as many that oppose it
_TITLE, _WORD = 200, 30  # maximum number of characters of the title and of a word


@expand_options
def explain(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a model.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text to explain.")],
    decoder: DecoderOptions,
    loading: LoadOptions,
    siblings: Annotated[int, typer.Option(min=1, help="Number of children to show at each step.")] = 5,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write an SVG picture.")] = None,
    json: Json = False,
) -> None:
    """Explain the prediction for one text: the probability of each step, the alternatives, and the words that mattered.

    Example: `arbormax explain reviews-model "The heel broke on the first day" --svg why.svg`
    """
    if not text.strip():
        raise InputError("the text is empty", argument="text")
    from arbormax.model.explain import explain as explain_text

    loaded = loading.load(model)
    text = read_text(loaded, text)
    found = explain_text(loaded, text, decoding=decoder.decoding_of(loaded), siblings=siblings)
    text = show_fields(text)
    if svg is not None:
        from arbormax.cli.trees import write_drawing
        from arbormax.report import prediction_svg

        write_drawing(svg, prediction_svg(found, _short(text, _TITLE)))
    if json:
        output.print_json({"text": text, **found})
        return
    from arbormax.cli.trees import tree_text

    output.print_result(tree_text(_branches(text, found)))
    if not found["path"]:
        output.print_result("No class is probable enough: the prediction is the root of the taxonomy.")
    if found["reason"]:
        from arbormax.taxonomy.render import printable

        output.print_result(printable(found["reason"]))
    if any(step["parts"] for step in found["steps"]):
        output.print_result(
            f"+ supports a step, − opposes it: contributions to log P(step | parent), by {found['words_method']}"
        )


def _branches(text: str, found: dict[str, Any]) -> Branch:
    """The relevant part of the tree, with the words below each step."""
    from rich.text import Text

    from arbormax.report.prediction import percent
    from arbormax.taxonomy.render import Branch, printable

    steps = {step["node"]: step for step in found["steps"]}
    branches: dict[int, Branch] = {}
    for node in found["nodes"]:
        if node["parent"] is None:
            branches[node["node"]] = Branch(_short(text, _TITLE), style="bold")
            continue
        name, style = printable(node["name"]), "bold" if node["on_path"] else ""
        line = f"▸ {name}" if node["on_path"] else f"  {name}"
        if node["node"] == found["node"]:
            line, style = f"{line} ◂ prediction", "bold green"
        branch = Branch(line, style=style, share=node["probability"])
        if (step := steps.get(node["node"])) and (words := _words(step["parts"])):
            branch.more.append(words)
        if step and (uncertainty := step.get("uncertainty")):
            line = "± {std:.3f} between draws of the network; {epistemic:.3f} of {total:.3f} nats are epistemic"
            branch.more.append(Text(line.format(**uncertainty), style="dim"))
        branches[node["node"]] = branch
        branches[node["parent"]].children.append(branch)
    for node in found["nodes"]:
        if node["hidden"] and (branch := branches[node["node"]]).children:
            rest = f"  … {node['hidden']:,} more ({percent(node['hidden_probability'])})"
            branch.children.append(Branch("", rest))
    return branches[0]


def _words(parts: list[dict[str, Any]]) -> Text | None:
    """The words and n-grams that support a step and those that oppose it, the strongest first; None without any."""
    from rich.text import Text

    largest = max((abs(part["value"]) for part in parts), default=0.0)
    shown: list[Text] = []
    for sign, style in ((1, "green"), (-1, "red")):
        own = [part for part in parts if sign * part["value"] > 0][:_WORDS]
        shown += [Text(f"{_short(part['text'], _WORD)} {_signed(part['value'], largest)}", style=style) for part in own]
    return Text("  ").append_text(Text("   ").join(shown)) if shown else None


def _short(text: str, most: int) -> str:
    from arbormax.taxonomy.render import printable

    return printable(text if len(text) <= most else f"{text[:most]}…")


def _signed(value: float, largest: float) -> str:
    """A number with its sign and enough decimals for two digits of the largest one.

    >>> _signed(0.8634, 1.1), _signed(-0.00012, 0.0011)
    ('+0.86', '−0.0001')
    """
    decimals = min(max(2, 1 - math.floor(math.log10(largest))), 9)
    return f"{value:+.{decimals}f}".replace("-", "−")
