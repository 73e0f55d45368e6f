"""Compares the calls of one run with the first of them: launches whose results change although their inputs do not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from aoti_debug.base.abi import CallKind
from aoti_debug.base.errors import RunDirError
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.diff.diff_runs import difference_of, require_values
from aoti_debug.compare.diff.difference import TensorDifference
from aoti_debug.compare.diff.pair_launches import launches_by_call, pair_launches
from aoti_debug.compare.diff.pairs import LaunchPair, PairRelation, RecordedTensors
from aoti_debug.package.manifest import Kernel
from aoti_debug.runs.diagnosis import suggested_commands
from aoti_debug.runs.diagnosis.dataflow import input_or_weight_name
from aoti_debug.runs.rundir.formats.journal_records import LaunchKey
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Launch

_ATOMIC = ("atomic_add", "tl.atomic_", "atomicAdd")


@dataclass(frozen=True)
class UnrepeatableLaunch:
    """A launch that read the same inputs as in the first call, and wrote different results.

    Attributes:
        launch: in the first call.
        calls: the later calls in which it did so.
        tensors: those that differ, in the first of these calls.
        causes: sentences that may explain it, from its source and its operator.
    """

    launch: Launch
    calls: tuple[int, ...]
    tensors: tuple[TensorDifference, ...]
    causes: tuple[str, ...]


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
    operator = run.manifest.operator(launch.site.op) if launch.site.op else None
    if operator is not None and operator.random:
        yield "it draws random numbers"
    names = launch.site.launches or (launch.site.kernel,)
    sources = [kernels[name].source for name in names if name in kernels]
    if any(word in source for source in sources for word in _ATOMIC):
        yield "it adds atomically: the order of its additions changes"
