"""What the tests of the text classifier share: a tree, texts that one word gives away, and quick settings."""

import numpy as np

import arbormax as am

TREE = {"comp": ["graphics", {"sys": ["ibm", "mac"]}], "sci": ["med", "space"]}
TAX = am.Taxonomy.from_nested(TREE)
WORDS = {
    "graphics": ["pixel", "shader"],
    "ibm": ["bios", "dos"],
    "mac": ["apple", "finder"],
    "med": ["pill", "doctor"],
    "space": ["orbit", "rocket"],
}
SMALL = {
    "encoder": "bag",
    "encoder_options": {"dim": 16, "dropout": 0.0},
    "learning_rate": 0.1,
    "batch_size": 6,
    "epochs": 5,
    "validation": 0,
    "accelerator": "cpu",
}


def make(count=60, seed=0):
    """Texts that one word gives away, and their classes."""
    draw = np.random.default_rng(seed)
    labels = [list(WORDS)[i % len(WORDS)] for i in range(count)]
    return [
        f"{draw.choice(['the', 'of', 'in'])} {draw.choice(WORDS[label])} {i}" for i, label in enumerate(labels)
    ], labels


def small(taxonomy=TAX, **settings):
    return am.TextClassifier(taxonomy, **{**SMALL, **settings})


def path_of(label):
    return TAX.path(TAX.find(label))


TEXTS, LABELS = make()
PATHS = [path_of(label) for label in LABELS]
