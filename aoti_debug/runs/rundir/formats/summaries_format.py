"""The Python side of runtime_shims/formats/summaries_format.h; tests/base/test_abi.py compares them."""

from __future__ import annotations

from aoti_debug.base.abi import Struct

MAGIC = b"AOTIDBU1"
VERSION = 2

HEADER = Struct(
    "SummariesHeader",
    (
        ("magic", "8s"),
        ("version", "I"),
        ("asked", "I"),
        ("every", "Q"),
        ("n_rows", "Q"),
        ("most_rows", "Q"),
        ("n_lost", "Q"),
        ("n_missed", "Q"),
        ("reserved", "Q"),
    ),
)
ROW = Struct(
    "SummaryRow",
    (
        ("call", "I"),
        ("replay", "I"),
        ("launch", "I"),
        ("site", "I"),
        ("slot", "H"),
        ("dtype", "h"),
        ("reserved", "I"),
        ("numel", "Q"),
        ("n_nan", "Q"),
        ("n_pos_inf", "Q"),
        ("n_neg_inf", "Q"),
        ("n_zero", "Q"),
        ("min", "d"),
        ("max", "d"),
        ("mean", "d"),
        ("std", "d"),
    ),
)
STRUCTS = (HEADER, ROW)
