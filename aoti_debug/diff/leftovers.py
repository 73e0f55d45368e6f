"""Tells reads of a value from leftovers: what fresh memory held before a launch wrote it.

A kernel that writes a buffer and reads it again (a partial result, the parts of a concatenation) is recorded as one
that reads it: what it held before may be anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aoti_debug.diagnosis.dataflow import ByteRange, input_or_weight_name, span_of
from aoti_debug.diff.pair import LaunchPair, TensorPair
from aoti_debug.manifest import Manifest


def without_leftovers(pairs: Sequence[LaunchPair], manifest: Manifest) -> list[LaunchPair]:
    """The pairs without the reads that differ because fresh memory holds anything.

    Such a read is of an argument that is also written, is no model input or weight, and lies where no launch before
    wrote bytes that differ.

    Args:
        pairs: in the order of the second run.
        manifest: of the second run.
    """
    differing: list[ByteRange] = []
    kept = []
    for pair in pairs:
        reads = tuple(read for read in pair.reads if not _is_leftover(read, manifest, differing))
        kept.append(pair if len(reads) == len(pair.reads) else replace(pair, reads=reads))
        spans = (span_of(write.b.argument) for write in pair.writes if write.equal is not True)
        differing += [span for span in spans if span is not None]
    return kept


def _is_leftover(read: TensorPair, manifest: Manifest, differing: Sequence[ByteRange]) -> bool:
    argument = read.b.argument
    span = span_of(argument)
    if read.equal is not False or not argument.written or span is None or input_or_weight_name(manifest, argument):
        return False
    return not any(span.overlaps(other) for other in reversed(differing))
