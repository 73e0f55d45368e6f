"""Compares a call with the same call again: launches whose results change although their inputs do not.

The calls of one run are compared with the first of them; a call from a thread with the same call alone: the first
launch that differs, and what ran beside it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.errors import AotiDebugError, RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.diff.diff_runs import difference_of, require_values
from aoti_debug.compare.diff.difference import TensorDifference
from aoti_debug.compare.diff.pair_launches import launches_by_call, pair_launches
from aoti_debug.compare.diff.pairs import LaunchPair, PairRelation, RecordedTensor, RecordedTensors, TensorPair
from aoti_debug.compare.evaluate.functions import LOOKUP, draws
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Arg, Kernel, Role, Site
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.dataflow import ByteRange, Dataflow, input_or_weight_name, span_of
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir


class DifferenceKind(Enum):
    """The kind of the first difference of a call."""

    WROTE = "its inputs held the same values as alone, as far as they were recorded, and it wrote others"
    MEANWHILE = "what it read changed while it ran"
    READ = "it read other values than the launch before it had written"
    GIVEN = "it read other values of an input or a weight"
    UNKNOWN = "not all that it read is recorded"


@dataclass(frozen=True)
class Beside:
    """A launch of another call that ran at the same time.

    Attributes:
        shares: the name of its argument that it may have written, and that lies in the memory that differs; "" if it
            has none.
    """

    launch: Launch
    shares: str = ""


@dataclass(frozen=True, kw_only=True)
class FirstDifference:
    """The first launch of a call whose recorded values differ.

    Attributes:
        launch: of the call from a thread.
        names: its arguments that differ.
        writer: of a READ: the launch of the same call that wrote what it read; None if that is not known.
        beside: launches of other threads that ran at the same time: beside it, or, of a READ, since the writer ended.
        looked_after: of a WROTE: what it read was recorded after it as well.
    """

    kind: DifferenceKind
    launch: Launch
    names: tuple[str, ...]
    writer: Launch | None
    beside: tuple[Beside, ...]
    looked_after: bool = False


class CallPairs:
    """The calls of a run from threads, and those of the run alone that they are compared with."""

    def __init__(self, alone: RunDir, together: RunDir) -> None:
        self._tensors = RecordedTensors(alone), RecordedTensors(together)
        self._together = together
        self._flow = Dataflow(together)

    def first_difference(self, alone: Sequence[Launch], together: Sequence[Launch]) -> FirstDifference | None:
        """The first launch of a call that differs; None if none does as far as values are recorded.

        Args:
            alone, together: the launches of the same call.
        """
        for pair in pair_launches(alone, together, *self._tensors):
            if reads := [read for read in pair.reads if read.equal is False]:
                return self._read(pair, reads)
            if writes := [write for write in pair.writes if write.equal is False]:
                return self._wrote(pair, writes)
        return None

    def _wrote(self, pair: LaunchPair, writes: Sequence[TensorPair]) -> FirstDifference:
        launch = pair.launch
        changed = [read for read in pair.reads if _changed(read.b) is True]
        is_known = all(read.equal is not None for read in pair.reads) and not pair.unpaired_reads
        kind = DifferenceKind.MEANWHILE if changed else DifferenceKind.WROTE if is_known else DifferenceKind.UNKNOWN
        return FirstDifference(
            kind=kind,
            launch=launch,
            names=_names(changed or writes),
            writer=None,
            beside=self._beside(launch, launch.begin_ns, _spans(changed or writes)),
            looked_after=kind is DifferenceKind.WROTE and all(_changed(read.b) is False for read in pair.reads),
        )

    def _read(self, pair: LaunchPair, reads: Sequence[TensorPair]) -> FirstDifference:
        launch = pair.launch
        origin = self._flow.writer(launch, reads[0].b.argument)
        is_own = origin.launch is not None and origin.launch.key.call == launch.key.call
        begin = launch.begin_ns
        if is_own and origin.launch is not None and origin.launch.end_ns is not None:
            begin = origin.launch.end_ns
        return FirstDifference(
            kind=DifferenceKind.READ if is_own else DifferenceKind.GIVEN,
            launch=launch,
            names=_names(reads),
            writer=origin.launch if is_own else None,
            beside=self._beside(launch, begin, _spans(reads)),
        )

    def _beside(self, launch: Launch, begin: int, spans: Sequence[ByteRange]) -> tuple[Beside, ...]:
        """The launches of other threads between a time and the end of a launch; those that write there first."""
        end = launch.begin_ns if launch.end_ns is None else launch.end_ns
        others = overlapping(self._together.launches, launch.thread, begin, end)
        found = [Beside(other, _shared(other, spans)) for other in others]
        return tuple(sorted(found, key=lambda one: not one.shares))


def overlapping(launches: Iterable[Launch], thread: int, begin: int, end: int) -> list[Launch]:
    """The launches of other threads that ran at some time between two times, in nanoseconds of the run."""
    return [
        other
        for other in launches
        if other.thread != thread and other.begin_ns <= end and (other.end_ns is None or other.end_ns >= begin)
    ]


def beside(run: RunDir, launch: Launch) -> list[Launch]:
    """The launches of other threads that ran while one ran that may not have ended; those that had not ended first."""
    end = max(one.begin_ns for one in run.launches) if launch.end_ns is None else launch.end_ns
    return sorted(
        overlapping(run.launches, launch.thread, launch.begin_ns, end), key=lambda one: one.end_ns is not None
    )


def _changed(read: RecordedTensor) -> bool | None:
    """True if a tensor that a launch only reads was another one after it; None if it writes it, or that is unknown."""
    before = RecordedTensor(read.launch, read.argument, Phase.BEFORE).hash
    after = RecordedTensor(read.launch, read.argument, Phase.AFTER).hash
    return None if read.argument.written or before is None or after is None else before != after


def _shared(launch: Launch, spans: Sequence[ByteRange]) -> str:
    for argument in launch.args:
        written = span_of(argument) if argument.written else None
        if written is not None and any(written.overlaps(span) for span in spans):
            return argument.name
    return ""


def _names(pairs: Sequence[TensorPair]) -> tuple[str, ...]:
    return tuple(pair.b.argument.name for pair in pairs)


def _spans(pairs: Sequence[TensorPair]) -> list[ByteRange]:
    return [span for pair in pairs if (span := span_of(pair.b.argument)) is not None]


_RANDOM, _ATOMICS, _UNWRITTEN = "random numbers", "atomics", "memory that nothing has written"
_ATEN = "aten."
_DRAWING = re.compile(r"inductor_rand\w*")  # names of nodes that Inductor makes of operators that draw numbers
_PARALLEL = "#pragma omp parallel"
ATOMIC = ("atomic_add", "tl.atomic_", "atomicAdd")


@dataclass(frozen=True)
class UnrepeatableLaunch:
    """A launch that read the same inputs as in the first call, and wrote different results.

    Attributes:
        launch: in the first call.
        calls: the later calls in which it did so.
        tensors: those that differ, in the first of these calls.
        causes: what may explain it, from its operator, its source and the memory that it is given.
    """

    launch: Launch
    calls: tuple[int, ...]
    tensors: tuple[TensorDifference, ...]
    causes: tuple[str, ...]

    @property
    def is_explained(self) -> bool:
        """True if it draws random numbers or adds atomically, and has no memory that nothing has written."""
        may_read_anything = any(cause.startswith(_UNWRITTEN) for cause in self.causes)
        return not may_read_anything and any(cause.startswith((_RANDOM, _ATOMICS)) for cause in self.causes)


@dataclass(frozen=True, kw_only=True)
class RepeatedCalls:
    """The calls of a run against the first of them.

    Attributes:
        calls: how many there are.
        launches: those that are not repeatable, in the order of the first call.
        changed_state: launches that read an input or a state of the model that an earlier call has changed.
        following: other launches that read different inputs, and so wrote different results.
        not_recorded: launches of which it is not known.
    """

    run: RunDir
    calls: int
    launches: tuple[UnrepeatableLaunch, ...]
    changed_state: int
    following: int
    not_recorded: int


def compare_calls(run: RunDir) -> RepeatedCalls:
    """Compares each call of the model with the first one.

    Raises:
        RunDirError: the run has one call only, or recorded no values.
    """
    by_call = launches_by_call(run)
    calls = [launches for (kind, _), launches in sorted(by_call.items()) if kind is CallKind.MODEL]
    if len(calls) < 2:
        raise RunDirError(
            f"run {run.path.name} has no second call",
            hint=f"aoti-debug run {suggested_commands.package(run)} --repeat 5",
        )
    require_values(run)
    tensors = RecordedTensors(run)
    pairs = [pair for later in calls[1:] for pair in pair_launches(calls[0], later, tensors, tensors)]
    outcomes = [pair.outcome for pair in pairs]
    consequences = [pair for pair in pairs if pair.outcome is PairRelation.CONSEQUENCE]
    changed = {pair.counterparts[0].key for pair in consequences if _reads_changed_state(pair, run)}
    return RepeatedCalls(
        run=run,
        calls=len(calls),
        launches=tuple(_unrepeatable(run, calls[0], pairs)),
        changed_state=len(changed),
        following=len({pair.counterparts[0].key for pair in consequences} - changed),
        not_recorded=sum(outcome in (PairRelation.NOT_RECORDED, PairRelation.INPUTS_UNKNOWN) for outcome in outcomes),
    )


def _reads_changed_state(pair: LaunchPair, run: RunDir) -> bool:
    differing = (read.b.argument for read in pair.reads if read.equal is False)
    return any(input_or_weight_name(run.manifest, argument) for argument in differing)


def _unrepeatable(run: RunDir, first: Sequence[Launch], pairs: Sequence[LaunchPair]) -> Iterator[UnrepeatableLaunch]:
    parted: dict[LaunchKey, list[LaunchPair]] = defaultdict(list)
    for pair in pairs:
        if pair.outcome is PairRelation.PARTS:
            parted[pair.counterparts[0].key].append(pair)
    kernels = {kernel.name: kernel for kernel in run.manifest.kernels}
    for launch in first:
        if own := parted.get(launch.key):
            tensors = tuple(difference_of(write, run, run) for write in own[0].writes if write.equal is False)
            calls = tuple(pair.launch.key.call for pair in own)
            yield UnrepeatableLaunch(launch, calls, tensors, tuple(_causes(run, launch, kernels)))


def _causes(run: RunDir, launch: Launch, kernels: dict[str, Kernel]) -> Iterator[str]:
    if draws_numbers(launch.site, run):
        yield f"{_RANDOM}, which it draws"
    if traits_of(launch.site.kind).user_operator and not launch.site.op.startswith(_ATEN):
        yield "a generator or a state of its own: it is a custom operator, which need not declare them"
        yield "a race, or a read of memory that nothing has written, in that operator"
    tensors = RecordedTensors(run)
    names = launch.site.launches or (launch.site.kernel,)
    sources = [kernels[name].source for name in names if name in kernels]
    fresh = [
        argument.name
        for argument in launch.args
        if (argument.spec.fresh and not tensors.is_partial_result(launch, argument))
        or (adds_to_unwritten(argument.spec, sources) and not _is_written_before(run, launch, argument.spec))
    ]
    if fresh:
        yield f"{_UNWRITTEN}: it may read {wording.join_truncated(fresh, 4)} before it writes there"
    if any(word in source for source in sources for word in ATOMIC):
        yield f"{_ATOMICS}: the order of its additions may change"
    elif any(_PARALLEL in source for source in sources):
        yield "threads: they compute parts of it, and may race"


def draws_numbers(site: Site, run: RunDir) -> bool:
    """True if a launch draws random numbers; attention without dropout does not, where the package has the graph."""
    names = site.provenance.post_grad_nodes
    if any(_DRAWING.fullmatch(name) for name in names):
        return True
    operator = run.manifest.operator(site.op) if site.op else None
    if operator is None or not operator.random:
        return False
    try:
        graphs = reference_of(run)[0].graphs
    except AotiDebugError:
        return True
    nodes = [node for graph in graphs for node in graph.nodes if node.name in names and node.target]
    return not nodes or any(node.target == LOOKUP or draws(node) for node in nodes)


def adds_to_unwritten(argument: Arg, sources: Sequence[str]) -> bool:
    """True if kernels add to the memory of a result, and store nothing there."""
    if argument.role is not Role.OUT or not argument.param:
        return False
    name = re.escape(argument.param)
    adds = re.compile(rf"atomic_add\w*(?:<[^>]*>)?\(&?{name}\b|\b{name}\[[^;]*\] \+= ")
    stores = re.compile(rf"store\({name}\b|\b{name}\[[^;=]*\] = ")
    return any(adds.search(source) for source in sources) and not any(stores.search(source) for source in sources)


def _is_written_before(run: RunDir, launch: Launch, argument: Arg) -> bool:
    """True if an earlier launch of the call writes a buffer, or it is the model's."""
    base = argument.base or argument.name
    own = {constant.name for constant in run.manifest.constants} | set(run.manifest.inputs)
    earlier = (
        other for other in run.launches if other.key.call == launch.key.call and other.begin_ns < launch.begin_ns
    )
    return base in own or any(
        given.written and (given.base or given.name) == base for other in earlier for given in other.site.args
    )
