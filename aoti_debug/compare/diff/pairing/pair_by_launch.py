"""Pairs launches of the same kernels with the same arguments, in the same order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

from aoti_debug.base.abi import CallKind
from aoti_debug.compare.diff.pairing.leftovers import without_leftovers
from aoti_debug.compare.diff.pairing.pair import LaunchPair, PairedBy, Pairing, TensorPair
from aoti_debug.compare.diff.pairing.recorded_tensor import RecordedTensor, RecordedTensors
from aoti_debug.package.recording.values import Number
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch

Call = tuple[CallKind, int]


def pair_by_launch(a: RunDir, b: RunDir) -> Pairing:
    """Pairs the launches of each call; those that only one run has are left over."""
    first, second = launches_by_call(a), launches_by_call(b)
    tensors = RecordedTensors(a), RecordedTensors(b)
    pairs: list[LaunchPair] = []
    only_a: list[Launch] = []
    only_b: list[Launch] = []
    for call in sorted(first.keys() | second.keys()):
        launches, others = first.get(call, []), second.get(call, [])
        paired = pair_launches(launches, others, *tensors)
        pairs += paired
        only_a += _without(launches, [pair.counterparts[0] for pair in paired])
        only_b += _without(others, [pair.launch for pair in paired])
    pairs.sort(key=lambda pair: pair.launch.sequence)
    return Pairing(PairedBy.LAUNCH, tuple(pairs), tuple(only_a), tuple(only_b))


def pair_launches(
    a: Sequence[Launch], b: Sequence[Launch], of_a: RecordedTensors, of_b: RecordedTensors
) -> list[LaunchPair]:
    """Pairs the launches of two calls, as far as their kernels and arguments are the same in the same order."""
    pairs = [_pair(launch, other, of_a, of_b) for launch, other in _aligned(a, b)]
    return without_leftovers(pairs, list(_without(b, [pair.launch for pair in pairs])), of_b.run.manifest)


def launches_by_call(run: RunDir) -> dict[Call, list[Launch]]:
    """The launches of each call, in order."""
    calls: dict[Call, list[Launch]] = defaultdict(list)
    for launch in run.launches:
        calls[launch.key.kind, launch.key.call].append(launch)
    return calls


def _aligned(a: Sequence[Launch], b: Sequence[Launch]) -> Iterator[tuple[Launch, Launch]]:
    first, second = [_name(launch) for launch in a], [_name(launch) for launch in b]
    if first == second:
        yield from zip(a, b, strict=True)
        return
    begin = next((i for i, names in enumerate(zip(first, second, strict=False)) if names[0] != names[1]), len(first))
    begin = min(begin, len(second))
    yield from zip(a[:begin], b[:begin], strict=True)
    for block in SequenceMatcher(None, first[begin:], second[begin:], autojunk=False).get_matching_blocks():
        i, j = begin + block.a, begin + block.b
        yield from zip(a[i : i + block.size], b[j : j + block.size], strict=True)


def _name(launch: Launch) -> Hashable:
    return launch.kernel, launch.loops, launch.site.subgraph, tuple(arg.name for arg in launch.site.args)


def _without(launches: Sequence[Launch], paired: Sequence[Launch]) -> Iterator[Launch]:
    known = {launch.key for launch in paired}
    return (launch for launch in launches if launch.key not in known)


def _pair(a: Launch, b: Launch, of_a: RecordedTensors, of_b: RecordedTensors) -> LaunchPair:
    read, unpaired_reads = _tensors(of_a.reads(a), of_b.reads(b))
    written, unpaired_writes = _tensors(of_a.writes(a), of_b.writes(b))
    return LaunchPair(b, (a,), read, written, unpaired_reads, unpaired_writes, tuple(_numbers(a, b)))


def _tensors(
    a: Sequence[RecordedTensor], b: Sequence[RecordedTensor]
) -> tuple[tuple[TensorPair, ...], tuple[str, ...]]:
    first = {tensor.argument.name: tensor for tensor in a}
    paired = tuple(TensorPair(first[t.argument.name], t) for t in b if t.argument.name in first)
    return paired, tuple(t.argument.name for t in b if t.argument.name not in first)


def _numbers(a: Launch, b: Launch) -> Iterator[str]:
    for first, second in zip(a.args, b.args, strict=True):
        numbers = isinstance(first.before, Number) and isinstance(second.before, Number)
        if numbers and first.before != second.before:
            yield first.name
