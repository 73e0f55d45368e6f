"""The kinds of findings, findings of a comparison or of ranks, and the directory that keeps one."""
