"""`arbormax predict` with all codes of ICD-10-CM as classes: texts per second and peak memory.

A `bag` model is trained for a few epochs on the descriptions of the codes. Then two processes predict the same texts,
with the five most probable classes: `search` calls the library, `score all` computes the log-probabilities (B, N) of
every node for each batch, as version 0.1 did. Rows are appended to benchmarks/results/predict.csv.

    python benchmarks/predict.py                       # trains, then measures; a few minutes
    python benchmarks/predict.py --model FOLDER        # measures a model that is already trained
    python benchmarks/predict.py --decoder threshold
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import trees
from arbormax import Taxonomy, decode
from arbormax.data import Examples
from arbormax.functional.best import top_classes
from arbormax.model import Model, TrainConfig, load_model, save_model
from arbormax.model.predict import NodeNames, predict
from common import append, circumstances

TOP_K, BATCH = 5, 256
WAYS = ("score all", "search")


def icd10cm() -> tuple[Examples, Taxonomy]:
    """The description of every code with its node; codes and tree as in `trees.icd10cm`."""
    import simple_icd_10_cm as icd

    tax = trees.icd10cm()
    leaves = tax.leaves.tolist()
    return Examples([icd.get_description(tax.names[leaf]) for leaf in leaves], tax.leaves), tax


def train(folder: Path, epochs: int) -> None:
    """Train a model and save it with the texts."""
    from arbormax.training import fit

    examples, tax = icd10cm()
    settings = {"batch_size": 256, "learning_rate": 0.01, "validation": 0, "sparse_head": True}
    config = TrainConfig.make(encoder="bag", epochs=epochs, **settings)
    run = fit(config, tax, examples)
    save_model(run.model, folder)
    print(f"trained {epochs} epochs in {run.seconds:.0f} s: {tax.num_leaves:,} classes, {tax.num_nodes:,} nodes")
    (folder / "texts.json").write_text(json.dumps(examples.inputs))


def score_all(model: Model, texts: list[str], decoder: str) -> Iterator[dict[str, Any]]:
    """Predictions as version 0.1 computed them: (B, N) log-probabilities for every batch."""
    tax, names = model.taxonomy, NodeNames(model.taxonomy)
    leaves_C = torch.tensor(tax.leaves)
    for logp_BN in model.node_log_probs(texts, BATCH):
        nodes = decode.DECODERS[decoder](logp_BN, tax).tolist()
        top_logp, top = top_classes(logp_BN[:, leaves_C], TOP_K)
        steps = [names.steps(node) + [0] * (tax.depth - len(names.steps(node))) for node in nodes]
        path_p = logp_BN.gather(1, torch.tensor(steps, dtype=torch.int64)).exp().tolist()
        for item, node in enumerate(nodes):
            path = names.path(node)
            best = zip(top[item].tolist(), top_logp[item].exp().tolist(), strict=True)
            yield {
                "label": names.label(node),
                "path": list(path),
                "probabilities": [round(p, 6) for p in path_p[item][: len(path)]],
                "top": [{"label": tax.classes[c], "probability": round(p, 6)} for c, p in best],
            }


def measure(way: str, folder: Path, count: int, decoder: str, threads: int) -> None:
    """Print texts per second, peak memory in MB and the predicted labels of this process."""
    torch.set_num_threads(threads)
    texts = json.loads((folder / "texts.json").read_text())
    texts = texts[:: max(1, len(texts) // count)][:count]
    model = load_model(folder)

    def run(part: list[str]) -> list[dict[str, Any]]:
        if way == "search":
            return [p.to_dict() for p in predict(model, part, decoder=decoder, top_k=TOP_K, batch_size=BATCH)]
        return list(score_all(model, part, decoder))

    run(texts[:BATCH])
    begin, cpu_begin = time.perf_counter(), time.process_time()
    rows = run(texts)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu_begin
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000  # Linux counts in kB
    found = {
        "texts_per_second": len(texts) / seconds,
        "cpu_ms_per_text": 1000 * cpu_seconds / len(texts),
        "peak_mb": peak,
    }
    print(json.dumps({**found, "labels": [row["label"] for row in rows]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--texts", type=int, default=2048)
    parser.add_argument("--decoder", default="leaf", choices=("leaf", "threshold"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--way", choices=(*WAYS, "train"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way == "train":
        train(arguments.model, arguments.epochs)
        return
    if arguments.way:
        measure(arguments.way, arguments.model, arguments.texts, arguments.decoder, arguments.threads)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.model or Path(temporary)
        if not (folder / "texts.json").exists():
            run_itself("train", folder, arguments)
        found = {way: json.loads(run_itself(way, folder, arguments).splitlines()[-1]) for way in WAYS}
    old, new = (found[way] for way in WAYS)
    same = sum(a == b for a, b in zip(old.pop("labels"), new.pop("labels"), strict=True)) / arguments.texts
    rows = []
    for way in WAYS:
        faster = found[way]["texts_per_second"] / old["texts_per_second"]
        print(
            f"{way:10} {found[way]['texts_per_second']:10,.0f} texts/s {faster:6.1f} x {found[way]['peak_mb']:8,.0f} MB"
        )
        rows.append(
            {
                "way": way,
                "decoder": arguments.decoder,
                "texts": arguments.texts,
                "batch": BATCH,
                "top_k": TOP_K,
                "threads": arguments.threads,
                "texts_per_second": round(found[way]["texts_per_second"], 1),
                "faster": round(faster, 2),
                "cpu_ms_per_text": round(found[way]["cpu_ms_per_text"], 2),
                "peak_mb": round(found[way]["peak_mb"]),
                "same_labels": same,
                **circumstances("torch"),
            }
        )
    append(Path(__file__).parent / "results" / "predict.csv", rows)


def run_itself(way: str, folder: Path, arguments: argparse.Namespace) -> str:
    """What this program prints in a process of its own."""
    options = ["--epochs", "--texts", "--decoder", "--threads"]
    words = [word for name in options for word in (name, str(getattr(arguments, name[2:])))]
    command = [sys.executable, __file__, "--way", way, "--model", str(folder), *words]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    if way == "train":
        print(printed, end="")
    return printed


if __name__ == "__main__":
    main()
