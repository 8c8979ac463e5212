"""Latency of a model in torch and of its exports: from token ids to the log-probabilities of all leaves and nodes.

The tree is that of ICD-10-CM, the texts are its inclusion terms of eight words and more; weights are untrained, which
latency does not depend on. One thread. The contenders take turns, so that what else runs on the machine hits all alike;
`to_torch` is the median over the turns of a contender's time over that of torch in the same turn. The transformer is
all-MiniLM-L6-v2 where it lies in the folder `models` of the data (ARBORMAX_DATA), else a BERT of its size that is made
here. Rows are appended to benchmarks/results/export.csv.

    python benchmarks/export.py
    python benchmarks/export.py --encoders bag --turns 5
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from arbormax.data import Dataset, load
from arbormax.data.datasets.base import data_root
from arbormax.data.vocabulary import Vocabulary
from arbormax.integrations.onnx import export_model, graph_inputs
from arbormax.model import Model, TrainConfig
from common import append, circumstances

RESULTS = Path(__file__).parent / "results" / "export.csv"
ENCODERS, BATCHES, WORDS, LEAST_SECONDS = ("bag", "bilstm", "transformer"), (1, 64), 8, 0.05
Run = Callable[[], object]


def transformer(data: Dataset, room: Path) -> tuple[str, Path]:
    """MiniLM's folder, or that of a BERT of its size with the words of these texts."""
    there = data_root() / "models" / "all-MiniLM-L6-v2"
    if (there / "config.json").exists():
        return "all-MiniLM-L6-v2", there
    import tokenizers
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *Vocabulary.learn(data.train.inputs, max_words=30_000).words[2:]]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names).save_pretrained(room)
    transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **sizes)).save_pretrained(room)
    return "BERT of MiniLM's size, untrained", room


def contenders(model: Model, texts: list[str], room: Path) -> dict[str, Run]:
    """Each gives leaf and node log-probabilities of these texts, whose ids are ready."""
    own = model.encoder.collate(model.encoder.encode(texts))
    arrays = graph_inputs(model, texts)
    tensors = [torch.from_numpy(array) for array in arrays.values()]
    leaves = torch.from_numpy(np.array(model.taxonomy.leaves))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(room / "onnx" / "model.onnx", options, providers=["CPUExecutionProvider"])
    module = torch.export.load(room / "torch-export" / "model.pt2").module()

    def eager() -> object:
        node_BN = model.head.node_log_probs(model.encoder(*own))
        return node_BN[:, leaves], node_BN

    return {
        "torch": eager,
        "torch.export": lambda: module(*tensors),
        "onnxruntime": lambda: session.run(None, arrays),
    }


def milliseconds(run: Run) -> float:
    """The mean of one run, over as many as take a while."""
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < LEAST_SECONDS:
        run()
        count += 1
    return 1e3 * (time.perf_counter() - begin) / count


def measure(runs: dict[str, Run], turns: int) -> dict[str, tuple[float, float, float, float]]:
    """Median, 20th and 80th percentile of each contender's milliseconds, and the median ratio to torch."""
    for run in runs.values():
        run()
    times = {name: [] for name in runs}
    for _ in range(turns):
        for name, run in runs.items():
            times[name].append(milliseconds(run))
    found = {}
    for name, own in times.items():
        p20, p80 = np.quantile(own, [0.2, 0.8])
        ratio = statistics.median(a / b for a, b in zip(own, times["torch"], strict=True))
        found[name] = (statistics.median(own), float(p20), float(p80), ratio)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--encoders", nargs="+", choices=ENCODERS, default=ENCODERS)
    parser.add_argument("--turns", type=int, default=25)
    parser.add_argument("--results", type=Path, default=RESULTS, help="file to append the rows to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    data = load("icd10cm")
    long = [text for text in data.test.inputs if len(text.split()) >= WORDS]  # many are a word or two
    where, rows = circumstances("torch", "onnxruntime"), []
    for encoder in arguments.encoders:
        with tempfile.TemporaryDirectory() as folder, torch.inference_mode(False), torch.no_grad():
            room, options, named = Path(folder), {}, encoder
            if encoder == "transformer":
                named, source = transformer(data, room / "transformer")
                options = {"encoder_options": {"model": str(source)}}
            config = TrainConfig.make(encoder=encoder, head="hierarchical", **options)
            model = Model.new(data.train.inputs, data.taxonomy, config).eval()
            for kind in ("onnx", "torch-export"):
                made = export_model(model, room / kind, kind)
                print(f"{named}, {kind}: differs from torch by {made.difference:.1e}")
            for batch in BATCHES:
                texts = long[:batch]
                length = next(iter(graph_inputs(model, texts).values())).shape[1]
                for name, (median, p20, p80, ratio) in measure(contenders(model, texts, room), arguments.turns).items():
                    print(f"{named:34} batch {batch:3} {name:13} {median:9.3f} ms, {ratio:6.3f} of torch", flush=True)
                    rows.append(
                        {
                            "encoder": named,
                            "classes": data.taxonomy.num_leaves,
                            "nodes": data.taxonomy.num_nodes,
                            "batch": batch,
                            "length": length,
                            "threads": 1,
                            "contender": name,
                            "median_ms": round(median, 4),
                            "p20_ms": round(p20, 4),
                            "p80_ms": round(p80, 4),
                            "to_torch": round(ratio, 4),
                            "turns": arguments.turns,
                            **where,
                        }
                    )
    append(arguments.results, rows)


if __name__ == "__main__":
    main()
