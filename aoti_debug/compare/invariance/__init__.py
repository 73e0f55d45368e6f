"""Batch invariance: whether a sample has the same bits alone and among others, and which launch makes it differ."""
