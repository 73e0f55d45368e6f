"""Tells reads of a value from leftovers: what fresh memory held before a launch wrote it.

A kernel that writes a buffer and reads it again (a partial result, the parts of a concatenation) is recorded as one
that reads it: what it held before may be anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from aoti_debug.compare.diff.pairing.pair import LaunchPair, TensorPair
from aoti_debug.compare.regions.last_writes import LastWrites
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name, span_of
from aoti_debug.runs.rundir.timeline import Argument, Launch


def without_leftovers(pairs: Sequence[LaunchPair], alone: Sequence[Launch], manifest: Manifest) -> list[LaunchPair]:
    """The pairs without the reads that differ because fresh memory holds anything.

    Such a read is of an argument that is also written, is no model input or weight, and lies where the last write
    before left the same bytes in both runs, or nothing was written.

    Args:
        pairs: in the order of the second run.
        alone: launches of the second run that have no counterpart.
        manifest: of the second run.
    """
    is_other: LastWrites[bool] = LastWrites()  # True for a write whose bytes are not known to be the same
    unpaired = sorted(alone, key=lambda launch: launch.sequence)
    kept = []
    for pair in pairs:
        while unpaired and unpaired[0].sequence < pair.launch.sequence:
            _note(is_other, (argument for argument in unpaired.pop(0).args if argument.written), True)
        reads = tuple(read for read in pair.reads if not _is_leftover(read, manifest, is_other))
        kept.append(pair if len(reads) == len(pair.reads) else replace(pair, reads=reads))
        for write in pair.writes:
            _note(is_other, (write.b.argument,), write.equal is not True)
        unpaired_writes = (argument for argument in pair.launch.args if argument.name in pair.unpaired_writes)
        _note(is_other, unpaired_writes, True)
    return kept


def _note(is_other: LastWrites[bool], arguments: Iterable[Argument], other: bool) -> None:
    for span in map(span_of, arguments):
        if span is not None:
            is_other.add(span, other)


def _is_leftover(read: TensorPair, manifest: Manifest, is_other: LastWrites[bool]) -> bool:
    argument = read.b.argument
    span = span_of(argument)
    if read.equal is not False or not argument.written or span is None or input_or_weight_name(manifest, argument):
        return False
    return not any(is_other.to_any_of(span))
