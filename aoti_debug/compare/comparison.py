"""The result of a comparison: a row for each launch, and how much of the run was compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.measure.output_errors import OutputError, is_low_precision
from aoti_debug.compare.measure.verdicts import LaunchVerdict, worst_output
from aoti_debug.compare.modules import LaunchTimes
from aoti_debug.compare.protocol.measurement import NOT_REPEATABLE, Advance, Measurement, StateChange
from aoti_debug.compare.protocol.messages import Refusal
from aoti_debug.compare.suspects import Alteration, InexactOperator, OverwritingOperator, Suspect, UndefinedOperator
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import ExitKind

_CLEARLY_NEARER = 8.0  # times nearer to eager
BAD = (LaunchVerdict.WRONG, LaunchVerdict.DIFFERS_FROM_SOURCE)
PRIVATE = "no node holds what it writes; the launches that read it are compared with it"
SILENT = "it writes no tensor"
UNREAD = "an output that no other launch reads is not compared: no node holds it"
WITHOUT_NODE = "an output is not compared: no node holds it"
NOT_SELECTED = "it was not selected"
OPEN_IN_EAGER = "with more than eager, whose own result is not exact or not defined"
AS_IN_EAGER = "what the model returns is NaN or infinite where the exported program's results in eager are"
NO_PROGRAM = "a compiled package without its program"
RANDOM_NUMBERS = "random numbers"  # how the reason begins where a launch draws them
_NO_EVALUATION = " has no evaluation of its own"  # how it ends for a higher-order operator, whose name comes before


@dataclass(frozen=True, kw_only=True)
class LaunchResult:
    """The result of comparing one launch, without the measurements of its outputs.

    Attributes:
        reason: why it is not comparable; "" if it is compared.
        together_with: the launches that were compared together, the last of which it is.
        suspects: of a wrong launch, the operators that wrong outputs depend on (see `suspects_of`).
        notes: what limits the comparison.
        bytes: the size of its outputs.
        compared_bytes: of those that were compared, directly or through the launches that read them.
        is_unread: no launch reads what it wrote, and the model does not return it.
        same_code: it runs the code that the program runs in eager too (an operator, a user-defined Triton kernel): its
            comparison does not show what this code does wrong.
    """

    verdict: LaunchVerdict
    reason: str = ""
    together_with: tuple[str, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    notes: tuple[str, ...] = ()
    bytes: int = 0
    compared_bytes: int = 0
    same_code: bool = False
    is_unread: bool = False


@dataclass(frozen=True, kw_only=True)
class Row(LaunchResult):
    """The comparison of one launch.

    Attributes:
        outputs: the measurements of its outputs.
        inherited: the difference of each output from the whole program, by argument.
    """

    launch: Launch
    outputs: tuple[Measurement, ...] = ()
    inherited: Mapping[str, float] | None = None

    @property
    def is_compared(self) -> bool:
        """True if it was compared itself, or through the launches that read what it wrote."""
        return self.verdict is not LaunchVerdict.NOT_COMPARABLE or (self.reason == PRIVATE and self.compared_bytes > 0)

    @property
    def leaves_open(self) -> bool:
        """True if its result matters, was not compared, and was not computed by repeatable code that eager runs, too.

        A launch that is only compared through its readers leaves nothing open that they do not.
        """
        is_needless = self.reason in (SILENT, PRIVATE) or self.reason.startswith(RANDOM_NUMBERS)
        is_same_code = self.same_code and self.reason != NOT_REPEATABLE
        return not (self.is_compared or is_needless or self.is_unread or is_same_code)

    @property
    def worst(self) -> Measurement | None:
        """The output that the verdict is about; None if none was compared."""
        return worst_output(self.outputs)


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """The first launch whose result rounding makes another than eager's, for the inputs that the launch had.

    Attributes:
        argument: of the launch.
        misplaced: of its `count` elements, those that are NaN or infinite otherwise than eager's.
        dtype: of the argument.
        node, operator: in eager, the first operator of the launch whose result is not finite as in float64, or the one
            whose rounding makes most of the difference; "" if that is not known.
        line: the model line of the operator, or of what the argument holds.
        rounded_to: the dtype of the operator's result, if it is the rounding that makes the difference; else "".
        share: the part of the difference that this rounding makes.
        sensitivity: of an ill-conditioned argument, how many times as far as its inputs it moves; 0 for others.
    """

    launch: str
    argument: str
    misplaced: int
    count: int
    dtype: str
    node: str = ""
    operator: str = ""
    line: ModelLine | None = None
    rounded_to: str = ""
    share: float = 0.0
    sensitivity: float = 0.0


@dataclass(frozen=True)
class SettingTrial:
    """The outputs of the program built once more with another setting.

    Attributes:
        setting: "emulate_precision_casts=True".
        program: the file of the program.
        failure: why it was not built or run; "" if it was.
        relative: the finite differences of outputs from eager's with it, by their numbers.
    """

    setting: str
    program: str
    failure: str = ""
    relative: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
class ProgramResult:
    """The result of comparing the program as a whole, with what it returns and keeps.

    Attributes:
        program_failure: why no output is compared with the whole program; "" if they are.
        repro: the folder that replays the first wrong launch; "" without one.
        states_failure: why not all states or outputs are compared with the exported program's; "" if none is known.
        outputs: the errors of what the last call returns, against the exported program in eager; () if they are not
            compared. They show what Inductor's passes and decompositions do wrong, and no launch does.
        alteration: what these have made of the program, if outputs are wrong; None otherwise, or if it is not known.
        states: the changes of what the program overwrites: buffers, weights, inputs; in each call.
        outputs_missing: why what the model returns was not compared with what eager returns; "" if it was.
        refusal: the exception that the exported program raises in eager; None if it raises none, or was not called.
        refusal_line: the model line of the operator that raises it; None if it is not known.
        beginning: where outputs begin to differ by eager's rounding; None if they do not, or it is not known.
        setting: the outputs with a setting that makes kernels round as eager does; None if that was not tried.
        program: the file of the exported program; "" if it is not known.
        undefined: the operators of the exported program that do what its graph does not say.
        overwriting: those that overwrite a state or input first which does not change as they say.
        inexact: those whose results in eager are not the exact ones of their operands, where there is a rule for that.
        shared: sentences on outputs that have memory of an input, and in eager have none of it.
    """

    program_failure: str = ""
    repro: str = ""
    states: tuple[StateChange, ...] = ()
    states_failure: str = ""
    outputs: tuple[OutputError, ...] = ()
    alteration: Alteration | None = None
    outputs_missing: str = ""
    refusal: Refusal | None = None
    refusal_line: ModelLine | None = None
    beginning: Beginning | None = None
    setting: SettingTrial | None = None
    program: str = ""
    undefined: tuple[UndefinedOperator, ...] = ()
    inexact: tuple[InexactOperator, ...] = ()
    overwriting: tuple[OverwritingOperator, ...] = ()
    shared: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Comparison(ProgramResult):
    """The comparison of a run.

    Attributes:
        run: with the tensors that were compared.
        peak_bytes: the largest resident size of the evaluating process.
        directory: of the comparison; "" if it has none of its own.
        times: of the launches; None if they were not measured.
    """

    run: RunDir
    rows: tuple[Row, ...]
    peak_bytes: int = 0
    directory: str = ""
    times: LaunchTimes | None = None

    @property
    def program_path(self) -> Path:
        """The file of the exported program; PROGRAM.pt2 if it is not known."""
        return Path(self.program or ("" if self.setting is None else self.setting.program) or "PROGRAM.pt2")

    @property
    def suspects_of_rounding(self) -> tuple[OutputError, ...]:
        """The outputs that rounding to less than 32 bits in eager may make differ."""
        return tuple(
            error
            for error in self.outputs
            if is_low_precision(error.computed or error.dtype)
            and (error.misplaced or error.has_lost_rounding or (error.may_have_lost_rounding and error.is_far_off))
        )

    @property
    def differing_outputs(self) -> tuple[OutputError, ...]:
        """The outputs that are not eager's up to the rounding of their numbers, while no launch is wrong."""
        return tuple(error for error in self.outputs if not error.fault and self._differs(error))

    def _differs(self, error: OutputError) -> bool:
        is_undefined = any(error.index in operator.outputs for operator in self.undefined)
        is_wrong = not error.is_right and (error.is_explained_by_noise is False or is_undefined)
        return bool(error.misplaced) or error.is_far_off or error.has_lost_rounding or is_wrong

    def _is_open(self, error: OutputError) -> bool:
        """True if it is not known whether rounding explains how an output differs."""
        if error.fault or error.is_noise or self._differs(error):
            return False
        return not error.is_right and error.is_explained_by_noise is None

    def is_recovered(self, error: OutputError) -> bool:
        """True if the setting that was tried makes an output equal eager's, but for the rounding of one operator."""
        relative = None if self.setting is None else self.setting.relative.get(str(error.index))
        needed = 0.0 if error.is_another_decision else error.relative / _CLEARLY_NEARER
        return relative is not None and relative <= needed

    @cached_property
    def not_compared(self) -> tuple[str, ...]:
        """The operators, kernels and outputs that matter and were not compared, each with the reason."""
        found: list[str] = []
        if self.outputs_missing:
            found.append(self.outputs_missing)
        elif self.states_failure:
            found.append(f"outputs and states of the exported program ({self.states_failure})")
        open_ = [error for error in self.outputs if self._is_open(error)]
        found += [f"output {error.index} (whether rounding explains the difference is not known)" for error in open_]
        is_equal = bool(self.outputs) and not found and all(error.is_nearly_equal for error in self.outputs)
        open_rows = (row for row in self.rows if row.leaves_open and (not is_equal or row.reason.endswith(AS_IN_EAGER)))
        found += dict.fromkeys(map(_name_of, open_rows))
        found += [f"{one.operator} ({one.node}) {OPEN_IN_EAGER}" for one in self.inexact if one.is_open]
        if not found and not self.outputs and not self.coverage.compared and self.coverage.launches:
            found.append("any launch")
        return tuple(found)

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
    def unrepeatable(self) -> Launch | None:
        """The first launch whose operator gives something else when it is evaluated again; None without any."""
        return next((row.launch for row in self.rows if row.reason == NOT_REPEATABLE), None)

    @property
    def other_weights(self) -> tuple[StateChange, ...]:
        """The weights that the run began with other values of than the program."""
        return tuple(state for state in self.states if state.advance is Advance.OTHER_BEGIN)

    @property
    def is_clean(self) -> bool:
        """True if no launch, no state, no output and no pass over the program is wrong, and the run ended well.

        Outputs may differ from eager's all the same, or not all was compared: see aoti_debug.compare.outcome.
        """
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
        return f"{why}; {missing} of {wording.pluralize(len(run.manifest.sites), 'launch site')} were not reached"

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


def _name_of(row: Row) -> str:
    """What a launch that was not compared computes, and why it was not: "flex_attention", "cpp_fused_0 (it failed)"."""
    if row.reason.endswith(_NO_EVALUATION):
        return row.reason.removesuffix(_NO_EVALUATION)
    if row.reason.endswith(AS_IN_EAGER):
        return f"{row.launch.site.op or row.launch.kernel} (NaN or infinite otherwise than its graph)"
    return f"{row.launch.site.op or row.launch.kernel} ({row.reason})"
