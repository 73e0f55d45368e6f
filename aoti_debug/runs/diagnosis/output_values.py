"""The values of the outputs of a model, as far as a run shows them: NaN, infinities, finite numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aoti_debug.base import wording
from aoti_debug.base.abi import Level, NoteCode, Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.runs.rundir.argument_statistics import UNINITIALISED, Measurer
from aoti_debug.runs.rundir.formats.statistics import Statistics
from aoti_debug.runs.rundir.launch import Argument, Launch
from aoti_debug.runs.rundir.run_directory import RunDir

if TYPE_CHECKING:
    from aoti_debug.runs.diagnosis.findings import Place
    from aoti_debug.runs.diagnosis.special_values import Measure

BUDGET = 256 << 20  # bytes of saved tensors that are read
_LOOKED_AT = 64  # outputs that are not finite
# What notes begin with after which launches are not recorded: runtime_shims/run/run.cpp and run_life.cpp.
_ENDS_RECORDING = ("recording stopped", "nothing is recorded", "the recording was ended")


@dataclass(frozen=True)
class OutputValues:
    """The outputs of all calls of a model.

    Attributes:
        is_measured: the run has values of a tensor.
        outputs: the number of outputs of one call.
        recorded: the number of those whose values were recorded in every call, and can be read.
        what: "80 of 80 elements of output 0 (buf6) are NaN"; "" if all that was recorded is finite or may be meant.
        where: the launch that made the first of these values, or the input that it came in with; None if `what` is "".
        evidence: sentences about where they come from, as far as the records show it.
        notes: sentences about infinities that stand in the code or the inputs of the model.
        lacks_files: files of their values are missing.
        has_gaps: launches are missing from the records, as the recording stopped or some cannot be read.
    """

    is_measured: bool
    outputs: int
    recorded: int
    what: str = ""
    where: Place | None = None
    evidence: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    lacks_files: bool = False
    has_gaps: bool = False

    @property
    def text(self) -> str:
        """ "outputs finite", "outputs not finite", "values of 1 of 2 outputs recorded, finite" and so on."""
        return f"{self._values}; launches are missing from the records" if self.has_gaps else self._values

    @property
    def _values(self) -> str:
        if self.what:
            return "outputs not finite"
        if not self.is_measured:
            return "values not recorded"
        if not self.outputs:
            return "no outputs"
        known = "read" if self.lacks_files else "recorded"
        if not self.recorded:
            return f"values of outputs not {known}"
        finite = "finite but for infinities of its code or inputs" if self.notes else "finite"
        if self.recorded == self.outputs:
            return f"outputs {finite}"
        return f"values of {self.recorded} of {wording.pluralize(self.outputs, 'output')} {known}, {finite}"


def output_values(run: RunDir) -> OutputValues:
    """The outputs of the finished calls of a run.

    Raises:
        RunDirError: a saved tensor is missing or damaged.
    """
    return replace(_values_of_outputs(run), has_gaps=has_gaps(run))


def has_gaps(run: RunDir) -> bool:
    """True if launches are missing from the records of a run: a fault may be among them."""
    if run.info.exit.is_cut_short or run.timeline.cut_short:
        return True
    journal = run.journal
    if journal is not None and (journal.is_incomplete or journal.header.blocks_reused):
        return True
    stopped = (note.text for note in run.timeline.notes if note.code is NoteCode.RECORDING_STOPPED)
    return any(text.startswith(_ENDS_RECORDING) for text in stopped)


def _values_of_outputs(run: RunDir) -> OutputValues:
    variables = run.manifest.outputs
    if run.level == Level.HASH or not run.launches.is_measured:
        return OutputValues(is_measured=False, outputs=len(variables), recorded=0)
    from aoti_debug.runs.diagnosis.dataflow import Dataflow  # level 3, the usual one, does without it

    flow = Dataflow(run)
    measurer = Measurer(run, BUDGET)
    measure = _measure_of(measurer)
    unfinished = {(call.kind, call.call) for call in run.timeline.calls if call.failed or not call.ended}
    known: dict[str, bool] = {}  # by variable: its values were recorded each time
    special: list[tuple[Launch, Argument]] = []  # that are not finite, of the first calls
    for launch, argument in flow.final_outputs():
        if (launch.key.kind, launch.key.call) in unfinished:
            continue
        held = measure(argument, Phase.AFTER)
        for name in {argument.name, argument.spec.base}:
            known[name] = known.get(name, True) and held is not None
        if held is not None and not held.is_finite and len(special) < _LOOKED_AT:
            special.append((launch, argument))
    recorded = sum(known.get(variable, False) for variable in variables)
    lacks_files = bool(measurer.missing)
    found = OutputValues(is_measured=True, outputs=len(variables), recorded=recorded, lacks_files=lacks_files)
    if not special:
        return found
    from aoti_debug.runs.diagnosis.nonfinite_outputs import NonfiniteOutputs  # reads kernels; most outputs are finite

    words = NonfiniteOutputs(flow, measure).words(special)
    return replace(found, what=words.what, where=words.where, evidence=words.evidence, notes=words.notes)


def _measure_of(measurer: Measurer) -> Measure:
    """Statistics that level 2 recorded or of tensors that level 1 saved; None of memory that was not initialised."""

    def measure(argument: Argument, phase: Phase) -> Statistics | None:
        found = measurer.measure(argument, phase)
        return None if found.reason == UNINITIALISED else found.statistics

    return measure
