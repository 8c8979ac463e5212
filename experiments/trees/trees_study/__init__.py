"""The study of trees: human, induced, shuffled and none, with the same model."""
