"""Pairs of launches of two runs, with the tensors that both read and wrote and the hashes of their bytes.

A kernel that writes a buffer and reads it again (a partial result, the parts of a concatenation) is recorded as one
that reads it. What fresh memory held before may be anything: such leftovers are told from reads of a value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import Enum

from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.regions.writes import LastWrites, begins_with_a_store
from aoti_debug.package.manifest import Manifest, Role
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name, span_of
from aoti_debug.runs.rundir.formats.journal_records import TensorFile
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir

_READ = (Role.IN, Role.INOUT, Role.UNKNOWN)


@dataclass(frozen=True)
class RecordedTensor:
    """A tensor argument of a launch, before or after it."""

    launch: Launch
    argument: Argument
    phase: Phase

    @property
    def hash(self) -> int | None:
        """The 64 bit hash of its elements, row-major; None if it was not recorded."""
        if self.file is not None:
            return self.file.hash[0]
        stats = self.argument.stats.get(self.phase)
        return None if stats is None else stats.hash

    @property
    def file(self) -> TensorFile | None:
        """The file with its elements; None if they were not saved."""
        saved = self.argument.files.get(self.phase)
        return saved if saved is not None and saved.path else None

    @property
    def is_known(self) -> bool:
        """True if its hash was recorded."""
        return self.hash is not None


class RecordedTensors:
    """The tensors that the launches of a run read and wrote."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._kernels = {kernel.name: kernel for kernel in run.manifest.kernels}

    def reads(self, launch: Launch) -> tuple[RecordedTensor, ...]:
        """The tensors that a launch reads, each once, as they were before it.

        One that it does not write may be recorded after it only: it is the same then.
        """
        arguments = (argument for argument in _tensors(launch) if argument.role in _READ and not argument.spec.fresh)
        return tuple(_read(launch, argument) for argument in arguments if not self.is_partial_result(launch, argument))

    def writes(self, launch: Launch) -> tuple[RecordedTensor, ...]:
        """The tensors that a launch may write, each once, as they were after it; none if it did not return.

        Without those that nothing uses, if it writes others: what stands there may be anything.
        """
        if launch.status is not LaunchStatus.RETURNED:
            return ()
        written = [argument for argument in _tensors(launch) if argument.written]
        used = [argument for argument in written if not argument.spec.unread]
        return tuple(RecordedTensor(launch, argument, Phase.AFTER) for argument in used or written)

    def is_partial_result(self, launch: Launch, argument: Argument) -> bool:
        """True if a kernel reads from an argument only what it has itself stored there: before, it held anything."""
        names = launch.site.launches or (launch.site.kernel,)
        kernels = [self._kernels[name] for name in names if name in self._kernels]
        return argument.role is Role.INOUT and any(
            begins_with_a_store(kernel, argument.spec.param) for kernel in kernels
        )


def _read(launch: Launch, argument: Argument) -> RecordedTensor:
    before = RecordedTensor(launch, argument, Phase.BEFORE)
    return before if before.is_known or argument.written else RecordedTensor(launch, argument, Phase.AFTER)


def _tensors(launch: Launch) -> tuple[Argument, ...]:
    by_name = {argument.name: argument for argument in launch.args if argument.layout is not None}
    return tuple(by_name.values())


class PairedBy(str, Enum):
    """The way in which launches of two runs are paired."""

    LAUNCH = "launch"  # the same kernels with the same arguments, in the same order
    VALUE = "value"  # the values of the program that they write


class PairRelation(str, Enum):
    """The relation of a launch to its counterpart."""

    SAME = "same"  # it wrote the same bytes
    PARTS = "parts"  # it read the same inputs, and wrote different results
    CONSEQUENCE = "consequence"  # it read different inputs, and wrote different results
    INPUTS_UNKNOWN = "inputs unknown"  # it wrote different results, and not all that it read was recorded
    NOT_RECORDED = "not recorded"  # not all that it wrote was recorded or has a counterpart


@dataclass(frozen=True)
class TensorPair:
    """A tensor of each run, which should be equal.

    Attributes:
        a, b: of the first and the second run.
    """

    a: RecordedTensor
    b: RecordedTensor

    @property
    def equal(self) -> bool | None:
        """True if the bytes are equal; None if it is not known.

        Two views of one value in other shapes may have their elements in another order: only equal bytes say something.
        """
        first, second = self.a.hash, self.b.hash
        layouts = self.a.argument.layout, self.b.argument.layout
        if first is None or second is None or layouts[0] is None or layouts[1] is None:
            return None
        if (layouts[0].dtype, layouts[0].numel) != (layouts[1].dtype, layouts[1].numel):
            return False
        return True if first == second else None if layouts[0].shape != layouts[1].shape else False


@dataclass(frozen=True, kw_only=True)
class LaunchPair:
    """A launch of the second run, and what it is compared with.

    Attributes:
        counterparts: the launches of the first run that wrote the same values; several where kernels are fused in
            another way.
        reads, writes: its tensors with their counterparts.
        unpaired_reads, unpaired_writes: names of its tensors that have none.
        numbers: names of numbers that were passed to it and differ.
    """

    launch: Launch
    counterparts: tuple[Launch, ...]
    reads: tuple[TensorPair, ...]
    writes: tuple[TensorPair, ...]
    unpaired_reads: tuple[str, ...] = ()
    unpaired_writes: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    @property
    def outcome(self) -> PairRelation:
        """The relation of the launch to its counterpart."""
        written = [pair.equal for pair in self.writes]
        if False not in written:
            is_known = written and None not in written and not self.unpaired_writes
            return PairRelation.SAME if is_known else PairRelation.NOT_RECORDED
        read = [pair.equal for pair in self.reads]
        if False in read:
            return PairRelation.CONSEQUENCE
        return PairRelation.INPUTS_UNKNOWN if None in read or self.unpaired_reads else PairRelation.PARTS


@dataclass(frozen=True)
class Pairing:
    """The launches of two runs, paired.

    Attributes:
        pairs: in the order of the second run.
        only_a, only_b: launches without a counterpart.
    """

    by: PairedBy
    pairs: tuple[LaunchPair, ...]
    only_a: tuple[Launch, ...]
    only_b: tuple[Launch, ...]


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
            _note(is_other, (argument for argument in unpaired.pop(0).args if argument.written), other=True)
        reads = tuple(read for read in pair.reads if not _is_leftover(read, manifest, is_other))
        kept.append(pair if len(reads) == len(pair.reads) else replace(pair, reads=reads))
        for write in pair.writes:
            _note(is_other, (write.b.argument,), other=write.equal is not True)
        unpaired_writes = (argument for argument in pair.launch.args if argument.name in pair.unpaired_writes)
        _note(is_other, unpaired_writes, other=True)
    return kept


def _note(is_other: LastWrites[bool], arguments: Iterable[Argument], *, other: bool) -> None:
    for span in map(span_of, arguments):
        if span is not None:
            is_other.add(span, other)


def _is_leftover(read: TensorPair, manifest: Manifest, is_other: LastWrites[bool]) -> bool:
    argument = read.b.argument
    span = span_of(argument)
    if read.equal is not False or not argument.written or span is None or input_or_weight_name(manifest, argument):
        return False
    return not any(is_other.to_any_of(span))
