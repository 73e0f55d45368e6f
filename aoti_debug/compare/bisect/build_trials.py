"""Builds a program with changes, again and again, compares each build with the program, and keeps the results."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError, ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.delta_debugging import SearchState, SearchTrials, SetOutcome
from aoti_debug.compare.bisect.equality import Equality
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.comparison import BAD, Comparison
from aoti_debug.compare.text import output_text, state_text
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailure, BuildFailureError, BuildStage, part_text
from aoti_debug.instrument.frontend.protocol.messages import Applied
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.run.options import ModelCalls

FORMAT = 3
NAME = "bisect.json"


class BuildFault(str, Enum):
    """The kind of fault that a build has."""

    NONE = "nothing"
    LAUNCH = "a launch, from its own inputs"
    STATE = "a state of the model"
    OUTPUT = "only what the model returns: what comes before the kernels"
    DIFFERENCE = "what the model returns, which is not eager's, while no launch is wrong"
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
        equality: what is not eager's, bit for bit; None if that was not asked, or is not known.
        seconds: the time that it took.
        not_compared: of the baseline, what matters and was not compared, each with the reason.
    """

    name: str
    changes: tuple[str, ...] = ()
    finding: BuildFault = BuildFault.NONE
    wrong: str = ""
    failure: str = ""
    applied: Applied = field(default_factory=Applied)
    suspects: tuple[str, ...] = ()
    device: str = "cpu"
    equality: Equality | None = None
    seconds: float = 0.0
    not_compared: tuple[str, ...] = ()

    @property
    def is_right(self) -> bool:
        """True if it was built and run without a finding."""
        return self.finding is BuildFault.NONE and not self.failure

    @property
    def bug(self) -> str:
        """`wrong`, where a launch, a state or an output is wrong, or the run did not end well; else ""."""
        return "" if self.finding is BuildFault.DIFFERENCE else self.wrong

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


BASELINE = "baseline"
TIME_LIMIT = 540.0  # seconds
_MAX_OPERATORS = 6


@dataclass(frozen=True, kw_only=True)
class SettingsOptions(ModelCalls):
    """A program that is wrong once it is compiled.

    Attributes:
        program: an exported program.
        inductor_configs: the settings that it is wrong with.
        out: the directory for the directory of the bisection, which is named by program and settings.
        time_limit: seconds after which the search ends.
    """

    program: Path
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    out: Path = field(default_factory=ResultKind.BISECTS.place)
    time_limit: float = TIME_LIMIT


def key_of(options: SettingsOptions) -> str:
    """The identity of a bisection, in hexadecimal digits: of the program, its settings and inputs."""
    digest = sha256(options.program.read_bytes())
    if options.inputs is not None:
        digest.update(options.inputs.read_bytes())
    code = options.user_code
    words = (options.inductor_configs, options.calls, code.imports, [str(path) for path in code.libraries])
    digest.update(json.dumps(words, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def search_folder(options: SettingsOptions, what: str, key: str, hint: str) -> Path:
    """The directory of a search of a program, which exists.

    Args:
        what: the search, with which the name of the directory begins.
        hint: what to pass in place of a package.

    Raises:
        ArtifactError: the program is none.
        UsageError: the directory cannot be made.
    """
    found = archive.inspect(options.program)
    if found.kind is not ArtifactKind.EXPORTED:
        raise ArtifactError(f"{options.program} is {found.kind.value}: its settings cannot be changed", hint=hint)
    folder = options.out / f"{what}-{key[:12]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}", hint="--out DIR") from error
    return folder


def unobserved(trial: BuildTrial, _: Comparison) -> BuildTrial:
    """The trial as it is: the observer of a search that needs only findings."""
    return trial


class TrialBuilds:
    """Builds a program with changes, each set of them once.

    Args:
        observe: adds what a search needs to know of a comparison to its trial. The directory of the comparison is
            deleted afterwards, unless it is the baseline's.
    """

    def __init__(
        self,
        options: SettingsOptions,
        folder: Path,
        trials: BuildTrials,
        steps: Steps,
        observe: Callable[[BuildTrial, Comparison], BuildTrial] = unobserved,
    ) -> None:
        self._options = options
        self._folder = folder
        self._trials = trials
        self._steps = steps
        self._observe = observe

    def tried(self, changes: Sequence[build_changes.Change]) -> BuildTrial:
        """The trial of changes: a finished one, or a new one."""
        lines = build_changes.options_of(changes)
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
            tries_setting=False,
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
        found = self._observe(found, comparison)
        if is_first:
            met = json_data.parse(Applied, log.read_bytes())
            suspected, left = tuple(_suspected(comparison)), tuple(comparison.not_compared)
            return replace(found, applied=met, suspects=suspected, not_compared=left)
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
    if comparison.differing_outputs:
        return BuildFault.DIFFERENCE, output_text(comparison.differing_outputs[0])
    return BuildFault.NONE, ""


def result_text(trial: BuildTrial) -> str:
    """ "right", what is wrong or not equal, or why that is not known."""
    found = trial.equality
    if trial.failure or trial.bug or found is None:
        return (trial.failure and f"not known: {trial.failure}") or trial.wrong or "right"
    if found.is_equal:
        return "equal to eager"
    what = found.unknown or wording.join_truncated(found.outputs, 1)
    return f"{wording.pluralize(len(found.launches), 'launch')} not equal; {what}"
