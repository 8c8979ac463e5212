"""Train a classifier of Hugging Face transformers with a hierarchical head and the Trainer.

    python examples/transformers_trainer.py --model sentence-transformers/all-MiniLM-L6-v2

Without --model, the example trains a tiny BERT with random weights, which needs no download. Some texts have coarse
labels.
"""

from __future__ import annotations

import argparse
import tempfile

import tokenizers
import torch
import transformers

import arbormax as am

TAX = am.Taxonomy.from_paths(["home/kitchen/pan", "home/kitchen/knife", "home/lamp", "garden/hose", "garden/spade"])
WORDS = {
    "pan": ["frying pan", "steel wok"],
    "knife": ["bread knife", "sharp cleaver"],
    "lamp": ["desk lamp", "light bulb"],
    "hose": ["garden hose", "sprinkler"],
    "spade": ["spade", "shovel"],
    "kitchen": ["frying cleaver", "steel knife"],  # a coarse label: pan or knife
}
PAIRS = [
    (f"{before} {word}", label) for label, words in WORDS.items() for word in words for before in ("a", "the", "my")
]


def tiny_bert() -> tuple[transformers.PreTrainedModel, transformers.PreTrainedTokenizerBase]:
    words = sorted({word for text, _ in PAIRS for word in text.split()})
    known = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, "[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    backend.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    config = transformers.BertConfig(
        vocab_size=len(known),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=64,
        num_labels=TAX.num_leaves,
        initializer_range=0.2,  # the weights are not pretrained
    )
    torch.manual_seed(0)
    marks = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, **marks)
    return transformers.BertForSequenceClassification(config), tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", help="folder, or name on the hub; default: a tiny BERT")
    parser.add_argument("--epochs", type=int, default=40)
    args = parser.parse_args()
    if args.model:
        kind = transformers.AutoModelForSequenceClassification
        model = kind.from_pretrained(args.model, num_labels=TAX.num_leaves)
        tokenizer = transformers.AutoTokenizer.from_pretrained(args.model)
    else:
        model, tokenizer = tiny_bert()
    rate = 5e-5 if args.model else 5e-3

    am.replace_head(model, TAX, keep_rows=False)
    nodes = TAX.find_many([label for _, label in PAIRS]).tolist()
    data = [{**tokenizer(text), "labels": node} for (text, _), node in zip(PAIRS, nodes, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        settings = transformers.TrainingArguments(
            folder,
            num_train_epochs=args.epochs,
            learning_rate=rate,
            per_device_train_batch_size=12,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            dataloader_pin_memory=torch.cuda.is_available(),
        )
        trainer = transformers.Trainer(
            model,
            settings,
            train_dataset=data,
            processing_class=tokenizer,
            compute_loss_func=am.trainer_loss(model),  # the labels are node ids
        )
        trainer.train()
        trainer.save_model(folder)

        loaded = am.from_pretrained(folder)
        pipe = transformers.pipeline("text-classification", loaded, tokenizer=tokenizer, device="cpu")
        for text in ("my shovel", "a desk lamp", "the steel cleaver"):
            leaves = loaded(**tokenizer(text, return_tensors="pt")).logits
            node = am.decode.threshold(am.functional.flat_node_log_probs(leaves, TAX), TAX, tau=0.7)
            path = "/".join(TAX.path(int(node[0]))) or "the root"
            best = pipe(text)[0]
            print(f"{text!r:20} {best['label']:8} {best['score']:.2f}   probability above 0.7: {path}")


if __name__ == "__main__":
    main()
