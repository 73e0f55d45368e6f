"""Out-of-bounds accesses and uninitialised reads: explains them and walks back to the origin of an index."""
