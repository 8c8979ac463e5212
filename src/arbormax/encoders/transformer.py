"""A pretrained transformer: any model of Hugging Face's library, from a folder or by its name.

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
from arbormax.data.ragged import Ragged
from arbormax.data.tokens import Span, spans
from arbormax.encoders.base import Encoder, EncoderOptions
from arbormax.errors import InputError, MissingDependencyError, OptionError, did_you_mean

_FOLDER = "transformer"
_AT_ONCE = 10_000  # texts, as a tokeniser's results take much memory


class TransformerOptions(EncoderOptions):
    model: str = Field(description="folder of a pretrained model, or its name on the Hugging Face hub")
    pooling: Literal["mean", "cls"] = Field("mean", description="mean over the tokens, or the first one")
    max_length: int = Field(256, ge=4, description="a text is cut after so many tokens")
    dropout: float = Field(0.1, ge=0, lt=1, description="share of features dropped before the head")
    freeze: bool = Field(False, description="train the head only")
    gradient_checkpointing: bool = Field(False, description="compute twice to save memory")


class TransformerEncoder(Encoder):
    """The pooled last layer of a pretrained transformer, trained further unless `freeze`."""

    name: ClassVar[str] = "transformer"
    Options: ClassVar[type[EncoderOptions]] = TransformerOptions
    training_defaults: ClassVar[Mapping[str, object]] = {
        "learning_rate": 3e-5,
        "head_learning_rate": 1e-3,
        "batch_size": 32,
        "epochs": 4,
        "warmup": 0.1,
    }

    def __init__(self, model: Any, tokenizer: Any, options: TransformerOptions) -> None:
        super().__init__()
        if getattr(model.config, "is_encoder_decoder", False):
            raise OptionError(
                f"{options.model} is a {model.config.model_type} model, which also generates text; "
                "expected one that only reads it, such as BERT"
            )
        self.model: nn.Module = model.float()  # half-precision training keeps its own copies
        self.tokenizer, self.options = tokenizer, options
        self.dropout = nn.Dropout(options.dropout)
        self.out_features = int(model.config.hidden_size)
        self.longest = min(options.max_length, tokenizer.model_max_length, _positions(model))
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else 0
        # Features come from the last layer, so that a layer above it would never get a gradient.
        if isinstance(pooler := getattr(model, "pooler", None), nn.Module):
            pooler.requires_grad_(False)
        if options.freeze:
            self.model.requires_grad_(False)
        elif options.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        self.train()

    @classmethod
    def fit(cls, texts: Sequence[str], options: EncoderOptions) -> Self:  # noqa: ARG003 - it is trained already
        assert isinstance(options, TransformerOptions)
        auto = _library()
        folder = _check_source(options.model)
        tokenizer = _pretrained(auto.AutoTokenizer, options.model, folder)
        model, loading = _pretrained(
            auto.AutoModel, options.model, folder, use_safetensors=True, output_loading_info=True
        )
        missing = sorted(name for name in loading["missing_keys"] if not name.startswith("pooler."))
        if missing:
            listed = ", ".join(missing[:3]) + (f" and {len(missing) - 3} more" if len(missing) > 3 else "")
            raise InputError(f"the weights of {options.model} lack {listed}: they are not those of its config.json")
        return cls(model, tokenizer, options)

    def encode(self, texts: Sequence[str]) -> Ragged:
        lengths: list[int] = []
        values = [np.zeros(0, dtype=np.int64)]
        for start in range(0, len(texts), _AT_ONCE):
            rows = self._tokenised(list(texts[start : start + _AT_ONCE]))["input_ids"]
            lengths += map(len, rows)
            values.append(Ragged.from_lists(rows).values)
        return Ragged.from_lengths(np.concatenate(values), np.array(lengths, dtype=np.int64))

    def _tokenised(self, texts: list[str], **wishes: bool) -> Any:
        return self.tokenizer(
            texts,
            truncation=True,
            max_length=self.longest,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
            **wishes,
        )

    def collate(self, rows: Ragged) -> Inputs:
        ids_BT = rows.padded(self.pad)
        # A text without any token is one pad: attention to nothing at all would give no number.
        mask_BT = np.arange(ids_BT.shape[1]) < np.maximum(rows.lengths, 1)[:, None]
        return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT.astype(np.int64))

    def forward(self, *inputs: Tensor) -> Tensor:
        assert isinstance(self.options, TransformerOptions)
        ids_BT, mask_BT = inputs
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.options.freeze):
            states_BTD = self.model(input_ids=ids_BT, attention_mask=mask_BT).last_hidden_state
        return self._pooled(states_BTD, mask_BT)

    def spans(self, text: str) -> list[Span]:
        return self._pieces(text)[1] if self._gateable else super().spans(text)

    def gated(self, text: str, gates_W: Tensor) -> Tensor | None:
        if not self._gateable:
            return None
        rows, _, word_T = self._pieces(text)
        ids_BT, mask_BT = (tensor.to(gates_W.device) for tensor in self.collate(rows))
        words = torch.tensor(word_T, dtype=torch.int64, device=gates_W.device)
        gates_T = torch.cat([gates_W, gates_W.new_ones(1)])[words]  # the last for what is no word
        embedding = self.model.get_input_embeddings()  # type: ignore[operator]
        states_BTD = self.model(inputs_embeds=embedding(ids_BT) * gates_T[:, None], attention_mask=mask_BT)
        return self._pooled(states_BTD.last_hidden_state, mask_BT)

    @property
    def _gateable(self) -> bool:
        """Whether the tokeniser tells where its tokens stand, and the network takes vectors in their place."""
        return bool(self.tokenizer.is_fast) and "inputs_embeds" in inspect.signature(self.model.forward).parameters

    def _pieces(self, text: str) -> tuple[Ragged, list[Span], list[int]]:
        """The tokens of a text, the words they are pieces of and then those that were cut off, and each token's word.

        A token that belongs to no word has the number -1.
        """
        found = self._tokenised([text], return_offsets_mapping=True)
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
        if not ids:  # collated as one pad
            word_T = [-1]
        return Ragged.from_lists([ids]), words + _unread(text, words), word_T

    def _pooled(self, states_BTD: Tensor, mask_BT: Tensor) -> Tensor:
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
        if self.options.freeze:  # its features are the same in training and later
            self.model.eval()
        return self

    def save(self, folder: Path) -> None:
        with _quiet():
            self.tokenizer.save_pretrained(folder / _FOLDER)
            self.model.config.save_pretrained(folder / _FOLDER)  # type: ignore[operator, union-attr]

    @classmethod
    def load(cls, folder: Path, options: EncoderOptions) -> Self:
        assert isinstance(options, TransformerOptions)
        auto = _library()
        source = str(folder / _FOLDER)
        tokenizer = _pretrained(auto.AutoTokenizer, source, True)
        config = _pretrained(auto.AutoConfig, source, True)
        with _quiet():
            model = auto.AutoModel.from_config(config, trust_remote_code=False)
        return cls(model, tokenizer, options)


def _unread(text: str, words: list[Span]) -> list[Span]:
    """The pieces between blanks before the first and behind the last of these words: what was cut off."""
    first, last = min((start for start, _ in words), default=0), max((end for _, end in words), default=0)
    behind = [(last + start, last + end) for start, end in spans(text[last:], "whitespace")]
    return spans(text[:first], "whitespace") + behind


def _library() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingDependencyError("the transformer encoder", "transformers", "transformers") from error
    return transformers


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the library's progress bars and advice; its settings are put back afterwards."""
    logging = _library().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _check_source(model: str) -> bool:
    """Whether the model is a folder; one that cannot be used is told before the library tries."""
    path = Path(model).expanduser()
    if not path.is_dir():
        if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1 or path.exists():
            near = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
            raise InputError(f"no model at {path}: expected a folder with a config.json{did_you_mean(path.name, near)}")
        return False
    names = sorted(file.name for file in path.iterdir())
    if "config.json" not in names:
        raise InputError(
            f"{path} is no model of Hugging Face: it has no config.json, but {', '.join(names) or 'nothing'}"
        )
    pickled = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
    if not any(name.endswith(".safetensors") for name in names):
        found = f"only {', '.join(pickled)}, which can run code when opened" if pickled else "no weights at all"
        raise InputError(
            f"{path} has {found}; expected model.safetensors: where you trust the file, load the model with "
            "transformers and save it anew with save_pretrained"
        )
    return True


def _pretrained(kind: Any, model: str, folder: bool, **settings: Any) -> Any:
    """What the library loads: from the disk alone where it is there, else from the hub; never code."""
    source = str(Path(model).expanduser()) if folder else model
    with _quiet():
        try:
            return kind.from_pretrained(source, local_files_only=True, trust_remote_code=False, **settings)
        except (OSError, ValueError, ImportError) as error:
            if folder:
                raise InputError(f"{model} cannot be loaded as a transformer: {_first_line(error)}") from error
        try:
            return kind.from_pretrained(source, trust_remote_code=False, **settings)
        except (OSError, ValueError, ImportError) as error:
            raise InputError(
                f"no model {model!r}: there is no such folder here, and the Hugging Face hub did not give one with "
                f"safetensors weights ({_first_line(error)}); without a network, give the folder of a downloaded model"
            ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _positions(model: Any) -> int:
    """How many tokens the model has positions for."""
    positions = getattr(model.config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions < 1:
        return 1 << 30
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)  # RoBERTa counts positions from behind it
    return positions if padding is None else positions - padding - 1
