"""The doors: the command line, the backend of `torch.compile`, and `doctor`.

In: what a user types or calls. Out: lines, exit codes, outputs of a model. Only `cli` prints and exits. Read
`cli/main.py` first.
"""
