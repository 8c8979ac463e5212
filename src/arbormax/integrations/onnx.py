"""Export a model to ONNX or to the format of torch.export, as a folder that is usable without arbormax.

model.onnx, model.pt2   the graph; the weights of a large model are in model.onnx.data
taxonomy.json           the tree
vocabulary.txt …        the files that turn texts into inputs
export.json             inputs, outputs, classes, and how texts become inputs
README.md               a description with an example
"""

from __future__ import annotations

import copy
import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch
from torch.export import Dim, ExportedProgram

from arbormax._version import __version__
from arbormax.errors import ArbormaxError, OptionError, check_choice, import_extra
from arbormax.integrations._graph import OUTPUTS, Arrays, Format, Graph, build_graph
from arbormax.model import Model, load_model

TOLERANCE = 1e-5
INLINE_BYTES = 1 << 30  # larger weights have a file of their own, because protobuf is limited to 2 GiB
_KIND, _VERSION = "arbormax export", 1
_FILES: dict[Format, str] = {"onnx": "model.onnx", "torch-export": "model.pt2"}
_INFO, _TREE, _CARD = "export.json", "taxonomy.json", "README.md"


class ExportError(ArbormaxError, RuntimeError):
    """The model cannot be exported, or the exported graph does not agree with it."""


@dataclass(frozen=True)
class Exported:
    """An export folder; `difference` is the largest difference from torch, None without a check."""

    folder: Path
    format: Format
    inputs: dict[str, str]
    files: dict[str, int]  # name to size in bytes
    difference: float | None
    texts: int  # number of texts in the check


def export_model(
    model: Model | Path | str,
    folder: Path | str,
    format: Format = "onnx",
    *,
    check: bool = True,
    force: bool = False,
    progress: Callable[[str, int, int], None] | None = None,
) -> Exported:
    """Export a model, with the files that are needed to use it, to a new folder.

    The graph accepts any batch size and length of its `inputs`, and returns `leaf_log_probs` (B, C) and
    `node_log_probs` (B, N). With `check`, the exported graph runs on texts of several lengths and must agree with torch
    to 1e-5, relative for log-probabilities below -1; otherwise nothing is written. `force` replaces an existing export.
    """
    check_choice("format", format, get_args(Format))
    folder, report = Path(folder), progress or (lambda *_: None)
    _check_target(folder, force)
    for package in ("onnx", "onnxscript", *(["onnxruntime"] if check else [])) if format == "onnx" else ():
        import_extra(package, "ONNX export", package, "onnx")
    # tracing needs the CPU and float32, and makes requires_grad a part of the graph
    loaded = copy.deepcopy(model) if isinstance(model, Model) else load_model(model)
    if loaded.posterior is not None:
        raise ExportError(
            f"a model with the uncertainty {loaded.config.uncertainty!r} predicts with many networks, and a graph has "
            "one; train the model without uncertainty, or export the one with the trained weights alone, whose "
            "probabilities differ: load_model, then posterior = None"
        )
    graph = build_graph(loaded.cpu().float().eval().requires_grad_(False), format).eval()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".arbormax-", dir=folder.parent) as temporary:
        new = Path(temporary) / "export"
        new.mkdir()
        report("tracing", 0, 3)
        info = _write_description(graph, loaded, new, format)
        program = _trace(graph)
        report("writing", 1, 3)
        (_write_onnx if format == "onnx" else _write_torch)(program, graph, new, info)
        report("checking", 2, 3)
        difference, texts = _compare_with_torch(loaded, graph, new, format) if check else (None, 0)
        files = {str(p.relative_to(new).as_posix()): p.stat().st_size for p in new.rglob("*") if p.is_file()}
        if folder.exists():
            os.replace(folder, Path(temporary) / "old")
        os.replace(new, folder)
        report("written", 3, 3)
    return Exported(folder, format, dict(graph.inputs), dict(sorted(files.items())), difference, texts)


def graph_inputs(model: Model, texts: Sequence[str]) -> Arrays:
    """The inputs of the exported graph for these texts, by name; the same for both formats."""
    return build_graph(model, "onnx").arrays(texts)


def _check_target(folder: Path, force: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise OptionError(f"{folder} is a file, expected a folder")
    if not folder.exists() or not any(folder.iterdir()):
        return
    info = folder / _INFO
    if not info.is_file() or f'"format": "{_KIND}"' not in info.read_text("utf-8", "replace"):
        raise OptionError(f"{folder} contains other files; choose a new folder")
    if not force:
        raise OptionError(f"{folder} already contains an export", fix={"force": True})


def _write_description(graph: Graph, model: Model, folder: Path, format: Format) -> dict[str, Any]:
    """Write everything except the graph, and return the content of export.json."""
    tax = model.taxonomy
    info = {
        "format": _KIND,
        "format_version": _VERSION,
        "graph": _FILES[format],
        "arbormax": __version__,
        "torch": torch.__version__,
        "encoder": model.config.encoder,
        "head": model.config.head,
        "fingerprint": tax.fingerprint,
        "inputs": graph.inputs,
        "outputs": OUTPUTS,
        "encoding": graph.encoding(),
        "classes": tax.classes,
    }
    graph.save(folder)
    tax.save(folder / _TREE)
    (folder / _INFO).write_text(json.dumps(info, indent=2, ensure_ascii=False) + "\n", "utf-8")
    (folder / _CARD).write_text(export_card(graph, model, format), "utf-8")
    return info


def _trace(graph: Graph) -> ExportedProgram:
    # torch would treat a size of one as constant
    arrays = {name: np.pad(array, ((0, 0), (0, 2))) for name, array in graph.arrays(_random_texts(graph)).items()}
    inputs = tuple(torch.from_numpy(array[:, : graph.longest]) for array in arrays.values())
    with _exporting(), torch.no_grad():
        program = torch.export.export(graph, inputs, dynamic_shapes=_dynamic_shapes(graph), strict=False)
    for module in program.graph_module.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)  # contains local paths
    return program


def _dynamic_shapes(graph: Graph) -> dict[str, Any]:
    batch, length = Dim("batch"), Dim("length", max=graph.longest)
    return {"inputs": tuple({0: batch, 1: length} for _ in graph.inputs)}


def _write_torch(program: ExportedProgram, graph: Graph, folder: Path, info: dict[str, Any]) -> None:  # noqa: ARG001
    texts = {_INFO: json.dumps(info, ensure_ascii=False), _TREE: (folder / _TREE).read_text("utf-8")}
    with _exporting():
        torch.export.save(program, folder / _FILES["torch-export"], extra_files=texts)


def _write_onnx(program: ExportedProgram, graph: Graph, folder: Path, info: dict[str, Any]) -> None:
    with _exporting():
        onnx = torch.onnx.export(
            program,
            (),
            dynamo=True,
            verbose=False,
            input_names=list(graph.inputs),
            output_names=list(OUTPUTS),
            dynamic_shapes=_dynamic_shapes(graph),  # for their names
        )
    assert onnx is not None
    for node in onnx.model.graph.all_nodes():
        node.metadata_props.clear()  # contain local paths
    props = onnx.model.metadata_props
    props.clear()
    for name in ("encoder", "head", "fingerprint"):
        props[f"arbormax.{name}"] = info[name]
    for name in ("classes", "encoding"):
        props[f"arbormax.{name}"] = json.dumps(info[name], ensure_ascii=False)
    props |= {"arbormax.version": info["arbormax"], "arbormax.taxonomy": (folder / _TREE).read_text("utf-8")}
    weights = sum(tensor.nbytes for tensor in (*graph.parameters(), *graph.buffers()))
    onnx.save(folder / _FILES["onnx"], external_data=weights > INLINE_BYTES)


def _compare_with_torch(model: Model, graph: Graph, folder: Path, format: Format) -> tuple[float, int]:
    """The largest difference between the exported graph and torch, and the number of texts."""
    texts = _random_texts(graph)
    run = _load_graph(folder / _FILES[format], format)
    largest = 0.0
    for batch in (texts, *([text] for text in texts)):
        features = next(model.features(batch))
        expected = [model.head(features).numpy(), model.head.node_log_probs(features).numpy()]
        for name, actual, reference in zip(OUTPUTS, run(graph.arrays(batch)), expected, strict=True):
            assert actual.shape == reference.shape
            difference = np.abs(actual - reference)
            if not (difference <= TOLERANCE * np.maximum(1, np.abs(reference))).all():  # true for NaN
                raise ExportError(
                    f"the exported graph does not agree with the model: {name} differs by {difference.max():.1e}, "
                    f"more than {TOLERANCE:.0e}; nothing was written"
                )
            largest = max(largest, float(difference.max()))
    return largest, len(texts)


def _random_texts(graph: Graph) -> list[str]:
    terms, draw = graph.terms(), np.random.default_rng(0)
    return [" ".join(terms[i] for i in draw.integers(len(terms), size=size)) for size in (0, 1, 2, 7, 20, 60)]


def _load_graph(path: Path, format: Format) -> Callable[[Arrays], Sequence[np.ndarray]]:
    """The exported graph as a function of its inputs."""
    if format == "onnx":
        session = import_module("onnxruntime").InferenceSession(path, providers=["CPUExecutionProvider"])
        return lambda arrays: session.run(list(OUTPUTS), arrays)
    module = torch.export.load(path).module()
    return lambda arrays: [tensor.numpy() for tensor in module(*map(torch.from_numpy, arrays.values()))]


@contextmanager
def _exporting() -> Iterator[None]:
    """Silence the warnings of the exporters, which are addressed to their own developers, and name their errors."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ExportError(f"torch cannot export this model: {reason}") from error
    finally:
        logging.disable(disabled)


_CARD_TEXT = """\
# {encoder} with a {head} softmax, for {runtime}

Exported by arbormax {version}. `export.json` describes the inputs and outputs. To classify one text:

```python
import json
import re
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import {runtime}

about = json.loads(Path("export.json").read_text("utf-8"))
how, classes = about["encoding"], about["classes"]
text = "a text"
{inputs}
{run}
print(classes[leaf_log_probs[0].argmax()])
```
"""
_RUN: dict[Format, str] = {
    "onnx": """\
session = onnxruntime.InferenceSession("model.onnx")
leaf_log_probs, node_log_probs = session.run(None, inputs)""",
    "torch-export": """\
module = torch.export.load("model.pt2").module()
leaf_log_probs, node_log_probs = module(*map(torch.from_numpy, inputs.values()))""",
}


def export_card(graph: Graph, model: Model, format: Format) -> str:
    """A description of the export in Markdown, with an example."""
    return _CARD_TEXT.format(
        encoder=model.config.encoder,
        head=model.config.head,
        runtime="onnxruntime" if format == "onnx" else "torch",
        version=__version__,
        inputs=graph.example,
        run=_RUN[format],
    )
