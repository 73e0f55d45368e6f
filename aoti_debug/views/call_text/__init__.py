"""The calls of a run, or of its program in eager, in the words of torch's DebugMode."""
