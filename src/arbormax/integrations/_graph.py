"""Models as graphs for export: rectangular inputs and plain operators, no packed sequences.

B batch, T tokens, E word vector size, H hidden size, S directions, D features, N nodes, C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn, while_loop

from arbormax.data.characters import MARK, CharacterNGrams
from arbormax.data.ragged import Ragged
from arbormax.data.tokens import word_pattern
from arbormax.data.vocabulary import PADDING, save_words
from arbormax.encoders import BagEncoder, LSTMEncoder, TfidfEncoder, TransformerEncoder
from arbormax.errors import OptionError
from arbormax.model import Model

Format = Literal["onnx", "torch-export"]
Arrays = dict[str, np.ndarray]
OUTPUTS = {
    "leaf_log_probs": "(batch, classes) float32: log-probabilities of the classes, in the order of `classes`",
    "node_log_probs": "(batch, nodes) float32: log-probabilities of the nodes of taxonomy.json, breadth first",
}

_SPLIT_TEXT = """\
vocabulary = Path("vocabulary.txt").read_text("utf-8").split("\\n")
if how["normalize"]:
    text = unicodedata.normalize(how["normalize"], text).replace("’", "'")
words = re.findall(how["pattern"], text.lower())"""
_FIND_TERMS = """
terms = [" ".join(words[i : i + n]) for n in range(1, how["ngrams"] + 1) for i in range(len(words) - n + 1)]
for word in (f" {word} " for word in words):
    lengths = range(min(how["min_char_ngrams"], len(word)), min(how["char_ngrams"], len(word)) + 1)
    terms += ["\\t" + word[i : i + n] for n in lengths for i in range(len(word) - n + 1)]"""


class Graph(nn.Module, ABC):
    """A model as a function of `arrays(texts)` that returns leaf (B, C) and node (B, N) log-probabilities."""

    inputs: ClassVar[dict[str, str]]  # a description of each input
    example: ClassVar[str]  # Python code that turns `text` into `inputs`, given `how`, the encoding
    longest: int | None = None  # the maximum number of tokens of a text; None means no limit
    encoder: Any
    leaves: Tensor

    def __init__(self, model: Model, format: Format) -> None:
        super().__init__()
        self.__dict__["encoder"] = model.encoder  # not a submodule, because its weights are not part of the graph
        self.format = format
        self.head = model.head
        self.register_buffer("leaves", torch.from_numpy(np.array(model.taxonomy.leaves)))

    @abstractmethod
    def features(self, *inputs: Tensor) -> Tensor:
        """Return (B, D) features."""

    @abstractmethod
    def arrays(self, texts: Sequence[str]) -> Arrays:
        """Return the inputs for these texts."""

    @abstractmethod
    def encoding(self) -> dict[str, Any]:
        """Describe in JSON types how texts become inputs."""

    @abstractmethod
    def terms(self) -> Sequence[str]:
        """Return the vocabulary, in the order of the ids."""

    def save(self, folder: Path) -> None:
        """Write the files that turn texts into inputs."""
        save_words(folder / "vocabulary.txt", self.terms())

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        logp_BN = self.head.node_log_probs(self.features(*inputs))
        return logp_BN.index_select(1, self.leaves), logp_BN


class WordGraph(Graph):
    """A model whose inputs are the ids of words in a vocabulary."""

    def arrays(self, texts: Sequence[str]) -> Arrays:
        return {"input_ids": self.encoder.encode(texts).pad(PADDING)}

    def terms(self) -> Sequence[str]:
        return self.encoder.vocabulary.words  # type: ignore[no-any-return]


class BagGraph(WordGraph):
    inputs: ClassVar[dict[str, str]] = {
        "input_ids": "(batch, length) int64: ids of the words and n-grams of each text, padded with 0"
    }
    example = (
        _SPLIT_TEXT
        + _FIND_TERMS
        + """
number = {term: i for i, term in enumerate(vocabulary) if i > 1}
ids = [number.get(term, 1) for term in terms if term in number or not re.search(r"\\s", term)] or [0]
inputs = {"input_ids": np.array([ids])}"""
    )
    table: Tensor

    def __init__(self, model: Model, format: Format) -> None:
        super().__init__(model, format)
        self.register_buffer("table", self.encoder.weight.detach())

    def features(self, *inputs: Tensor) -> Tensor:
        (ids_BT,) = inputs
        is_character_BT = ids_BT >= self.encoder.num_words
        share_BT = _shares((ids_BT != PADDING) & ~is_character_BT, self.table.dtype)
        if len(self.encoder.characters):
            weight = self.encoder.options.char_weight
            weight_B1 = weight * is_character_BT.any(1, keepdim=True).to(self.table.dtype)
            share_BT = (1 - weight_B1) * share_BT + weight_B1 * _shares(is_character_BT, self.table.dtype)
        return (share_BT.unsqueeze(1) @ F.embedding(ids_BT, self.table)).squeeze(1)

    def terms(self) -> Sequence[str]:
        characters = [MARK + gram for gram in self.encoder.characters.grams]
        return [*self.encoder.grams.names(super().terms()), *characters]

    def encoding(self) -> dict[str, Any]:
        tokens = _describe_tokens(self.encoder.vocabulary.tokens)
        return {**tokens, "ngrams": len(self.encoder.grams.keys) + 1, **_describe_characters(self.encoder.characters)}


class LSTMGraph(WordGraph):
    inputs: ClassVar[dict[str, str]] = {
        "input_ids": "(batch, length) int64: ids of the words of each text, padded with 0"
    }
    example = (
        _SPLIT_TEXT
        + """
number = {word: i for i, word in enumerate(vocabulary) if i > 1}
ids = [number.get(word, 1) for word in words][: how["max_length"]] or [0]
inputs = {"input_ids": np.array([ids])}"""
    )

    def __init__(self, model: Model, format: Format) -> None:
        super().__init__(model, format)
        encoder: LSTMEncoder = self.encoder
        self.table = encoder.words
        networks = (encoder.forwards, encoder.backwards)
        self.networks = nn.ModuleList(network for network in networks if network is not None)

    def features(self, *inputs: Tensor) -> Tensor:
        (ids_BT,) = inputs
        # an empty text is one padding token
        last_B1 = (ids_BT != PADDING).sum(1, keepdim=True).clamp(min=1) - 1
        places_T = torch.arange(ids_BT.shape[1], device=ids_BT.device)
        reversed_BT = ids_BT.gather(1, torch.where(places_T <= last_B1, last_B1 - places_T, places_T))
        last_state = _onnx_last_state if self.format == "onnx" else _last_state
        orders = zip(self.networks, (ids_BT, reversed_BT), strict=False)
        return torch.cat([last_state(network, self.table(ids), last_B1) for network, ids in orders], -1)

    def encoding(self) -> dict[str, Any]:
        tokens = _describe_tokens(self.encoder.vocabulary.tokens)
        return {**tokens, "max_length": self.encoder.options.max_length}


class TfidfGraph(Graph):
    inputs: ClassVar[dict[str, str]] = {
        "input_ids": "(batch, length) int64: ids of the distinct terms of each text, padded with 0",
        "counts": "(batch, length) float32: how often each term occurs in the text, 0 for padding",
    }
    example = (
        _SPLIT_TEXT
        + _FIND_TERMS
        + """
number = {term: i for i, term in enumerate(vocabulary)}
found = Counter(number[term] for term in terms if term in number) or {0: 0}
inputs = {"input_ids": np.array([list(found)]), "counts": np.array([list(found.values())], "float32")}"""
    )
    idf: Tensor

    def __init__(self, model: Model, format: Format) -> None:
        super().__init__(model, format)
        counts_D = self.encoder.text_counts.double()
        idf_D = torch.log((1 + self.encoder.num_texts.double()) / (1 + counts_D)) + 1
        self.register_buffer("idf", idf_D.to(model.head.dtype))

    def features(self, *inputs: Tensor) -> Tensor:
        ids_BT, counts_BT = inputs
        idf_BT = F.embedding(ids_BT, self.idf.unsqueeze(1)).squeeze(2)
        weights_BT = torch.where(counts_BT > 0, 1 + counts_BT.clamp(min=1).log(), 0) * idf_BT
        if len(self.encoder.characters):
            is_word_BT = ids_BT < self.encoder.num_words
            share = self.encoder.options.char_weight
            words_BT = (1 - share) ** 0.5 * _normalise(weights_BT * is_word_BT)
            weights_BT = words_BT + share**0.5 * _normalise(weights_BT * ~is_word_BT)
        weights_BT = _normalise(weights_BT)
        features_BD = weights_BT.new_zeros(ids_BT.shape[0], self.idf.shape[0])
        return features_BD.scatter_add(1, ids_BT, weights_BT)

    def arrays(self, texts: Sequence[str]) -> Arrays:
        from scipy.sparse import hstack

        words, characters = self.encoder.count(texts)
        found = hstack([words, characters], format="csr")
        ids, counts = (Ragged(part.astype(np.int64), found.indptr) for part in (found.indices, found.data))
        return {"input_ids": ids.pad(0), "counts": counts.pad(0).astype(np.float32)}

    def encoding(self) -> dict[str, Any]:
        options, characters = self.encoder.options, _describe_characters(self.encoder.characters)
        return {**_describe_tokens(options.tokens), "ngrams": options.ngrams, **characters}

    def terms(self) -> Sequence[str]:
        return self.encoder.terms  # type: ignore[no-any-return]


class TransformerGraph(Graph):
    inputs: ClassVar[dict[str, str]] = {
        "input_ids": "(batch, length) int64: token ids of the tokenizer, padded",
        "attention_mask": "(batch, length) int64: 1 for tokens, 0 for padding",
    }
    example = """\
from tokenizers import Tokenizer

tokenizer = Tokenizer.from_file("transformer/tokenizer.json")
tokenizer.enable_truncation(how["max_length"])
ids = tokenizer.encode(text).ids or [how["padding"]]
inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), "int64")}"""

    def __init__(self, model: Model, format: Format) -> None:
        super().__init__(model, format)
        self.network = model.encoder
        self.longest = int(self.encoder.longest)

    def features(self, *inputs: Tensor) -> Tensor:
        return self.network(*inputs)  # type: ignore[no-any-return]

    def arrays(self, texts: Sequence[str]) -> Arrays:
        made = self.encoder.collate(self.encoder.encode(texts))
        return {name: tensor.numpy() for name, tensor in zip(self.inputs, made, strict=True)}

    def save(self, folder: Path) -> None:
        self.encoder.save(folder)

    def encoding(self) -> dict[str, Any]:
        return {"tokens": "transformer", "max_length": self.longest, "padding": self.encoder.pad}

    def terms(self) -> Sequence[str]:
        return sorted(self.encoder.tokenizer.get_vocab())


_GRAPHS: dict[type, type[Graph]] = {
    BagEncoder: BagGraph,
    LSTMEncoder: LSTMGraph,
    TfidfEncoder: TfidfGraph,
    TransformerEncoder: TransformerGraph,
}


def build_graph(model: Model, format: Format) -> Graph:
    """The graph of a model with a built-in encoder."""
    for encoder, graph in _GRAPHS.items():
        if isinstance(model.encoder, encoder):
            return graph(model, format)
    raise OptionError(
        f"the encoder {model.encoder.name!r} has no graph for export, only built-in encoders have; "
        "call torch.onnx.export on the model yourself"
    )


def _shares(is_member_BT: Tensor, dtype: torch.dtype) -> Tensor:
    """The share of each member in the mean of its row."""
    member_BT = is_member_BT.to(dtype)
    return member_BT / member_BT.sum(1, keepdim=True).clamp(min=1)


def _normalise(weights_BT: Tensor) -> Tensor:
    """Each row divided by its length, a row of zeros unchanged."""
    length_B1 = weights_BT.square().sum(1, keepdim=True).sqrt()
    return weights_BT / torch.where(length_B1 > 0, length_B1, 1)


def _last_state(network: nn.Module, x_BTE: Tensor, last_B1: Tensor) -> Tensor:
    """The (B, H) state of an LSTM after the last word of each text, computed step by step."""
    lstm: Any = network
    gates_TBH = F.linear(x_BTE, lstm.weight_ih_l0, lstm.bias_ih_l0 + lstm.bias_hh_l0).transpose(0, 1)
    weight = lstm.weight_hh_l0.t().clone()

    def has_next(step: Tensor, hidden: Tensor, cell: Tensor) -> Tensor:  # noqa: ARG001
        return step < gates_TBH.shape[0]

    def advance(step: Tensor, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        gates = gates_TBH.index_select(0, step.view(1)).squeeze(0) + hidden @ weight
        admit, forget, new, release = gates.chunk(4, -1)
        cell = forget.sigmoid() * cell + admit.sigmoid() * new.tanh()
        return step + 1, torch.where(step <= last_B1, release.sigmoid() * cell.tanh(), hidden), cell

    start = x_BTE.new_zeros(x_BTE.shape[0], weight.shape[0])
    step = torch.zeros((), dtype=torch.int64, device=x_BTE.device)
    states: tuple[Tensor, Tensor, Tensor]
    states = while_loop(has_next, advance, (step, start, start.clone()))  # type: ignore[no-untyped-call]
    return states[1]


def _onnx_last_state(network: nn.Module, x_BTE: Tensor, last_B1: Tensor) -> Tensor:
    """The (B, H) state of an LSTM after the last word of each text, by the operator of ONNX."""
    lstm: Any = network
    w, r, *biases = (
        _onnx_gates(getattr(lstm, f"{name}_l0")) for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    parameters = (parameter.unsqueeze(0) for parameter in (w, r, torch.cat(biases, -1)))  # of one direction
    lengths_B = (last_B1 + 1).squeeze(1).to(torch.int32)  # the operator reads each row up to its own length
    inputs = (x_BTE.transpose(0, 1), *parameters, lengths_B)
    state = (1, x_BTE.shape[0], r.shape[1])
    shapes = [(x_BTE.shape[1], *state), state, state]  # of all states, the last one and the last cell
    found = torch.onnx.ops.symbolic_multi_out(
        "LSTM", inputs, {"hidden_size": r.shape[1]}, dtypes=[x_BTE.dtype] * 3, shapes=shapes
    )
    return found[1].squeeze(0)


def _onnx_gates(weight: Tensor) -> Tensor:
    """Reorder the gates: torch has input, forget, cell, output; ONNX has input, output, forget, cell."""
    admit, forget, new, release = weight.chunk(4)
    return torch.cat([admit, release, forget, new])


def _describe_tokens(name: str) -> dict[str, Any]:
    if name == "whitespace":
        return {"tokens": name, "normalize": None, "pattern": r"\S+"}
    return {"tokens": name, "normalize": "NFKC", "pattern": word_pattern().pattern}


def _describe_characters(characters: CharacterNGrams) -> dict[str, int]:
    longest = characters.longest if len(characters) else 0
    return {"char_ngrams": longest, "min_char_ngrams": characters.shortest}
