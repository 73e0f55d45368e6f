"""Compares two recorded runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind
from aoti_debug.base.errors import ArtifactError, RunDirError, UsageError
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.diff import pairs
from aoti_debug.compare.diff.difference import (
    Diff,
    InputDifference,
    LaunchDifference,
    TensorDifference,
    differing_settings,
)
from aoti_debug.compare.diff.element_difference import element_difference
from aoti_debug.compare.diff.pair_launches import pair_by_launch, pair_by_value
from aoti_debug.package import recording_settings
from aoti_debug.package.argument_values import Layout
from aoti_debug.package.program_graphs import MODEL, Node, NodeKind, Reference
from aoti_debug.runs.diagnosis.dataflow import Dataflow, input_or_weight_name
from aoti_debug.runs.rundir.formats.stored_tensor import open_tensor
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind


def replay_notes(a: RunDir, b: RunDir) -> Iterator[str]:
    """Yields a sentence for each captured call whose tensors are not all of the same replay, in one run or in both."""
    first, second = _replays(a), _replays(b)
    for side, replays in (("a", first), ("b", second)):
        for call, measured in replays.items():
            if len(measured) > 1:
                yield f"run {side}: the tensors of call {call} are of replays {_listed(measured)} of its CUDA graph"
    for call in sorted(first.keys() & second.keys()):
        if max(first[call]) != max(second[call]):
            yield (
                f"the tensors of call {call} are of replay {max(first[call])} of its CUDA graph in run a, "
                f"of replay {max(second[call])} in run b"
            )


def _replays(run: RunDir) -> dict[int, set[int]]:
    """The replays that have measured the tensors of each captured call."""
    captured = {call.call for call in run.timeline.calls if call.replays is not None and call.kind is CallKind.MODEL}
    found: dict[int, set[int]] = defaultdict(set)
    for launch in run.launches:
        if launch.key.kind is CallKind.MODEL and launch.key.call in captured and launch.replays:
            found[launch.key.call] |= launch.replays
    return dict(found)


def _listed(replays: set[int]) -> str:
    return wording.comma_separated(map(str, sorted(replays)))


_Given = tuple[str, tuple[int, ...], tuple[int, ...], int]
"""A model input or a weight, or a view of one: its name, shape, strides and offset."""

_GRAPHS = "a package that aoti-debug has built from an exported program holds its graph: compare two of those"
_PROGRAM = "compare two lowerings of one program, called with the same inputs"


def diff_runs(a: RunDir, b: RunDir) -> Diff:
    """Compares each launch of `b` with its counterpart in `a`.

    Raises:
        RunDirError: a run recorded no values, or a tensor of it is damaged.
        UsageError: the runs were called with inputs of other sizes, or no launch has a counterpart.
    """
    for run in (a, b):
        require_values(run)
    pairing, notes = pair_runs(a, b)
    if not pairing.pairs and notes:
        raise UsageError(f"no launch of one run has kernel and arguments of one of the other; {notes[0]}", hint=_GRAPHS)
    if not pairing.pairs:
        raise UsageError("no launch of one run computes what a launch of the other does", hint=_PROGRAM)
    read_first = list(_read_first(pairing, b))
    _require_equal_sizes(read_first)
    outcomes = Counter(pair.outcome for pair in pairing.pairs)
    return Diff(
        a=a,
        b=b,
        by=pairing.by,
        pairs=pairing.pairs,
        same=outcomes[pairs.PairRelation.SAME],
        not_recorded=outcomes[pairs.PairRelation.NOT_RECORDED],
        settings=differing_settings(a, b),
        inputs=tuple(_inputs([*read_first, *_read_by_others(read_first, a, b)], a, b)),
        launches=tuple(_launches(pairing, a, b)),
        only_a=pairing.only_a,
        only_b=pairing.only_b,
        unpaired_outputs=tuple(_unpaired_outputs(pairing, b)),
        unfinished=tuple(
            f"run {side} did not end well: {run.state.value}" for side, run in (("a", a), ("b", b)) if _failed(run)
        ),
        notes=(*notes, *replay_notes(a, b)),
    )


def _failed(run: RunDir) -> bool:
    return run.state is not ExitKind.CLEAN


def _unpaired_outputs(pairing: pairs.Pairing, b: RunDir) -> Iterator[str]:
    """The outputs of the model, in the second run, that have no counterpart, where launches are paired by value."""
    if pairing.by is pairs.PairedBy.LAUNCH:
        return
    flow, tensors = Dataflow(b), pairs.RecordedTensors(b)
    alone = {launch.key for launch in pairing.only_b}
    unpaired = {(pair.launch.key, name) for pair in pairing.pairs for name in pair.unpaired_writes}
    for launch in b.launches:
        for tensor in tensors.writes(launch):
            is_unpaired = launch.key in alone or (launch.key, tensor.argument.name) in unpaired
            if is_unpaired and flow.is_output(tensor.argument):
                yield f"{tensor.argument.name} of {launch.id}"


def require_values(run: RunDir) -> None:
    """Raises RunDirError if no hash of what a launch wrote was recorded."""
    tensors = pairs.RecordedTensors(run)
    if any(tensor.is_known for launch in run.launches for tensor in tensors.writes(launch)):
        return
    what = f"at level {recording_settings.written_level(run.level)}" if run.launches else "no launch"
    raise RunDirError(
        f"run {run.path.name} recorded no values: {what}",
        hint="aoti-debug run --level hash records the hashes of tensors, --level 1 the tensors",
    )


def pair_runs(a: RunDir, b: RunDir) -> tuple[pairs.Pairing, tuple[str, ...]]:
    """The launches, paired by the values of the program if the calls differ and both packages hold their graphs.

    Returns:
        The pairs, and why they are not paired so.

    Raises:
        UsageError: the runs are of programs that take other inputs.
    """
    if _calls(a) == _calls(b):
        return pair_by_launch(a, b), ()
    try:
        first, second = reference_of(a)[0], reference_of(b)[0]
    except (ArtifactError, RunDirError) as error:
        return pair_by_launch(a, b), (f"launches are not paired by value: {wording.first_line(str(error))}",)
    _require_same_inputs(first, second)
    return pair_by_value(a, first, b, second), ()


def _require_same_inputs(a: Reference, b: Reference) -> None:
    """Raises UsageError if the models do not take the same inputs."""
    first, second = _input_types(a), _input_types(b)
    if len(first) != len(second):
        counts = [wording.pluralize(len(types), "input") for types in (first, second)]
        raise UsageError(
            f"the models are different programs: one has {counts[0]}, the other {counts[1]}", hint=_PROGRAM
        )
    for position, (x, y) in enumerate(zip(first, second, strict=True)):
        if x != y:
            raise UsageError(f"the models are different programs: their input {position} is {x} and {y}", hint=_PROGRAM)


def _input_types(reference: Reference) -> tuple[str, ...]:
    """The type of each input: "float32[4, ?]" if its second size is not static; "" for one that is no tensor."""
    graph = reference.graph("", MODEL)
    nodes = () if graph is None else graph.nodes
    return tuple(_type(node) for node in nodes if node.kind is NodeKind.INPUT)


def _type(node: Node) -> str:
    type_ = node.types[0] if len(node.types) == 1 else None
    if type_ is None:
        return ""
    return f"{type_.dtype}[{', '.join(size if size.isdigit() else '?' for size in type_.shape)}]"


def _calls(run: RunDir) -> list[tuple[str, tuple[str, ...]]]:
    """The kernels that the generated code calls, with the names of their arguments."""
    return [(site.kernel, tuple(argument.name for argument in site.args)) for site in run.manifest.sites]


def _require_equal_sizes(read_first: Sequence[tuple[str, pairs.TensorPair]]) -> None:
    """Raises UsageError if a model input has another size: everything after it would differ."""
    for name, pair in read_first:
        first, second = pair.a.argument.layout, pair.b.argument.layout
        if first is not None and second is not None and first.numel != second.numel:
            raise UsageError(
                f"the runs were called with inputs of other sizes: {name} is {_shape(first)} and {_shape(second)}",
                hint="run both models with the same inputs: --inputs FILE",
            )


def _shape(layout: Layout) -> str:
    return f"[{', '.join(map(str, layout.shape))}]"


def _read_first(pairing: pairs.Pairing, b: RunDir) -> Iterator[tuple[str, pairs.TensorPair]]:
    """Yields the model inputs and weights as they were before any launch wrote them, each once, with their names."""
    met: set[str] = set()
    names: dict[tuple[str, str], str] = {}

    def name_of(argument: Argument) -> str:
        key = argument.spec.base, argument.name
        if key not in names:
            names[key] = input_or_weight_name(b.manifest, argument)
        return names[key]

    for pair in pairing.pairs:
        for read in pair.reads:
            name = name_of(read.b.argument)
            if name and name not in met:
                met.add(name)
                yield name, read
        met |= {name_of(written.b.argument) for written in pair.writes}


def _read_by_others(
    read_first: Sequence[tuple[str, pairs.TensorPair]], a: RunDir, b: RunDir
) -> Iterator[tuple[str, pairs.TensorPair]]:
    """Yields model inputs and weights that only launches without a counterpart read, each once, with their names."""
    met = {name for name, _ in read_first}
    first = _given(a)
    for key, tensor in _given(b).items():
        name = key[0]
        if name not in met and key in first:
            met.add(name)
            yield name, pairs.TensorPair(first[key], tensor)


def _given(run: RunDir) -> dict[_Given, pairs.RecordedTensor]:
    """The model inputs and weights as they were first read, before anything overwrote them, by name and layout."""
    tensors = pairs.RecordedTensors(run)
    found: dict[_Given, pairs.RecordedTensor] = {}
    overwritten: set[str] = set()
    for launch in run.launches:
        for tensor in tensors.reads(launch):
            name, layout = input_or_weight_name(run.manifest, tensor.argument), tensor.argument.layout
            if name and name not in overwritten and layout is not None:
                found.setdefault((name, layout.shape, layout.strides, layout.storage_offset), tensor)
        overwritten |= {input_or_weight_name(run.manifest, tensor.argument) for tensor in tensors.writes(launch)}
    return found


def differing_inputs(pairing: pairs.Pairing, b: RunDir) -> tuple[str, ...]:
    """The names of model inputs and weights that are not the same in both runs before any launch wrote them."""
    return tuple(name for name, pair in _read_first(pairing, b) if pair.equal is False)


def _inputs(read_first: Sequence[tuple[str, pairs.TensorPair]], a: RunDir, b: RunDir) -> Iterator[InputDifference]:
    for name, pair in read_first:
        if pair.equal is False:
            yield InputDifference(name, difference_of(pair, a, b))


def _launches(pairing: pairs.Pairing, a: RunDir, b: RunDir) -> Iterator[LaunchDifference]:
    for pair in pairing.pairs:
        outcome = pair.outcome
        if outcome not in (pairs.PairRelation.SAME, pairs.PairRelation.NOT_RECORDED):
            tensors = tuple(difference_of(written, a, b) for written in pair.writes if written.equal is False)
            yield LaunchDifference(pair, outcome, tensors, tuple(_notes(pair, b)))


def _notes(pair: pairs.LaunchPair, b: RunDir) -> Iterator[str]:
    if pair.numbers:
        yield f"other numbers were passed to it: {wording.join_truncated(pair.numbers, 4)}"
    schema = b.manifest.operator(pair.launch.site.op) if pair.launch.site.op else None
    if schema is not None and schema.random:
        yield "it draws random numbers"
    if pair.outcome is pairs.PairRelation.INPUTS_UNKNOWN and pair.unpaired_reads:
        yield f"without a counterpart: {wording.join_truncated(pair.unpaired_reads, 4)}"


def difference_of(pair: pairs.TensorPair, a: RunDir, b: RunDir) -> TensorDifference:
    """The elements in which two tensors differ, if both runs saved them.

    Raises:
        RunDirError: one of them is damaged.
    """
    first, second = pair.a.file, pair.b.file
    if first is None or second is None:
        names = dict.fromkeys(run.path.name for run, file in ((a, first), (b, second)) if file is None)
        return TensorDifference(pair, None, f"level 1 saves it; not saved by {wording.comma_separated(names)}")
    stored = open_tensor(a.tensor_path(first)), open_tensor(b.tensor_path(second))
    if (stored[0].dtype, stored[0].numel) != (stored[1].dtype, stored[1].numel):
        described = [f"{tensor.dtype} of {wording.pluralize(tensor.numel, 'element')}" for tensor in stored]
        return TensorDifference(pair, None, " and ".join(described))
    return TensorDifference(pair, element_difference(*stored))
