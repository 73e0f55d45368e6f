"""Graphs of `torch.compile` as instrumented packages: the backend "aoti_debug", and `aoti_debug.debug`."""
