"""A pretrained transformer of Hugging Face, from a folder, an installed package or by name.

B batch, T tokens, D hidden size.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from arbormax.data.batching import Inputs
from arbormax.data.packages import package_folder
from arbormax.data.ragged import Ragged
from arbormax.data.tokens import Span, show_fields, spans
from arbormax.encoders.base import Encoder, EncoderOptions
from arbormax.errors import InputError, OptionError, import_extra

_FOLDER = "transformer"
_CHUNK = 10_000  # texts that are tokenized at once, to limit memory


class TransformerOptions(EncoderOptions):
    model: str = Field(
        description="folder of a pretrained model, installed package with one, or name on the Hugging Face hub"
    )
    pooling: Literal["mean", "cls"] = Field("mean", description="mean of all tokens, or the first token")
    max_length: int = Field(256, ge=4, description="maximum number of tokens of a text")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout rate of the features")
    freeze: bool = Field(False, description="train only the head")
    gradient_checkpointing: bool = Field(False, description="save memory by computing activations twice")


class TransformerEncoder(Encoder):
    """The pooled last layer of a pretrained transformer, which is fine-tuned unless `freeze` is set."""

    name: ClassVar[str] = "transformer"
    default_head: ClassVar[str] = "shared"
    Options: ClassVar[type[EncoderOptions]] = TransformerOptions
    training_defaults: ClassVar[Mapping[str, object]] = {
        "learning_rate": 1e-4,
        "head_learning_rate": 2e-3,
        "batch_size": 32,
        "epochs": 4,
        "warmup": 0.1,
    }

    def __init__(self, model: Any, tokenizer: Any, options: TransformerOptions) -> None:
        super().__init__()
        if getattr(model.config, "is_encoder_decoder", False):
            raise OptionError(
                f"{options.model} is a {model.config.model_type} model with a decoder; "
                "expected an encoder such as BERT",
                argument="encoder_options.model",
            )
        self.model: nn.Module = model.float()  # mixed-precision training makes its own copies
        self.tokenizer, self.options = tokenizer, options
        self.dropout = nn.Dropout(options.dropout)
        self.out_features = int(model.config.hidden_size)
        self.longest = min(options.max_length, tokenizer.model_max_length, _positions(model))
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        # the features are the last layer, so the pooler above it gets no gradient
        if isinstance(pooler := getattr(model, "pooler", None), nn.Module):
            pooler.requires_grad_(False)
        if options.freeze:
            self.model.requires_grad_(False)
        elif options.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.train()

    @classmethod
    def fit(cls, texts: Sequence[str], options: EncoderOptions) -> Self:  # noqa: ARG003 - the model is pretrained
        assert isinstance(options, TransformerOptions)
        auto = _import_transformers()
        # weights in pickled files, which can run code, are refused
        model, loading = _pretrained(auto.AutoModel, options.model, use_safetensors=True, output_loading_info=True)
        missing = sorted(name for name in loading["missing_keys"] if not name.startswith("pooler."))
        if missing:
            listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            raise InputError(f"the weights of {options.model} lack {listed}: they do not match its config.json")
        return cls(model, _pretrained(auto.AutoTokenizer, options.model), options)

    def encode(self, texts: Sequence[str]) -> Ragged:
        lengths: list[int] = []
        values = [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(texts), _CHUNK):
            rows = self._tokenize(list(texts[start : start + _CHUNK]))["input_ids"]
            lengths += map(len, rows)
            values.append(Ragged.from_lists(rows).values)
        return Ragged.from_lengths(np.concatenate(values), np.array(lengths, dtype=np.int64))

    def _tokenize(self, texts: list[str], **options: bool) -> Any:
        return self.tokenizer(
            [show_fields(text) for text in texts],
            truncation=True,
            max_length=self.longest,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
            **options,
        )

    def collate(self, rows: Ragged) -> Inputs:
        ids_BT = rows.pad(self.pad)
        # a text without tokens is one padding token, since attention to nothing is NaN
        mask_BT = np.arange(ids_BT.shape[1]) < np.maximum(rows.lengths, 1)[:, None]
        return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT.astype(np.int64))

    def forward(self, *inputs: Tensor) -> Tensor:
        assert isinstance(self.options, TransformerOptions)
        ids_BT, mask_BT = inputs
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.options.freeze):
            states_BTD = self.model(input_ids=ids_BT, attention_mask=mask_BT).last_hidden_state
        return self._pool(states_BTD, mask_BT)

    def spans(self, text: str) -> list[Span]:
        return self._pieces(text)[1] if self._can_gate else super().spans(text)

    def gated_features(self, text: str, gates_W: Tensor) -> Tensor | None:
        if not self._can_gate:
            return None
        rows, _, word_T = self._pieces(text)
        ids_BT, mask_BT = (tensor.to(gates_W.device) for tensor in self.collate(rows))
        words = torch.tensor(word_T, dtype=torch.int64, device=gates_W.device)
        gates_T = torch.cat([gates_W, gates_W.new_ones(1)])[words]  # the last one is for tokens outside words
        embedding = self.model.get_input_embeddings()  # type: ignore[operator]
        states_BTD = self.model(inputs_embeds=embedding(ids_BT) * gates_T[:, None], attention_mask=mask_BT)
        return self._pool(states_BTD.last_hidden_state, mask_BT)

    @property
    def _can_gate(self) -> bool:
        """Whether the tokenizer has offsets and the network accepts embeddings as input."""
        return bool(self.tokenizer.is_fast) and "inputs_embeds" in inspect.signature(self.model.forward).parameters

    def _pieces(self, text: str) -> tuple[Ragged, list[Span], list[int]]:
        """The tokens of a text, the spans of its words, truncated words last, and the word of each token.

        The word of a token outside words is -1.
        """
        found = self._tokenize([text], return_offsets_mapping=True)
        ids, places, owners = found["input_ids"][0], found["offset_mapping"][0], found.word_ids(0)
        word_of: dict[int, int] = {}
        words: list[Span] = []
        word_T: list[int] = []
        for owner, (start, end) in zip(owners, places, strict=True):
            if owner is None or not text[start:end].strip():
                word_T.append(-1)
                continue
            start += len(text[start:end]) - len(text[start:end].lstrip())
            if owner in word_of:
                first, last = words[word_of[owner]]
                words[word_of[owner]] = min(first, start), max(last, end)
            else:
                word_of[owner] = len(words)
                words.append((start, end))
            word_T.append(word_of[owner])
        if not ids:  # `collate` makes it one padding token
            word_T = [-1]
        # the words before the first and after the last token are split on whitespace
        first, last = min((start for start, _ in words), default=0), max((end for _, end in words), default=0)
        before, after = spans(text[:first], "whitespace"), spans(text[last:], "whitespace")
        words += before + [(last + start, last + end) for start, end in after]
        return Ragged.from_lists([ids]), words, word_T

    def _pool(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
        assert isinstance(self.options, TransformerOptions)
        states_BTD = states_BTD.to(torch.promote_types(states_BTD.dtype, torch.float32))
        if self.options.pooling == "cls":
            pooled_BD = states_BTD[:, 0]
        else:
            share_BT = mask_BT.to(states_BTD.dtype) / mask_BT.sum(1, keepdim=True)
            pooled_BD = (states_BTD * share_BT.unsqueeze(-1)).sum(1)
        features_BD: Tensor = self.dropout(pooled_BD)
        return features_BD

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        assert isinstance(self.options, TransformerOptions)
        if self.options.freeze:  # features must be the same in training and prediction
            self.model.eval()
        return self

    def save(self, folder: Path) -> None:
        with _quiet():
            self.tokenizer.save_pretrained(folder / _FOLDER)
            self.model.config.save_pretrained(folder / _FOLDER)  # type: ignore[operator, union-attr]

    @classmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:
        assert isinstance(options, TransformerOptions)
        auto = _import_transformers()
        source = str(folder / _FOLDER)
        tokenizer = _pretrained(auto.AutoTokenizer, source)
        config = _pretrained(auto.AutoConfig, source)
        with _quiet():
            model = auto.AutoModel.from_config(config, trust_remote_code=False)
        return cls(model, tokenizer, options)


def _import_transformers() -> Any:
    return import_extra("transformers", "the transformer encoder", "transformers", "transformers")


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable the progress bars and warnings of transformers, and restore its settings afterwards."""
    logging = _import_transformers().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _pretrained(kind: Any, model: str, **options: Any) -> Any:
    """Load from disk if possible, else from the hub; never runs code of the model."""
    path = Path(model).expanduser()
    folder = path if path.is_dir() else package_folder(model, ("config.json", "model.safetensors"))
    source = model if folder is None else str(folder)
    with _quiet():
        try:
            return kind.from_pretrained(source, local_files_only=True, trust_remote_code=False, **options)
        except (OSError, ValueError, ImportError) as error:
            if folder is not None:
                raise InputError(f"{model} cannot be loaded as a transformer: {_first_line(error)}") from error
        try:
            return kind.from_pretrained(source, trust_remote_code=False, **options)
        except (OSError, ValueError, ImportError) as error:
            raise InputError(
                f"no model {model!r}: it is neither a folder nor an installed package with a model, and could not be "
                f"loaded with safetensors weights from the Hugging Face hub ({_first_line(error)}); "
                "without a network, give the folder of a downloaded model"
            ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _positions(model: Any) -> int:
    """The number of positions of the model."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return 1 << 30
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)  # RoBERTa's positions start after it
    return positions if padding is None else positions - padding - 1
