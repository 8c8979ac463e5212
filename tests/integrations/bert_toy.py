"""A tiny BERT with its tokeniser, made here."""

from pathlib import Path

import tokenizers
import torch
import transformers

import arbormax as am

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "pan", "knife", "hose", "spade", "a", "the"]
TREE = am.Taxonomy.from_nested({"home": {"kitchen": ["pan", "knife"]}, "garden": ["hose", "spade"]})
C = TREE.num_leaves
TEXTS = ["pan", "knife a", "hose", "spade a"] * 4
CLASSES = [0, 1, 2, 3] * 4
SIZES = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
STILL = {"initializer_range": 0.2, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def tokenizer() -> transformers.PreTrainedTokenizerFast:
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def bert(**options: object) -> transformers.BertForSequenceClassification:
    torch.manual_seed(0)
    options = {"vocab_size": len(WORDS), "num_labels": C, **SIZES, **STILL, **options}
    return transformers.BertForSequenceClassification(transformers.BertConfig(**options)).eval()


def rows(labels: list[int]) -> list[dict[str, object]]:
    """A dataset for the Trainer, labels at the texts in turn."""
    encoded = tokenizer()(TEXTS, padding=True)["input_ids"]
    return [{"input_ids": ids, "labels": label} for ids, label in zip(encoded, labels, strict=True)]


def trainer(model: torch.nn.Module, folder: Path, labels: list[int], steps: int = 30, **options: object):
    settings = {"per_device_train_batch_size": 8, "learning_rate": 1e-2, "use_cpu": True, "report_to": [], "seed": 0}
    settings |= {
        "max_steps": steps,
        "save_strategy": "no",
        "disable_tqdm": True,
        "logging_strategy": "no",
        "warmup_steps": 5,
    }
    for key in list(options):
        if hasattr(transformers.TrainingArguments, key) or key in transformers.TrainingArguments.__dataclass_fields__:
            settings[key] = options.pop(key)
    args = transformers.TrainingArguments(output_dir=str(folder), **settings)
    data = rows(labels)
    return transformers.Trainer(model, args, train_dataset=data, eval_dataset=data, **options)
