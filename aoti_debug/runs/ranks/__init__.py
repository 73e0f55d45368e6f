"""A run of many ranks: which one failed first, which ones wait, where they part, and which tensors should agree."""
