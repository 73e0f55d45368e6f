"""Cases of non-finite values that do harm, and the places where they do: outputs, and integers computed from NaN."""

from __future__ import annotations

from aoti_debug.base import dtypes
from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.diagnosis.dataflow import output_name
from aoti_debug.runs.diagnosis.special_values import Occurrence, Special, count, statistics_after, statistics_of
from aoti_debug.runs.diagnosis.trace_roots import Root, RootSearch
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir


@dataclass(frozen=True)
class Sink:
    """A place where a non-finite value does harm.

    Attributes:
        occurrence: a model output, or the operand of an integer result, at the launch that reads it.
        harm: the predicate of a sentence about the value: "leaves the model as output 2 (buf9)".
        phase: whether the value is there before the launch or after it.
    """

    occurrence: Occurrence
    harm: str
    phase: Phase = Phase.AFTER


def count_at(run: RunDir, sink: Sink) -> int | None:
    """The number of a sink's values in a run of the same package; None if it did not get as far."""
    launch = run.find_launch(sink.occurrence.launch.id)
    argument = None if launch is None else launch.argument(sink.occurrence.argument.name)
    statistics = None if argument is None else statistics_of(argument, sink.phase)
    return None if statistics is None else count(statistics, sink.occurrence.special)


def outputs(run: RunDir, roots: RootSearch, special: Special) -> list[Sink]:
    """The model outputs that hold such values, and results of branches that no launch reads."""
    if not roots.values.written[special]:
        return []
    sinks = [
        Sink(Occurrence(launch, argument, special), f"leaves the model as {output_name(run.manifest, argument)}")
        for launch, argument in roots.dataflow.final_outputs()
        if count(statistics_after(argument), special)
    ]
    return sinks + _branch_results(run, roots, special)


def integers(roots: RootSearch) -> list[Sink]:
    """NaN that a launch computes integers from: argmax, a conversion, an index."""
    sinks = []
    for launch in roots.values.readers[Special.NAN]:
        for result in launch.args:
            if not result.written or not _is_integer(result):
                continue
            for operand in roots.operands_with(launch, result, Special.NAN):
                if roots.dataflow.is_output(result) or roots.dataflow.readers(launch, result):
                    harm = f"goes into the integer result {result.name} of {launch.id} {launch.kernel}"
                    sinks.append(Sink(Occurrence(launch, operand, Special.NAN), harm, Phase.BEFORE))
    return sinks


def _branch_results(run: RunDir, roots: RootSearch, special: Special) -> list[Sink]:
    """Results of a branch or a loop that become outputs of the model without another launch.

    They are those that no launch reads, if the model has an output that no launch mentions.
    """
    if not roots.values.written[special]:
        return []
    sites = (run.manifest.sites[id_] for id_ in run.launches.site_ids)
    mentioned = {name for site in sites for spec in site.args for name in (spec.name, spec.base)}
    if set(run.manifest.outputs) - {""} <= mentioned:
        return []
    return [
        Sink(occurrence, "leaves a branch or a loop of the model, and no launch reads it")
        for occurrence in roots.values.written[special]
        if occurrence.launch.site.subgraph and not roots.dataflow.readers(occurrence.launch, occurrence.argument)
    ]


def _is_integer(argument: Argument) -> bool:
    return argument.layout is not None and dtypes.is_integer(argument.layout.dtype)


@dataclass(frozen=True)
class NonfiniteCase:
    """A non-finite value that does harm, from its root to the sink.

    The statistics of launches show that there is a way from the root to the sink, not that the value went it.

    Attributes:
        root: where it came from.
        nan: where NaN arose from the root's infinity; else the root's own occurrence.
        sink: where it does harm.
        other_roots: further roots of such values.
        is_doubtful: infinities that are meant reach the sink, too: the root's may do no harm.
    """

    root: Root
    nan: Occurrence
    sink: Sink
    other_roots: tuple[Root, ...]
    is_doubtful: bool = False

    @property
    def path(self) -> tuple[Occurrence, ...]:
        """From the root to where NaN arose, both included."""
        return (self.root.occurrence,) if not self.becomes_nan else (*self.root.path, self.nan)

    @property
    def becomes_nan(self) -> bool:
        """True if the root's value is an infinity that NaN arose from elsewhere."""
        return self.nan.key != self.root.occurrence.key
