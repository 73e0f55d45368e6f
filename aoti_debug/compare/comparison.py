"""The result of a comparison: a row for each launch, and how much of the run was compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from aoti_debug import wording
from aoti_debug.compare.measurement import Advance, Inherited, Measurement, RegionResult, StateChange
from aoti_debug.compare.plan import Region
from aoti_debug.compare.regions import Regions
from aoti_debug.compare.verdicts import LaunchVerdict, verdict_on, verdict_on_output, worst_output
from aoti_debug.manifest import ModelLine
from aoti_debug.reference.program import USER_TRITON, NodeKind, Reference
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.run_json import ExitKind
from aoti_debug.rundir.timeline import Launch
from aoti_debug.wrapper.launch_traits import traits_of

BAD = (LaunchVerdict.WRONG, LaunchVerdict.DIFFERS_FROM_SOURCE)
PRIVATE = "no node holds what it writes; the launches that read it are compared with it"
SILENT = "it writes no tensor"


@dataclass(frozen=True)
class Suspect:
    """An operator that may have been computed wrongly.

    Attributes:
        node: "tanh_1".
        line: its model line; None if it is unknown.
        how: the way of computing it wrongly that explains the outputs, "with its operands swapped"; "" if none does.
    """

    node: str
    operator: str
    line: ModelLine | None
    how: str = ""


@dataclass(frozen=True)
class Row:
    """The comparison of one launch.

    Attributes:
        reason: why it is not comparable; "" if it is compared.
        outputs: the measurements of its outputs.
        inherited: the difference of each output from the whole program, by argument.
        launches: the launches that were compared together, the last of which it is.
        suspects: of a wrong launch, the operators that wrong outputs depend on (see `suspects`).
        notes: what limits the comparison.
        bytes: the size of its outputs.
        compared_bytes: of those that were compared, directly or through the launches that read them.
        same_code: it runs the code that the program runs in eager too (an operator, a user-defined Triton kernel): its
            comparison does not show what this code does wrong.
    """

    launch: Launch
    verdict: LaunchVerdict
    reason: str = ""
    outputs: tuple[Measurement, ...] = ()
    inherited: Mapping[str, float] | None = None
    launches: tuple[str, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int = 0
    compared_bytes: int = 0
    same_code: bool = False

    @property
    def worst(self) -> Measurement | None:
        """The output that the verdict is about; None if none was compared."""
        return worst_output(self.outputs)


@dataclass(frozen=True)
class Coverage:
    """The part of a run that was compared.

    Attributes:
        launches: those that write a tensor.
        compared: of those, the ones that were compared themselves.
        through_readers: those that were compared through the launches that read what they wrote.
        bytes, compared_bytes: of outputs.
        same_code_bytes: of compared_bytes, those of launches that run the same code as eager.
    """

    launches: int
    compared: int
    through_readers: int
    bytes: int
    compared_bytes: int
    same_code_bytes: int


@dataclass(frozen=True)
class Comparison:
    """The comparison of a run.

    Attributes:
        run: with the tensors that were compared.
        program_failure: why no output is compared with the whole program; "" if they are.
        repro: the folder that replays the first wrong launch; "" without one.
        states_failure: why the states are not compared with those of the exported program; "" if they are, or if that
            is not known.
        states: the changes of what the program overwrites: buffers, weights, inputs; in each call.
        peak_bytes: the largest resident size of the evaluating process.
        directory: of the comparison; "" if it has none of its own.
    """

    run: RunDir
    rows: tuple[Row, ...]
    program_failure: str = ""
    repro: str = ""
    states: tuple[StateChange, ...] = ()
    peak_bytes: int = 0
    directory: str = ""
    states_failure: str = ""

    @property
    def wrong_states(self) -> tuple[StateChange, ...]:
        """The changes that are not what the program says."""
        return tuple(state for state in self.states if state.advance is not Advance.RIGHT)

    @property
    def is_clean(self) -> bool:
        """True if neither a launch nor a state is wrong, and the run ended well."""
        return self.first_wrong is None and not self.wrong_states and not self.unfinished

    @property
    def first_wrong(self) -> Row | None:
        """The first launch that is wrong, or differs from its source; None if there is none."""
        return next((row for row in self.rows if row.verdict in BAD), None)

    @property
    def unfinished(self) -> str:
        """The reason why the run has no more launches: "it was killed by SIGKILL; …"; "" if it ended well."""
        run = self.run
        if run.state is ExitKind.CLEAN:
            return ""
        if run.state is ExitKind.RUNNING:
            return "it is still going on"
        reached = {launch.site.id for launch in run.launches}
        missing = sum(site.id not in reached for site in run.manifest.sites)
        why = wording.first_line(run.info.exit.detail) or f"it was {run.state.value}"
        return f"{why}; {missing} of {wording.count(len(run.manifest.sites), 'launch site')} were not reached"

    @property
    def coverage(self) -> Coverage:
        """The part of the run that was compared."""
        writing = [row for row in self.rows if row.reason != SILENT]
        return Coverage(
            launches=len(writing),
            compared=sum(row.verdict is not LaunchVerdict.NOT_COMPARABLE for row in writing),
            through_readers=sum(row.reason == PRIVATE and row.compared_bytes > 0 for row in writing),
            bytes=sum(row.bytes for row in writing),
            compared_bytes=sum(row.compared_bytes for row in writing),
            same_code_bytes=sum(row.compared_bytes for row in writing if row.same_code),
        )


def assemble(
    run: RunDir,
    reference: Reference,
    regions: Regions,
    results: Sequence[RegionResult],
    inherited: Sequence[Inherited],
) -> tuple[Row, ...]:
    """Joins the regions of a run with their measurements; a row for each launch, in order."""
    by_launch = {region.launch: region for region in regions.regions}
    result_of = {result.launch: result for result in results}
    reasons = {item.launch: item.reason for item in regions.uncovered}
    reasons |= dict.fromkeys(regions.inside, PRIVATE) | dict.fromkeys(regions.silent, SILENT)
    differences: dict[str, dict[str, float]] = {}
    for item in inherited:
        differences.setdefault(item.launch, {})[item.argument] = item.relative
    compared = {r.launch for r in results if r.outputs}
    covered = {id_ for region in regions.regions if region.launch in compared for id_ in region.launches}
    members = {id_ for region in regions.regions for id_ in region.launches[:-1]}  # of a later launch's region
    rows = []
    for launch in run.launches:
        region, result = by_launch.get(launch.id), result_of.get(launch.id)
        arguments = [write.argument for write in regions.values.writes.get(launch.key, ())]
        sizes = {a.name: a.layout.bytes for a in arguments if a.layout is not None}
        if region is None or result is None:
            private = sum(sizes.values()) if launch.id in covered and launch.id in regions.inside else 0
            reason = reasons.get(launch.id, "it was not selected")
            rows.append(
                Row(
                    launch,
                    LaunchVerdict.NOT_COMPARABLE,
                    reason,
                    bytes=sum(sizes.values()),
                    compared_bytes=private,
                    same_code=_runs_same_code(launch),
                )
            )
            continue
        names = {output.argument for output in result.outputs}
        if launch.id in members:
            names |= sizes.keys() - {output.recorded.argument for output in region.outputs}
        rows.append(
            Row(
                launch,
                verdict_on(result.outputs),
                result.failure,
                result.outputs,
                differences.get(launch.id),
                region.launches,
                suspects(reference, region, result) if verdict_on(result.outputs) is LaunchVerdict.WRONG else (),
                (*region.notes, *result.notes),
                sum(sizes.values()),
                sum(size for name, size in sizes.items() if name in names),
                _runs_same_code(launch) or _has_user_kernel(reference, region),
            )
        )
    return tuple(rows)


def _runs_same_code(launch: Launch) -> bool:
    """True for a launch that is no generated kernel: it calls an operator, as eager does."""
    return not traits_of(launch.site.kind).compiled_for_layouts


def _has_user_kernel(reference: Reference, region: Region) -> bool:
    graph = reference.graph(region.graph, region.function)
    return graph is not None and any(graph.by_name[name].target.startswith(USER_TRITON) for name in region.nodes)


def suspects(reference: Reference, region: Region, result: RegionResult) -> tuple[Suspect, ...]:
    """The operators of a region that its wrong outputs depend on.

    Those that explain the outputs, when they are computed wrongly, come first. Of the others, those of the first wrong
    output come first, the last ones before the others; those that right outputs depend on as well come last. They are
    not innocent: a kernel may compute an operator several times, or only one of its results wrongly.
    """
    graph = reference.graph(region.graph, region.function)
    if graph is None:
        return ()
    inside = set(region.nodes)
    wrong = {o.argument for o in result.outputs if verdict_on_output(o) is LaunchVerdict.WRONG}
    right = {o.argument for o in result.outputs} - wrong

    def ancestors(arguments: set[str]) -> set[str]:
        pending = [
            item.value.after or item.value.node for item in region.outputs if item.recorded.argument in arguments
        ]
        found: set[str] = set()
        while pending:
            name = pending.pop()
            if name in inside and name not in found:
                found.add(name)
                pending += graph.by_name[name].inputs
        return found

    blamed, innocent = ancestors(wrong), ancestors(right)
    other_results = [n for n in blamed - innocent if graph.by_name[n].target == "_operator.getitem"]
    innocent -= {name for result in other_results for name in graph.by_name[result].inputs}
    held = {item.recorded.argument: item.value.after or item.value.node for item in region.outputs}
    explained = {item.node: item.how for item in result.explanations if item.node in blamed}
    ordered: dict[str, None] = dict.fromkeys(explained)
    for output in graph.sorted(held[argument] for argument in wrong):  # the later ones may only have inherited it
        same = {argument for argument in wrong if held[argument] == output}
        ordered |= dict.fromkeys(n for n in graph.sorted(ancestors(same))[::-1] if n not in innocent)
    ordered |= dict.fromkeys(graph.sorted(blamed)[::-1])
    nodes = [graph.by_name[name] for name in ordered]
    return tuple(
        Suspect(node.name, node.target, reference.line(node), explained.get(node.name, ""))
        for node in nodes
        if node.kind is NodeKind.CALL and node.target != "_operator.getitem"
    )
