"""The study of when a class tree helps: coarse labels, few examples, depth, rare classes and a shuffled tree."""
