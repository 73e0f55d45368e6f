"""The parts of a compared build that are not eager's, bit for bit: launches from their own inputs, outputs, states."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.compare import OUTPUTS
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.comparison import RANDOM_NUMBERS, Comparison, Row
from aoti_debug.compare.protocol.measurement import EXPORTED_EAGER, Advance
from aoti_debug.compare.protocol.request import Region
from aoti_debug.compare.regions.regions import find_regions
from aoti_debug.package.program_graphs import Graph, NodeKind

_LOW = ("float16", "bfloat16", "float8_e4m3fn", "float8_e5m2")


@dataclass(frozen=True, kw_only=True)
class UnequalLaunch:
    """A launch that writes other bits than eager computes from the same inputs.

    Attributes:
        launch: "0.7", or "0.7 of inputs 2".
        line: its model line, "model.py:23"; "" if it is not known.
        values: the operators of the values that differ.
        operators: all operators of the launch, those of the values that differ first.
        is_low: numbers of less than 32 bits are among its values.
        same_code: it calls an operator, as eager does.
    """

    launch: str
    kernel: str
    line: str = ""
    values: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    is_low: bool = False
    same_code: bool = False


@dataclass(frozen=True, kw_only=True)
class Equality:
    """The parts of a build that are not eager's, bit for bit, on all sets of inputs.

    Attributes:
        launches: those that write other bits, from their own inputs.
        compared: the number of launches that were compared.
        outputs: the outputs and states that are not eager's, in words; () if all are.
        unknown: why it is not known whether they are; "" if it is.
        eager, returned: a hash of what eager, and what the build, returned.
        package: the instrumented package; "" if it was not kept.
    """

    launches: tuple[UnequalLaunch, ...] = ()
    compared: int = 0
    outputs: tuple[str, ...] = ()
    unknown: str = ""
    eager: str = ""
    returned: str = ""
    package: str = ""

    @property
    def is_equal(self) -> bool:
        """True if everything that the model returns and keeps is eager's, bit for bit."""
        return not self.outputs and not self.unknown


def equality_of(comparison: Comparison) -> Equality:
    """The parts of a compared build that are not eager's, bit for bit."""
    outputs = [
        f"output {e.index}: {_different(e.different, e.elements, e.fault)}"
        for e in comparison.outputs
        if e.fault or e.different
    ]
    for state in comparison.states:
        if state.difference or state.misplaced or (state.difference is None and state.advance is not Advance.RIGHT):
            outputs.append(f"state {state.name} after call {state.call}")
    unknown = ""
    if comparison.refusal is not None:
        unknown = f"eager raises {comparison.refusal.error}"
    elif comparison.unfinished:
        unknown = comparison.unfinished
    elif comparison.outputs_missing or comparison.states_failure:
        unknown = comparison.outputs_missing or comparison.states_failure
    elif not comparison.outputs and not comparison.states:
        unknown = "the model returns no tensor"
    elif any(row.reason.startswith(RANDOM_NUMBERS) for row in comparison.rows):
        unknown = "the program draws random numbers, others in each run"
    elif comparison.setting is not None and "random" in comparison.setting.failure:
        unknown = comparison.setting.failure
    folder = Path(comparison.directory)
    return Equality(
        launches=tuple(_unequal_launches(comparison)),
        compared=comparison.coverage.compared,
        outputs=tuple(outputs),
        unknown=unknown,
        eager=_hash(folder / EXPORTED_EAGER),
        returned=_hash(folder / OUTPUTS),
    )


def _different(different: int, elements: int, fault: str) -> str:
    return fault or f"{different} of {elements} elements differ"


def _unequal_launches(comparison: Comparison) -> Iterator[UnequalLaunch]:
    rows = [row for row in comparison.rows if any(not output.equals_eager for output in row.outputs)]
    if not rows:
        return
    reference, _ = reference_of(comparison.run)
    regions = {region.launch: region for region in find_regions(comparison.run, reference).regions}
    for row in rows:
        region = regions.get(row.launch.id)
        graph = None if region is None else reference.graph(region.graph, region.function)
        yield _unequal_launch(row, region, graph)


def _unequal_launch(row: Row, region: Region | None, graph: Graph | None) -> UnequalLaunch:
    values = tuple(dict.fromkeys(output.operator for output in row.outputs if not output.equals_eager))
    nodes = [] if region is None or graph is None else [graph.by_name[name] for name in region.nodes]
    calls = [node for node in nodes if node.kind is NodeKind.CALL]
    operators = dict.fromkeys((*values, *(node.target for node in calls if not node.is_member)))
    dtypes = {kind.dtype for node in nodes for kind in node.types if kind is not None}
    frames = row.launch.site.provenance.source[:1]
    return UnequalLaunch(
        launch=row.launch.id,
        kernel=row.launch.kernel,
        line=frames[0].place if frames else "",
        values=values,
        operators=tuple(operators),
        is_low=not dtypes.isdisjoint(_LOW),
        same_code=row.same_code,
    )


def _hash(folder: Path) -> str:
    digest = sha256()
    for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
        digest.update(name.encode() + (folder / name).read_bytes())
    return digest.hexdigest()


def of_first_set(hashes: str) -> str:
    """The hash of the first set of inputs."""
    return hashes.partition(" ")[0]


def numbered(found: Equality, number: int) -> Equality:
    """The parts, each with the number of the set of inputs with which it is not equal."""
    launches = tuple(replace(launch, launch=f"{launch.launch} of inputs {number}") for launch in found.launches)
    return replace(found, launches=launches, outputs=tuple(f"{text} (inputs {number})" for text in found.outputs))


def joined(sets: Sequence[Equality]) -> Equality:
    """The parts that are not equal with any of several sets of inputs."""
    return Equality(
        launches=tuple(launch for one in sets for launch in one.launches),
        compared=sets[0].compared,
        outputs=tuple(text for one in sets for text in one.outputs),
        unknown=next((one.unknown for one in sets if one.unknown), ""),
        eager=" ".join(one.eager for one in sets),
        returned=" ".join(one.returned for one in sets),
    )
