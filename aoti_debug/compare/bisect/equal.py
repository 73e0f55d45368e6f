"""Finds the smallest set of changes of a build with which a package is equal to eager bit for bit.

A set that suffices is found first: what the launches that are not equal suggest is changed, group after group, and a
group stays in the set if fewer operators are in unequal launches with it. Then every change that is not needed is taken
out again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from aoti_debug.base.errors import AotiDebugError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.bisect import without
from aoti_debug.compare.bisect.build_changes import Change, Part, SettingChange, asked_for, suspects
from aoti_debug.compare.bisect.build_trials import (
    BuildFault,
    BuildTrial,
    BuildTrials,
    SettingsOptions,
    TrialBuilds,
    key_of,
    search_folder,
)
from aoti_debug.compare.bisect.delta_debugging import SetOutcome, smallest, without_needless
from aoti_debug.compare.bisect.equal_result import EqualEnd, EqualSearch, EqualStep
from aoti_debug.compare.bisect.equality import Equality, UnequalLaunch, equality_of, joined, numbered, of_first_set
from aoti_debug.compare.compare import PACKAGE, CompareOptions, compare
from aoti_debug.compare.comparison import Comparison
from aoti_debug.instrument.builder.build import build_report
from aoti_debug.instrument.builder.options import BuildOptions
from aoti_debug.instrument.frontend.protocol.caller_settings import has_setting
from aoti_debug.package.program_graphs import keeps_numbers, operator_name
from aoti_debug.runs.run import timed_pairs
from aoti_debug.runs.run.timed_pairs import PAIRS, PairedTimes, TimedPackages
from aoti_debug.runs.rundir import recorded_runs

MAX_BUILDS = 40
TIME_LIMIT = 1800.0  # seconds
_PACKAGES = "packages"
_FEW = 6  # changes that are taken out one by one
_CASTS = ("emulate_precision_casts", True, "rounding between fused operators")
_NUMERICS = (  # settings of CUDA kernels that bring them nearer to eager
    ("eager_numerics.division_rounding", True, "division in Triton kernels"),
    ("eager_numerics.use_pytorch_libdevice", True, "the library of functions in Triton kernels"),
    ("eager_numerics.disable_ftz", True, "subnormal numbers in Triton kernels"),
)
_STRICT = ("numerics", "strict", "sums in eager's order")  # of CUDA kernels, with the settings above
_OF_GRAPH = ("pattern_matcher", "layout_optimization", "fallback_random")  # settings that change the graph of kernels
_SUMMING = frozenset(
    {"sum", "mean", "var", "var_mean", "std", "prod", "cumsum", "cumprod", "logsumexp", "linalg_vector_norm", "norm"}
    | {"mm", "bmm", "addmm", "baddbmm", "convolution", "index_add", "scatter_add", "scatter_reduce", "index_put"}
    | {"avg_pool2d", "_adaptive_avg_pool2d", "upsample_bilinear2d", "upsample_bicubic2d", "grid_sampler_2d"}
)


@dataclass(frozen=True, kw_only=True)
class EqualOptions(SettingsOptions):
    """A program that is to be equal to eager once it is compiled.

    Attributes:
        further_inputs: more files of inputs on which it is to be equal.
        max_builds: the largest number of builds in one go.
        time_limit: seconds after which no build is begun any more.
        pairs: how many calls of each two packages are timed; 0 for none.
    """

    further_inputs: tuple[Path, ...] = ()
    max_builds: int = MAX_BUILDS
    time_limit: float = TIME_LIMIT
    pairs: int = PAIRS


class _BudgetSpentError(Exception):
    """The builds or the time of a search are used up."""


def find_equal(options: EqualOptions, listener: StepListener | None = None) -> EqualSearch:
    """Finds the smallest set of changes that makes a package equal to eager; resumes an interrupted search of the same.

    Raises:
        UsageError: an option is wrong, or the directory cannot be made.
        ArtifactError: the program is none.
        ToolchainError, TargetError, RunDirError: the baseline cannot be built or run.
    """
    if options.max_builds < 1:
        raise UsageError("a search needs at least 1 build", hint="--max-builds takes a number from 1")
    if options.pairs < 0:
        raise UsageError(f"calls cannot be timed {options.pairs} times", hint="--pairs takes a number from 0")
    digest = sha256(key_of(options).encode())
    for file in options.further_inputs:
        if not file.is_file():
            raise UsageError(f"there is no file {file}", hint="--inputs takes a .pt or .safetensors file")
        digest.update(file.read_bytes())
    key = digest.hexdigest()
    folder = search_folder(options, "equal", key, "pass the exported program that it was compiled from")
    trials = BuildTrials(folder, key, options.inductor_configs)
    result = _Search(options, folder, trials, Steps(listener)).find()
    if recorded_runs.find(folder) is not None:
        stamped_directories.link_latest(folder)
    return result


class _Search:
    def __init__(self, options: EqualOptions, folder: Path, trials: BuildTrials, steps: Steps) -> None:
        self._options = options
        self._folder = folder
        self._trials = trials
        self._steps = steps
        self._builds = TrialBuilds(options, folder, trials, steps, self._observed)
        self._ends_at = time.monotonic() + options.time_limit
        self._equal: tuple[Change, ...] | None = None  # the smallest set so far

    def find(self) -> EqualSearch:
        baseline = self._builds.tried(())
        reason = baseline.failure or (baseline.wrong if baseline.finding in _ENDS_BADLY else "")
        if not reason and baseline.equality is not None:
            reason = baseline.equality.unknown
        if reason or baseline.equality is None:
            return self._ended(EqualEnd.UNKNOWN, reason=reason or "the baseline was not compared")
        if unrepeatable := self._unrepeatable(baseline.equality):
            return self._ended(EqualEnd.NOT_REPEATABLE, reason=unrepeatable)
        if baseline.equality.is_equal:
            return self._ended(EqualEnd.ALREADY)
        try:
            enough = self._sufficient(baseline)
            if enough is None:
                return self._ended(EqualEnd.CANNOT, best=self._best())
            needed = smallest(enough, self._outcome) if len(enough) > _FEW else enough
            needed = without_needless(needed, self._outcome)
        except _BudgetSpentError as error:
            return self._unfinished(str(error))
        return self._priced(needed)

    def _unfinished(self, why: str) -> EqualSearch:
        if self._equal is None:
            return self._result(EqualEnd.UNFINISHED, reason=why, best=self._best())
        steps = tuple(EqualStep(change=change, without=BuildTrial(name="")) for change in self._equal)
        return self._result(EqualEnd.NOT_MINIMAL, reason=why, steps=steps)

    def _ended(self, end: EqualEnd, *, reason: str = "", best: BuildTrial | None = None) -> EqualSearch:
        self._trials.finish()
        shutil.rmtree(self._folder / _PACKAGES, ignore_errors=True)
        return self._result(end, reason=reason, best=best)

    def _result(
        self,
        end: EqualEnd,
        *,
        reason: str = "",
        steps: tuple[EqualStep, ...] = (),
        best: BuildTrial | None = None,
    ) -> EqualSearch:
        trials, known = self._trials.all, self._trials.earlier
        found = EqualSearch(end=end, trials=trials, known=known, reason=reason, steps=steps, best=best)
        return replace(found, directory=str(self._folder))

    def _tried(self, changes: Sequence[Change]) -> BuildTrial:
        """The trial of changes.

        Raises:
            _BudgetSpentError: it would be one build too many.
        """
        lines = build_changes.options_of(changes)
        if self._trials.find(lines) is None:
            done = len(self._trials.all) - self._trials.earlier
            if done >= self._options.max_builds:
                raise _BudgetSpentError(f"{done} builds were made, as many as --max-builds allows")
            if time.monotonic() > self._ends_at:
                raise _BudgetSpentError(f"{self._options.time_limit:.0f} s are over (--time-limit)")
        trial = self._builds.tried(changes)
        if _is_equal(trial) and (self._equal is None or len(changes) < len(self._equal)):
            self._equal = tuple(changes)
        return trial

    def _outcome(self, changes: tuple[Change, ...]) -> SetOutcome:
        """Whether changes make it equal; a set that does not tells nothing about its parts."""
        return SetOutcome.YES if _is_equal(self._tried(changes)) else SetOutcome.UNKNOWN

    def _unrepeatable(self, first: Equality) -> str:
        """What gives other bits when the same package and the program are run again; "" if both repeat themselves."""
        package = Path(first.package)
        if not package.is_file():
            return ""  # an earlier search has asked
        with self._steps.step("run again") as note:
            again = self._compared(package, self._options.inputs)
            second = equality_of(again)
            shutil.rmtree(again.directory, ignore_errors=True)
            found = again.unrepeatable
            if second.unknown:
                note.text = f"not comparable: {second.unknown}"
                return ""
            if second.eager != of_first_set(first.eager):
                operator = "; it may draw random numbers" if found is None else f": {found.kernel} ({found.id})"
                note.text = "eager gives other bits"
                return f"the exported program, run twice in eager on the same inputs, gives other bits{operator}"
            if second.returned != of_first_set(first.returned):
                note.text = "the package gives other bits"
                return "the package, run twice on the same inputs, gives other bits"
            note.text = "same bits"
        return ""

    def _sufficient(self, baseline: BuildTrial) -> tuple[Change, ...] | None:
        """A set of changes that makes the program equal; None if all of them together do not."""
        chosen: tuple[Change, ...] = ()
        rejected: list[Change] = []
        best = baseline
        while more := self._next(best, baseline, (*chosen, *rejected)):
            trial = self._tried((*chosen, *more))
            if _is_equal(trial):
                return (*chosen, *more)
            if not trial.failure and _distance(trial) < _distance(best):
                chosen, best = (*chosen, *more), trial
            else:
                rejected += more
        everything = (*chosen, *rejected)
        return everything if rejected and _is_equal(self._tried(everything)) else None

    def _next(self, best: BuildTrial, baseline: BuildTrial, seen: Sequence[Change]) -> tuple[Change, ...]:
        """The group of changes to try next; () if all were tried."""
        for group in self._groups(best, baseline):
            more = tuple(change for change in group if change not in seen)
            if more:
                return more
        return ()

    def _groups(self, best: BuildTrial, baseline: BuildTrial) -> Iterator[Sequence[Change]]:
        """The groups, the likeliest first, for a build of which something is not equal."""
        configs, met, device = self._options.inductor_configs, baseline.applied, baseline.device
        launches = () if best.equality is None else best.equality.launches
        yield tuple(asked_for(configs))
        settings = [change for change in suspects(configs, device) if change.key != _CASTS[0]]
        decomposed = [name for name in met.decompositions if not keeps_numbers(name)]
        kernels = "_".join(launch.kernel for launch in launches)
        operators = list(dict.fromkeys(name for launch in launches for name in launch.operators))
        lowered = [name for name in operators if name in met.lowerings and not keeps_numbers(name)]
        lowered += [name for name in operators if name in met.decompositions]
        if launches:
            yield _numerics(launches, device)
            yield _strict(device)
            yield without(Part.DECOMPOSITION, [name for name in decomposed if operator_name(name) in kernels])
            yield without(Part.LOWERING, [name for name in lowered if operator_name(name) in _SUMMING])
            yield without(
                Part.LOWERING, [name for name in lowered if name in {v for la in launches for v in la.values}]
            )
            yield without(Part.LOWERING, lowered)
        yield tuple(change for change in settings if change.key in _OF_GRAPH)
        yield without(Part.DECOMPOSITION, decomposed)
        yield without(Part.PASS, met.passes)
        yield tuple(change for change in settings if change.key != "cpp.simdlen")
        yield tuple(change for change in settings if change.key == "cpp.simdlen")
        yield without(Part.LOWERING, [name for name in met.lowerings if not keeps_numbers(name)])

    def _best(self) -> BuildTrial:
        known = [trial for trial in self._trials.all if trial.equality is not None and not trial.failure]
        return min(known, key=_distance)

    def _observed(self, trial: BuildTrial, comparison: Comparison) -> BuildTrial:
        """The trial with what is not equal, on every set of inputs; its package is kept."""
        built = Path(comparison.directory) / PACKAGE
        folder = self._folder / _PACKAGES
        folder.mkdir(exist_ok=True)
        package = folder / f"{len(self._trials.all)}.pt2"
        sets = [equality_of(comparison)]
        shutil.copy2(built, package)
        for number, inputs in enumerate(self._options.further_inputs, 2):
            try:
                further = self._compared(package, inputs)
            except AotiDebugError as error:
                return replace(trial, failure=f"with {inputs}: {error}")
            sets.append(numbered(equality_of(further), number))
            shutil.rmtree(further.directory, ignore_errors=True)
        return replace(trial, equality=replace(joined(sets), package=str(package)))

    def _compared(self, package: Path, inputs: Path | None) -> Comparison:
        options = self._options
        chosen = CompareOptions(
            model=package,
            program=options.program,
            inputs=inputs,
            calls=options.calls,
            out=self._folder / "compares",
            user_code=options.user_code,
            tries_setting=False,
        )
        return compare(chosen)

    def _priced(self, needed: tuple[Change, ...]) -> EqualSearch:
        """The answer, with the price of each change."""
        others = [tuple(change for change in needed if change is not left) for left in needed]
        trials = [self._builds.tried(other) for other in others]
        steps = tuple(EqualStep(change=c, without=t) for c, t in zip(needed, trials, strict=True))
        found = self._result(EqualEnd.EQUAL, steps=steps, best=self._builds.tried(needed))
        if self._options.pairs:
            found = self._with_prices(found, (needed, (), *others))
        self._trials.finish()
        shutil.rmtree(self._folder / _PACKAGES, ignore_errors=True)
        return found

    def _with_prices(self, found: EqualSearch, sets: Sequence[tuple[Change, ...]]) -> EqualSearch:
        """The answer with times.

        Args:
            sets: the changes themselves, none, and those without each.
        """
        options = self._options
        try:
            packages = [self._package(changes) for changes in dict.fromkeys(sets)]
            with self._steps.step("time calls in pairs") as note:
                asked = TimedPackages(tuple(map(str, packages)), options.pairs, options.inputs, options.user_code)
                times = timed_pairs.time_calls(asked, self._folder)
                place = {changes: times[i] for i, changes in enumerate(dict.fromkeys(sets))}
                final, first, *others = (place[changes] for changes in sets)
                prices = [PairedTimes.of(other, final) for other in others]
                note.text = f"{len(final)} pairs"
        except AotiDebugError as error:
            return replace(found, untimed=str(error))
        steps = tuple(replace(step, price=price) for step, price in zip(found.steps, prices, strict=True))
        return replace(found, steps=steps, price=PairedTimes.of(first, final))

    def _package(self, changes: tuple[Change, ...]) -> Path:
        """The package of a finished trial; built again if it is gone."""
        equality = self._builds.tried(changes).equality
        if equality is not None and Path(equality.package).is_file():
            return Path(equality.package)
        options = self._options
        build = build_changes.applied(changes, build_changes.Build(options.inductor_configs))
        folder = self._folder / _PACKAGES
        folder.mkdir(exist_ok=True)
        path = folder / f"again-{sha256(repr(changes).encode()).hexdigest()[:12]}.pt2"
        with self._steps.step("build again, to time it"):
            building = BuildOptions(
                program=options.program,
                output=path,
                inductor_configs=build.configs,
                user_code=options.user_code,
                left_out=build.left_out,
            )
            return build_report(building).package


_ENDS_BADLY = (BuildFault.END, BuildFault.BUILD)


def _is_equal(trial: BuildTrial) -> bool:
    return not trial.failure and trial.equality is not None and trial.equality.is_equal


def _distance(trial: BuildTrial) -> tuple[int, int]:
    """The number of operators that compute in launches that are not equal, and the number of outputs that are not."""
    found = trial.equality
    if found is None:
        return 1 << 30, 1 << 30
    computing = (name for launch in found.launches for name in launch.operators if not keeps_numbers(name))
    return sum(1 for _ in computing), len(found.outputs)


def _numerics(launches: Sequence[UnequalLaunch], device: str) -> tuple[Change, ...]:
    """The settings that are there to make kernels round as eager does."""
    found: list[Change] = []
    if any(launch.is_low for launch in launches):
        found.append(SettingChange(*_CASTS))
    if device == "cuda":
        found += [SettingChange(*setting) for setting in _NUMERICS if has_setting(setting[0])]
    return tuple(found)


def _strict(device: str) -> tuple[Change, ...]:
    """The setting with which kernels round and add as eager does, where this torch has it."""
    return (SettingChange(*_STRICT),) if device == "cuda" and has_setting(_STRICT[0]) else ()
