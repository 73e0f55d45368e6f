"""The launches, recorded tensors and nodes of the graph that belong together."""
