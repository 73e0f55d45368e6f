"""Gives a package the reference of a new lowering of its program, with the package's names of buffers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.package.manifest import Promise
from aoti_debug.package.reference import program
from aoti_debug.package.reference.program import BufferValue, Graph, Reference


def add_reference(package: LoweredModel, program_: LoweredModel, names: Mapping[str, str], work: Path) -> LoweredModel:
    """The package with the reference, and with the layouts of buffers, of a new lowering of its program.

    Args:
        names: of `LoweringMatch`.
        work: a folder for the file.
    """
    if program_.reference_file is None:
        return package
    promises = renamed_promises(program_.answer.promises, names)
    answer = replace(package.answer, promises=promises, without_promises=program_.answer.without_promises)
    reference = write_renamed(program_.reference_file, names, work / "joined_reference.json")
    return replace(package, answer=answer, reference_file=reference)


def write_renamed(reference: Path, names: Mapping[str, str], output: Path) -> Path:
    """Writes a reference whose buffers have the names of the package."""
    found = program.from_json(reference.read_bytes())
    output.write_text(program.to_json(renamed(found, names)))
    return output


def renamed(reference: Reference, names: Mapping[str, str]) -> Reference:
    """The reference with other names of buffers."""
    return replace(reference, graphs=tuple(_renamed_graph(graph, names) for graph in reference.graphs))


def renamed_promises(promises: tuple[Promise, ...], names: Mapping[str, str]) -> tuple[Promise, ...]:
    """The layouts of buffers with other names of them."""
    return tuple(replace(promise, name=names.get(promise.name, promise.name)) for promise in promises)


def _renamed_graph(graph: Graph, names: Mapping[str, str]) -> Graph:
    buffers = tuple(BufferValue(names.get(item.buffer, item.buffer), item.node) for item in graph.buffers)
    return replace(graph, buffers=buffers)
