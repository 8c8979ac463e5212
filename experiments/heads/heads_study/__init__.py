"""The study of heads: which head, with the texts of nodes or a loss on the path, on seven datasets."""
