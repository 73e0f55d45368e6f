"""This machine: compiler, CUDA toolkit, cache, files, child processes."""
