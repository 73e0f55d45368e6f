"""Outputs that have memory of an input."""

from __future__ import annotations

from pathlib import Path

import torch

from aoti_debug.compare.rows import shared_memory
from aoti_debug.package.program_graphs import EXPORTED, FORMAT, Graph, Node, NodeKind, Reference
from aoti_debug.runs.run import saved_outputs

X = torch.arange(4.0)
GRAPH = Graph("", EXPORTED, (Node("x", NodeKind.INPUT), Node("y", NodeKind.INPUT)), ())


def test_memory_that_an_output_has_in_the_package_alone(tmp_path: Path) -> None:
    reference = Reference(FORMAT, "2.13", (), exported=(GRAPH,))
    y = X + 1
    saved_outputs.save([X, y, X * 2], tmp_path / "run", (X, y))
    saved_outputs.save([X.clone(), y, X * 2], tmp_path / "eager", (X, y))
    (said,) = shared_memory(tmp_path / "run", tmp_path / "eager", reference)
    assert said.startswith("output 0 has memory of input 0 (x), and in eager none of it")
    assert not list(shared_memory(tmp_path / "eager", tmp_path / "run", reference))
    assert not list(shared_memory(None, tmp_path / "eager", reference))
    (unnamed,) = shared_memory(tmp_path / "run", tmp_path / "eager", Reference(FORMAT, "2.13", ()))
    assert "input 0, and" in unnamed
