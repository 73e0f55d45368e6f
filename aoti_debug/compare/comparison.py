"""The result of a comparison: a row for each launch, and how much of the run was compared."""

from __future__ import annotations

from collections.abc import Mapping

from aoti_debug import wording
from aoti_debug.compare.alteration import Alteration
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.measure.verdicts import LaunchVerdict, worst_output
from aoti_debug.compare.protocol.measurement import Advance, Measurement, StateChange
from aoti_debug.compare.suspects import Suspect
from aoti_debug.lazy.dataclass import dataclass
from aoti_debug.rundir.run_directory import RunDir
from aoti_debug.rundir.run_json import ExitKind
from aoti_debug.rundir.timeline import Launch

BAD = (LaunchVerdict.WRONG, LaunchVerdict.DIFFERS_FROM_SOURCE)
PRIVATE = "no node holds what it writes; the launches that read it are compared with it"
SILENT = "it writes no tensor"
UNREAD = "an output that no other launch reads is not compared: no node holds it"
WITHOUT_NODE = "an output is not compared: no node holds it"


@dataclass(frozen=True)
class Row:
    """The comparison of one launch.

    Attributes:
        reason: why it is not comparable; "" if it is compared.
        outputs: the measurements of its outputs.
        inherited: the difference of each output from the whole program, by argument.
        launches: the launches that were compared together, the last of which it is.
        suspects: of a wrong launch, the operators that wrong outputs depend on (see `suspects_of`).
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
        states_failure: why states or outputs are not all compared with those of the exported program; "" if they are,
            or if that is not known.
        outputs: the errors of what the last call returns, against the exported program in eager; () if they are not
            compared. They show what Inductor's passes and decompositions do wrong, and no launch does.
        alteration: what these have made of the program, if outputs are wrong; None otherwise, or if it is not known.
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
    outputs: tuple[OutputError, ...] = ()
    alteration: Alteration | None = None

    @property
    def wrong_states(self) -> tuple[StateChange, ...]:
        """The changes that are not what the program says."""
        return tuple(state for state in self.states if state.advance is not Advance.RIGHT)

    @property
    def wrong_outputs(self) -> tuple[OutputError, ...]:
        """The outputs that differ from the exported program's by more than rounding explains."""
        return tuple(error for error in self.outputs if not error.is_right)

    @property
    def faulty_outputs(self) -> tuple[OutputError, ...]:
        """The outputs that are wrong beyond any rounding, whatever made them so."""
        return tuple(error for error in self.outputs if error.fault)

    @property
    def is_program_altered(self) -> bool:
        """True if outputs are wrong, and what the kernels were generated from already computes something else.

        With wrong weights that graph computes something else, too, and is none the less right.
        """
        is_proved = self.alteration is not None and self.alteration.is_proved
        return bool(self.wrong_outputs) and is_proved and not self.other_weights

    @property
    def other_weights(self) -> tuple[StateChange, ...]:
        """The weights that the run began with other values of than the program."""
        return tuple(state for state in self.states if state.advance is Advance.OTHER_BEGIN)

    @property
    def is_clean(self) -> bool:
        """True if no launch, no state, no output and no pass over the program is wrong, and the run ended well."""
        is_wrong = self.first_wrong is not None or bool(self.wrong_states) or bool(self.faulty_outputs)
        is_wrong |= self.is_program_altered
        return not is_wrong and not self.unfinished

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
