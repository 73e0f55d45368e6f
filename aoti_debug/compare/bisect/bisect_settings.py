"""Finds the setting, the pass or the lowering of Inductor that makes a program wrong, by building it repeatedly."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data, stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.delta_debugging import SearchState, SearchTrials, SetOutcome, smallest
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.comparison import BAD, Comparison
from aoti_debug.compare.text import output_text, state_text
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailure, BuildFailureError, BuildStage, part_text
from aoti_debug.instrument.frontend.protocol.messages import Applied
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.run.options import ModelCalls
from aoti_debug.runs.rundir import recorded_runs

FORMAT = 2
NAME = "bisect.json"


class BuildFault(str, Enum):
    """The kind of fault that a build has."""

    NONE = "nothing"
    LAUNCH = "a launch, from its own inputs"
    STATE = "a state of the model"
    OUTPUT = "only what the model returns: what comes before the kernels"
    END = "the run did not end well"
    BUILD = "a part of the build fails"


_ENDINGS = (BuildFault.END, BuildFault.BUILD)  # of what ends in one of these, nothing is known that comes after it


@dataclass(frozen=True, kw_only=True)
class BuildTrial:
    """A build of the program with changes, and what was found.

    Attributes:
        name: the changes, "--inductor-config cpp.simdlen=1"; "baseline".
        changes: the line to paste for each.
        finding: what is wrong.
        wrong: the finding in words, "0.7 cpp_fused_relu_3 is wrong"; "" if there is none.
        failure: why it was not built or run; "" if it was.
        applied: of the baseline, the parts of Inductor that were applied.
        suspects: likewise, the operators that may be to blame for what is wrong.
        device: "cpu" or "cuda".
        seconds: the time that it took.
    """

    name: str
    changes: tuple[str, ...] = ()
    finding: BuildFault = BuildFault.NONE
    wrong: str = ""
    failure: str = ""
    applied: Applied = field(default_factory=Applied)
    suspects: tuple[str, ...] = ()
    device: str = "cpu"
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        """True if it was built and run without a finding."""
        return self.finding is BuildFault.NONE and not self.failure

    def outcome(self, baseline: BuildTrial) -> SetOutcome:
        """The effect of the changes on the finding of the baseline.

        A build or a run that ends badly tells nothing about wrong numbers, nor the other way round.
        """
        if self.is_right:
            return SetOutcome.YES
        is_other = self.finding is not baseline.finding and bool(
            {self.finding, baseline.finding}.intersection(_ENDINGS)
        )
        return SetOutcome.UNKNOWN if self.failure or is_other else SetOutcome.NO


@dataclass(frozen=True, kw_only=True)
class _State(SearchState):
    configs: Mapping[str, Any] = field(default_factory=dict)
    trials: tuple[BuildTrial, ...] = ()


class BuildTrials(SearchTrials[_State, BuildTrial]):
    """The trials of one bisection; its key identifies the program, its settings and inputs."""

    def __init__(self, folder: Path, key: str, configs: Mapping[str, Any]) -> None:
        super().__init__(folder / NAME, _State(format=FORMAT, key=key, configs=configs))

    def find(self, changes: Iterable[str]) -> BuildTrial | None:
        """The finished trial of changes, in any order."""
        wanted = sorted(changes)
        return next((trial for trial in self.all if sorted(trial.changes) == wanted), None)


_ON_BY_DEFAULT: tuple[tuple[str, Any, str], ...] = (  # setting, harmless value, what it is
    ("pattern_matcher", False, "the pattern matcher"),
    ("cpp.simdlen", 1, "the vector width"),
    ("epilogue_fusion", False, "fusion of what follows a matrix product"),
    ("max_fusion_size", 1, "fusion"),
    ("split_reductions", False, "splitting of reductions"),
    ("inplace_buffers", False, "results in the memory of inputs"),
    ("allow_buffer_reuse", False, "memory that is used again"),
    ("layout_optimization", False, "layouts of convolutions"),
    ("comprehensive_padding", False, "padding of strides"),
    ("fallback_random", True, "random numbers"),
    ("emulate_precision_casts", True, "rounding between fused operators"),
)
_OFF_BY_DEFAULT = (  # these matter only where they are asked for: then they are left out
    *("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning", "freezing"),
    *("combo_kernels", "memory_planning"),
)
_OF_A_DEVICE = {"cpp.": "cpu", "triton.": "cuda", "cuda.": "cuda"}


@dataclass(frozen=True, kw_only=True)
class SettingsOptions(ModelCalls):
    """A program that is wrong once it is compiled.

    Attributes:
        program: an exported program.
        inductor_configs: the settings that it is wrong with.
        out: the directory for the directory of the bisection, which is named by program and settings.
    """

    program: Path
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    out: Path = field(default_factory=ResultKind.BISECTS.place)


def asked_for(configs: Mapping[str, Any]) -> Iterator[build_changes.SettingChange]:
    """The settings that a model is built with, each to be left out: those that are off otherwise come first."""
    for key in sorted(configs, key=lambda key: key not in _OFF_BY_DEFAULT):
        yield build_changes.SettingChange(key, None, "asked for")


def suspects(configs: Mapping[str, Any], device: str) -> Iterator[build_changes.SettingChange]:
    """The changes to try of what is on anyway, for a model that is built with `configs`."""
    for key, value, what in _ON_BY_DEFAULT:
        prefix = next((prefix for prefix in _OF_A_DEVICE if key.startswith(prefix)), "")
        if configs.get(key) != value and (not prefix or _OF_A_DEVICE[prefix] == device):
            yield build_changes.SettingChange(key, value, what)


BASELINE = "baseline"
_MAX_OPERATORS = 6


@dataclass(frozen=True)
class SettingsBisection:
    """The cause of a finding among the settings, passes and lowerings.

    Attributes:
        trials: all builds, in order, those of an earlier, interrupted bisection first.
        known: how many of them that were.
        changes: the smallest set of changes that fixes it; () if none was found.
    """

    trials: tuple[BuildTrial, ...]
    known: int
    changes: tuple[build_changes.Change, ...] = ()

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines to paste."""
        return build_changes.lines_of(self.changes)

    @property
    def cause(self) -> str:
        """The parts that the changes concern: "the vector width"."""
        return wording.comma_separated(dict.fromkeys(change.concern for change in self.changes))


def bisect_settings(options: SettingsOptions, listener: StepListener | None = None) -> SettingsBisection:
    """Finds out what makes a program wrong; resumes an interrupted bisection of the same.

    Raises:
        UsageError: the directory cannot be made.
        ArtifactError: the program is none.
        ToolchainError, TargetError, RunDirError: the baseline cannot be run, or not built where no part can be named
            that fails.
    """
    found = archive.inspect(options.program)
    if found.kind is not ArtifactKind.EXPORTED:
        raise ArtifactError(
            f"{options.program} is {found.kind.value}: its settings cannot be changed",
            hint="pass the exported program; or two packages, a good and a bad one",
        )
    key = key_of(options)
    folder = options.out / f"settings-{key[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}", hint="--out DIR") from error
    trials = BuildTrials(folder, key, options.inductor_configs)
    result = _Settings(options, folder, trials, Steps(listener)).bisect()
    if recorded_runs.find(folder) is not None:
        stamped_directories.link_latest(folder)
    return result


def key_of(options: SettingsOptions) -> str:
    """The identity of a bisection, in hexadecimal digits: of the program, its settings and inputs."""
    digest = sha256(options.program.read_bytes())
    if options.inputs is not None:
        digest.update(options.inputs.read_bytes())
    code = options.user_code
    words = (options.inductor_configs, options.calls, code.imports, [str(path) for path in code.libraries])
    digest.update(json.dumps(words, sort_keys=True, default=str).encode())
    return digest.hexdigest()


class _Settings:
    def __init__(self, options: SettingsOptions, folder: Path, trials: BuildTrials, steps: Steps) -> None:
        self._options = options
        self._folder = folder
        self._trials = trials
        self._steps = steps

    def bisect(self) -> SettingsBisection:
        baseline = self._tried(())
        found: tuple[build_changes.Change, ...] = ()
        for changes in () if baseline.is_right else self._groups(baseline):
            found = smallest(changes, lambda some: self._outcome(some, baseline))
            if found:
                break
        self._trials.finish()
        return SettingsBisection(self._trials.all, self._trials.earlier, found)

    def _groups(self, baseline: BuildTrial) -> Iterator[tuple[build_changes.Change, ...]]:
        """Changes that are tried together first: what was asked for, then what is likely, by what is wrong."""
        configs, met = self._options.inductor_configs, baseline.applied
        settings = tuple(suspects(configs, baseline.device))
        passes = _without(build_changes.Part.PASS, met.passes)
        suspected = tuple(name for name in baseline.suspects if name in met.lowerings)
        lowerings = tuple(dict.fromkeys((*suspected, *met.lowerings)))
        operators = (_without(build_changes.Part.LOWERING, suspected), _without(build_changes.Part.LOWERING, lowerings))
        decompositions = _without(build_changes.Part.DECOMPOSITION, met.decompositions)
        yield tuple(asked_for(configs))
        if baseline.finding is BuildFault.OUTPUT:
            yield from (passes, decompositions, settings, *operators)
        else:
            yield from (settings, *operators, decompositions, passes)

    def _outcome(self, changes: tuple[build_changes.Change, ...], baseline: BuildTrial) -> SetOutcome:
        return self._tried(changes).outcome(baseline)

    def _tried(self, changes: Sequence[build_changes.Change]) -> BuildTrial:
        """The trial of changes: a finished one, or a new one."""
        lines = tuple(change.option for change in changes)
        known = self._trials.find(lines)
        if known is not None:
            return known
        name = build_changes.name_of(changes) if changes else BASELINE
        began = time.monotonic()
        with self._steps.step(name) as note:
            trial = self._built(
                BuildTrial(name=name, changes=lines),
                build_changes.applied(changes, build_changes.Build(self._options.inductor_configs)),
            )
            note.text = result_text(trial)
        trial = replace(trial, seconds=time.monotonic() - began)
        self._trials.add(trial)
        return trial

    def _built(self, trial: BuildTrial, build: build_changes.Build) -> BuildTrial:
        """A trial with what was found in a build."""
        options, log = self._options, self._folder / "applied.json"
        is_first = not trial.changes
        chosen = CompareOptions(
            model=options.program,
            inputs=options.inputs,
            calls=options.calls,
            out=self._folder / "compares",
            inductor_configs=build.configs,
            user_code=options.user_code,
            left_out=replace(build.left_out, log=str(log) if is_first else ""),
        )
        try:
            comparison = compare(chosen)
        except BuildFailureError as error:
            return _unbuilt(trial, error.failure, log)
        except AotiDebugError as error:
            if is_first:
                raise
            return replace(trial, failure=wording.first_line(str(error)))
        finding, wrong = _finding(comparison)
        found = replace(trial, finding=finding, wrong=wrong, device=comparison.run.manifest.device)
        if finding is BuildFault.NONE and not comparison.coverage.compared and not comparison.outputs:
            found = replace(found, failure="no launch could be compared with the program")
        if is_first:
            met = json_data.parse(Applied, log.read_bytes())
            return replace(found, applied=met, suspects=tuple(_suspected(comparison)))
        shutil.rmtree(comparison.directory, ignore_errors=True)
        return found


def _unbuilt(trial: BuildTrial, failure: BuildFailure, log: Path) -> BuildTrial:
    """A trial whose build fails, with the operators that may be to blame and what had been applied until then."""
    position = failure.position
    is_operator = position.stage in (BuildStage.LOWERING, BuildStage.CODE) and bool(position.name)
    suspects = (position.name,) if is_operator else failure.operators
    found = replace(trial, finding=BuildFault.BUILD, wrong=f"{part_text(position)}: {wording.first_line(failure.what)}")
    if trial.changes:
        return found
    met = json_data.parse(Applied, log.read_bytes()) if log.exists() else Applied()  # no process that dies writes it
    met = replace(met, lowerings=tuple(dict.fromkeys((*met.lowerings, *suspects))))
    graphs = () if failure.reference is None else failure.reference.graphs
    devices = {type_.device for graph in graphs for node in graph.nodes for type_ in node.types if type_ is not None}
    is_cuda = any(device.startswith("cuda") for device in devices)
    return replace(found, applied=met, suspects=suspects, device="cuda" if is_cuda else "cpu")


def _without(part: build_changes.Part, names: Sequence[str]) -> tuple[build_changes.Change, ...]:
    return tuple(build_changes.LeaveOut(part, name) for name in names)


def _suspected(comparison: Comparison) -> list[str]:
    """The operators that may be to blame for the wrong launches, the likeliest first."""
    rows = (row for row in comparison.rows if row.verdict in BAD)
    return list(dict.fromkeys(suspect.operator for row in rows for suspect in row.suspects))[:_MAX_OPERATORS]


def _finding(comparison: Comparison) -> tuple[BuildFault, str]:
    """The finding of a comparison in words; "" if it is clean."""
    if comparison.first_wrong is not None:
        launch = comparison.first_wrong.launch
        return BuildFault.LAUNCH, f"{launch.id} {launch.kernel} is wrong"
    if comparison.wrong_states:
        return BuildFault.STATE, state_text(comparison.wrong_states[0])
    if comparison.unfinished:
        return BuildFault.END, comparison.unfinished
    if comparison.wrong_outputs:
        return BuildFault.OUTPUT, output_text(comparison.wrong_outputs[0])
    return BuildFault.NONE, ""


def result_text(trial: BuildTrial) -> str:
    """ "right", what is wrong, or why that is not known."""
    return (trial.failure and f"not known: {trial.failure}") or trial.wrong or "right"
