"""Outputs that hold NaN or infinities: where these came from, as far as the records show it, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from aoti_debug.base import wording
from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.diagnosis.dataflow import Dataflow, input_kind, kind_of_input, output_name
from aoti_debug.runs.diagnosis.findings import Place, place_of
from aoti_debug.runs.diagnosis.special_values import Measure, Occurrence, Special, count
from aoti_debug.runs.diagnosis.trace_roots import Root, RootKind, RootSearch
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.launch import Argument, Launch

_TRACED = 8  # infinities that are traced back
_NAMED = 3  # operands in a sentence


@dataclass(frozen=True)
class NonfiniteWords:
    """The sentences about outputs that are not finite: members of `OutputValues`."""

    what: str = ""
    where: Place | None = None
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class NonfiniteOutputs:
    """The sentences about outputs that are not finite."""

    def __init__(self, flow: Dataflow, measure: Measure) -> None:
        self._run = flow.run
        self._roots = RootSearch(flow, measure)
        self._measure = measure

    def words(self, outputs: Sequence[tuple[Launch, Argument]]) -> NonfiniteWords:
        """The sentences about such values in outputs: NaN comes first, infinities may be meant.

        Args:
            outputs: the last writes of those that are not finite, the first call first.
        """
        special = [Occurrence(x, a, kind) for x, a in outputs for kind in Special if count(self._after(a), kind)]
        nan = [occurrence for occurrence in special if occurrence.special is Special.NAN]
        infinite = [occurrence for occurrence in special if occurrence.special is not Special.NAN][:_TRACED]
        notes: list[str] = []
        bad = [(o, self._roots.trace([o])) for o in nan[:1]]
        for occurrence in infinite:
            roots = self._roots.trace([occurrence])
            if meant := self._meant(roots):
                notes.append(f"{self._held(occurrence)}: {meant}")
            else:
                bad.append((occurrence, roots))
        if not bad:
            return NonfiniteWords(notes=tuple(dict.fromkeys(notes)))
        first, roots = bad[0]
        where, evidence = self._origin(first, roots)
        names = {occurrence.argument.name for occurrence in (*nan, *(o for o, _ in bad))} - {first.argument.name}
        more = f"; {wording.pluralize(len(names), 'more output')} with such values" if names else ""
        return NonfiniteWords(
            what=f"{self._held(first)}{more}",
            where=where,
            evidence=(*evidence, *self._position(first.launch)),
            notes=tuple(dict.fromkeys(notes)),
        )

    def _after(self, argument: Argument) -> Statistics | None:
        return self._measure(argument, Phase.AFTER)

    def _held(self, occurrence: Occurrence) -> str:
        """ "80 of 80 elements of output 0 (buf6) are NaN"."""
        statistics = self._after(occurrence.argument)
        number, elements = count(statistics, occurrence.special), statistics.numel if statistics else 0
        name = output_name(self._run.manifest, occurrence.argument)
        verb = "is" if number == 1 else "are"
        return f"{number} of {wording.pluralize(elements, 'element')} of {name} {verb} {occurrence.special.value}"

    def _meant(self, roots: Sequence[Root]) -> str:
        """Why the infinities of these roots may be meant; "" if one may not be."""
        meant = [root for root in roots if root.kind is RootKind.INTENDED or self._roots.is_filled(root)]
        unintended = [root for root in self._roots.unintended(roots) if not self._roots.is_filled(root)]
        if not meant or any(root.kind is RootKind.EXTERNAL for root in unintended):
            return ""
        launch = meant[0].occurrence.launch
        if meant[0].kind is RootKind.INTENDED:
            return f"an infinity stands in the code or the call of {launch.id} {launch.kernel}"
        return f"they came in with {meant[0].input}, which looks like a mask"

    def _origin(self, occurrence: Occurrence, roots: Sequence[Root]) -> tuple[Place, Iterator[str]]:
        """Where the values came from; the launch that wrote the output if the records do not show it."""
        root = next((root for root in roots if root.kind is not RootKind.UNEXPLAINED), None)
        if root is None:
            return self._place(occurrence), iter(())
        if root.kind is RootKind.EXTERNAL:
            place = Place(input=root.input, input_kind=input_kind(self._run.manifest, root.input))
            return place, self._came_in(root)
        return self._place(root.occurrence), self._made(root)

    def _place(self, occurrence: Occurrence) -> Place:
        return place_of(occurrence.launch, occurrence.argument.name)

    def _came_in(self, root: Root) -> Iterator[str]:
        launch, argument = root.occurrence.launch, root.occurrence.argument
        number = count(self._measure(argument, Phase.BEFORE), root.occurrence.special)
        kind = kind_of_input(self._run.manifest, root.input)
        yield (
            f"{root.input}, {kind} of the model, holds {number} {root.occurrence.special.value} when "
            f"{launch.id} {launch.kernel} reads it"
        )

    def _made(self, root: Root) -> Iterator[str]:
        launch, argument = root.occurrence.launch, root.occurrence.argument
        number = count(self._after(argument), root.occurrence.special)
        operands = self._roots.operands(launch, argument)
        held = {
            self._roots.dataflow.content_name(launch, a): [
                f"{n} {kind.value}" for kind in Special if (n := count(self._measure(a, Phase.BEFORE), kind))
            ]
            for a in operands
        }
        special = [f"{', '.join(kinds)} in {name}" for name, kinds in held.items() if kinds]
        left = f"{launch.id} {launch.kernel} leaves {number} {root.occurrence.special.value} in {argument.name}"
        if special:
            yield f"{left}; it reads {wording.join_truncated(special, _NAMED)}"
        elif held:
            yield f"{left}; what it reads for that is finite: {wording.join_truncated(list(held), _NAMED)}"
        else:
            yield left

    def _position(self, launch: Launch) -> Iterator[str]:
        calls = sum(call.kind is CallKind.MODEL for call in self._run.timeline.calls)
        if calls > 1:
            yield f"this is the output of call {launch.key.call} of {calls}, counted from 0: the first with such values"
