"""The harm of non-finite values: outputs and integers that they reach; trials with finite numbers in their place.

Only such a run shows that a value is the origin of another one: that an input holds an infinity, and that a launch that
reads it makes NaN, may be a coincidence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from aoti_debug.base import dtypes, wording
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.frozen import dataclass
from aoti_debug.package.argument_values import unravel
from aoti_debug.runs.diagnosis.dataflow import output_name
from aoti_debug.runs.diagnosis.special_values import Occurrence, Special, count, statistics_after, statistics_of
from aoti_debug.runs.diagnosis.trace_roots import Root, RootKind, RootSearch
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.nonfinite import replaced_values
from aoti_debug.triage.nonfinite.replaced_values import HeldValues, Replacement, RunFiles

SECONDS = 30.0  # for telling which of several elements are needed


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


def harmed_outputs(run: RunDir, roots: RootSearch, special: Special) -> list[Sink]:
    """The model outputs that hold such values, and results of branches that no launch reads."""
    if not roots.values.written[special]:
        return []
    sinks = [
        Sink(Occurrence(launch, argument, special), f"leaves the model as {output_name(run.manifest, argument)}")
        for launch, argument in roots.dataflow.final_outputs()
        if count(statistics_after(argument), special)
    ]
    return sinks + _branch_results(run, roots, special)


def harmed_integers(roots: RootSearch) -> list[Sink]:
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


@dataclass(frozen=True)
class OriginTrial:
    """The result of a run with finite numbers in the place of a root's values.

    Attributes:
        is_origin: whether less harm is done without the values; None if no run could tell.
        sentences: what was observed; without an answer, the reason.
        element: the row-major index of the first element that is needed for the harm, in the tensor of the root; None
            if it is not known.
        special: what that element is.
    """

    is_origin: bool | None
    sentences: tuple[str, ...]
    element: int | None = None
    special: Special | None = None


@dataclass(frozen=True)
class TriedCase:
    """The first case that is not refuted.

    Attributes:
        trial: None where the root is a launch that produces the values where they do harm: nothing is to be tried.
        tried: what was tried until then, for people: "x".
    """

    case: NonfiniteCase
    trial: OriginTrial | None
    tried: tuple[str, ...]


class OriginTrials:
    """Tries the roots of cases of one run.

    Args:
        run: with statistics; it shows the cases.
        saved: a run that saved the tensors of the launches of their roots.
        again: runs the model with statistics, and with these files in the place of its own.
        folder: for the files.
        always: what is replaced in `run`, `saved` and every further run.

    Attributes:
        refuted: the cases of values that came in and that do no harm by themselves, and what was replaced to tell.
    """

    def __init__(
        self,
        run: RunDir,
        saved: RunDir,
        again: Callable[[RunFiles], RunDir],
        folder: Path,
        always: tuple[Replacement, ...] = (),
    ) -> None:
        self._run = run
        self._saved = saved
        self._again = again
        self._folder = folder
        self._always = always
        self._count = 0
        self.refuted: list[tuple[NonfiniteCase, Replacement]] = []

    def first_that_holds(self, cases: Sequence[NonfiniteCase]) -> TriedCase | None:
        """The first case that a run confirms, else the first one that none refutes; None if there is no such case.

        A case whose root is NaN that a launch has produced is not refuted: the launch has produced it.
        """
        open_cases: list[TriedCase] = []
        tried: list[str] = []
        for case in cases:
            is_produced = case.root.kind is RootKind.PRODUCED and not case.becomes_nan
            if is_produced and case.root.occurrence.key == case.sink.occurrence.key:
                open_cases.append(TriedCase(case, None, tuple(tried)))
                break
            trial = self.of(case)
            tried.append(case.root.input or f"{case.root.occurrence.argument.name} of {case.root.occurrence.launch.id}")
            if trial.is_origin:
                return TriedCase(case, trial, tuple(tried))
            if is_produced or (trial.is_origin is None and not case.is_doubtful):
                open_cases.append(TriedCase(case, None if is_produced else trial, tuple(tried)))
        return open_cases[0] if open_cases else None

    def first_by_itself(self) -> TriedCase | None:
        """The first refuted case whose root does the harm by itself: with finite numbers for all the others."""
        for case, own in self.refuted if len(self.refuted) > 1 else ():
            others = tuple(replacement for _, replacement in self.refuted if replacement is not own)
            run = self._again(self.files((*self._always, *others)))
            if count_at(run, case.sink):
                folder = self._folder / "by_itself"
                alone = OriginTrials(run, self._saved, self._again, folder, (*self._always, *others))
                trial = alone.of(case)
                names = wording.comma_separated([replacement.held.name for replacement in others])
                same = f"that is with finite numbers in {names}, too: {names} would do the same harm"
                return TriedCase(case, replace(trial, sentences=(*trial.sentences, same)), (own.held.name,))
        return None

    def files(self, replacements: Sequence[Replacement]) -> RunFiles:
        """Writes what a run is given."""
        self._count += 1
        return replaced_values.write(replacements, self._run, self._folder / str(self._count))

    def of(self, case: NonfiniteCase) -> OriginTrial:
        """Tries the root of a case."""
        try:
            held = replaced_values.held_values(case.root, self._run, self._saved)
            if held is None:
                return OriginTrial(None, ("its values cannot be replaced",))
            before = count_at(self._run, case.sink) or 0
            held, without = self._replaced(case, held, before)
            if without is None:
                return OriginTrial(None, ("a run without them did not get as far",))
            if without >= before:
                if case.root.kind is RootKind.EXTERNAL:
                    self.refuted.append((case, Replacement(held, held.elements)))
                return OriginTrial(is_origin=False, sentences=())
            first, last = self._needed(case, held, without)
        except (AotiDebugError, OSError, TypeError) as error:
            return OriginTrial(None, (wording.first_line(str(error)),))
        sentences = (f"{_elements_text(held, first, last)}: {_sentence(case, held, before, without)}",)
        if first is None:
            return OriginTrial(is_origin=True, sentences=sentences)
        element = held.elements[first]
        return OriginTrial(is_origin=True, sentences=sentences, element=element, special=held.special_of(element))

    def _replaced(self, case: NonfiniteCase, held: HeldValues, before: int) -> tuple[HeldValues, int | None]:
        """The values with the number that does least harm itself (log(0) is -Inf, too), and the harm that is left."""
        without = self._left(case, held, held.elements)
        if without is None or without < before or held.number == 1:
            return held, without
        other = replace(held, number=1.0)
        return other, self._left(case, other, held.elements)

    def _left(self, case: NonfiniteCase, held: HeldValues, replaced: tuple[int, ...]) -> int | None:
        """The number of values that still do harm with these elements replaced; None if the run does not tell."""
        files = self.files((*self._always, Replacement(held, replaced)))
        return count_at(self._again(files), case.sink)

    def _needed(self, case: NonfiniteCase, held: HeldValues, without: int) -> tuple[int | None, int | None]:
        """The values that are needed: the first and the last of a shortest range that alone does the harm."""
        elements, end = held.elements, time.monotonic() + SECONDS

        def harms(first: int, last: int) -> bool | None:
            if time.monotonic() > end:
                return None
            left = self._left(case, held, (*elements[:first], *elements[last + 1 :]))
            return None if left is None else left > without

        low, last = 0, len(elements) - 1
        while low < last:
            middle = (low + last) // 2
            if (harmful := harms(0, middle)) is None:
                return None, None
            low, last = (low, middle) if harmful else (middle + 1, last)
        first, high = 0, last
        while first < high:
            middle = (first + high + 1) // 2
            if (harmful := harms(middle, last)) is None:
                return None, None
            first, high = (middle, high) if harmful else (first, middle - 1)
        return first, last


def _sentence(case: NonfiniteCase, held: HeldValues, before: int, without: int) -> str:
    word, harm = case.sink.occurrence.special.value, case.sink.harm
    place = "its place" if len(held.elements) == 1 else f"the place of {values_text(held)}"
    given = f"with {held.number:.6g} in {place}"
    if without == 0:
        return f"{given}, no {word} {harm}"
    return f"{given}, {without} instead of {before} {word} {_plural(harm)}"


def values_text(held: HeldValues) -> str:
    """ "x[3, 7]", "the 3 infinities of x"."""
    if len(held.elements) == 1:
        return f"{held.name}{_at(held, held.elements[0])}"
    nouns = "NaN" if held.special_of(held.elements[0]) is Special.NAN else "infinities"
    return f"the {len(held.elements)} {nouns} of {held.name}"


def _plural(harm: str) -> str:
    """The predicate for several values: "leave the model as output 0"."""
    for one, several in (("leaves ", "leave "), ("goes ", "go "), ("is the result", "are the result")):
        if harm.startswith(one):
            return several + harm.removeprefix(one)
    return harm


def _elements_text(held: HeldValues, first: int | None, last: int | None) -> str:
    """The values of the elements that are needed for the harm."""
    count = len(held.elements)
    if first is None or last is None:
        return f"{held.name} holds {count} values that are {_kinds(held, 0, count - 1)}"
    at = f"{held.name}{_at(held, held.elements[first])}"
    if first == last:
        kind = _kinds(held, first, last)
        return f"{at} is {kind}" + ("" if count == 1 else f", one of {count} such values and enough by itself")
    end = f"{held.name}{_at(held, held.elements[last])}"
    return f"{wording.pluralize(last - first + 1, 'value')} from {at} to {end} are {_kinds(held, first, last)}"


def _kinds(held: HeldValues, first: int, last: int) -> str:
    """ "+Inf", "+Inf, -Inf"."""
    found = {held.special_of(element) for element in held.elements[first : last + 1]}
    return wording.comma_separated([special.value for special in Special if special in found])


def _at(held: HeldValues, element: int) -> str:
    return str(list(unravel(element, tuple(held.values.shape)))) if held.values.dim() else ""
