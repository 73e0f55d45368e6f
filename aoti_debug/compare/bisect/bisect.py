"""Finds what makes a program wrong: launches of one of two packages, or a setting, pass or lowering of its builds.

Of two packages, each launch of the bad one is run on the good one's results, all in one run: after each launch, what
it wrote is recorded, then replaced by what its counterpart has written. A launch whose record differs is a suspect,
however many there are.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.errors import TargetError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import stamped_directories
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import OutOfTime, Step, StepListener, Steps, time_limit
from aoti_debug.compare.bisect import build_changes
from aoti_debug.compare.bisect.build_trials import (
    BuildFault,
    BuildTrial,
    BuildTrials,
    SettingsOptions,
    TrialBuilds,
    key_of,
    search_folder,
)
from aoti_debug.compare.bisect.delta_debugging import SetOutcome, smallest
from aoti_debug.compare.compare_run import Scope, compare_run, has_reference
from aoti_debug.compare.comparison import BAD
from aoti_debug.compare.diff.diff_runs import difference_of, differing_inputs, pair_runs
from aoti_debug.compare.diff.difference import TensorDifference
from aoti_debug.compare.diff.pairs import PairedBy, Pairing
from aoti_debug.compare.measure.output_errors import OutputError, errors
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.request import ValueArithmetic
from aoti_debug.compare.what_if.replacements import is_rounding, program_values, results_of
from aoti_debug.compare.what_if.substituted_run import Replace, ReplaySession, SubstitutedRun
from aoti_debug.compare.what_if.what_if import Outputs
from aoti_debug.runs.diagnosis.diagnosed_run import require_end
from aoti_debug.runs.run.options import ModelCalls
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir import recorded_runs
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir


@dataclass(frozen=True)
class SettingsBisection:
    """The cause of a finding among the settings, passes and lowerings.

    Attributes:
        trials: all builds, in order, those of an earlier, interrupted bisection first.
        known: how many of them that were.
        changes: the smallest set of changes that fixes it; () if none was found.
        ended_after: the time in seconds after which it was ended, before the search was over; None if it was not.
    """

    trials: tuple[BuildTrial, ...]
    known: int
    changes: tuple[build_changes.Change, ...] = ()
    ended_after: float | None = None

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
            that fails, or the time is over before it is compared.
    """
    key = key_of(options)
    folder = search_folder(options, "settings", key, "pass the exported program; or two packages, a good and a bad one")
    trials = BuildTrials(folder, key, options.inductor_configs)
    steps = Steps(listener)
    search = _Settings(options, trials, TrialBuilds(options, folder, trials, steps), steps)
    try:
        with time_limit(options.time_limit):
            result = search.bisect()
    except OutOfTime:
        result = search.interrupted()
    if recorded_runs.find(folder) is not None:
        stamped_directories.link_latest(folder)
    return result


class _Settings:
    def __init__(self, options: SettingsOptions, trials: BuildTrials, builds: TrialBuilds, steps: Steps) -> None:
        self._options = options
        self._trials = trials
        self._builds = builds
        self._steps = steps
        self._fixing: tuple[build_changes.Change, ...] = ()  # the smallest set so far that fixes it

    def bisect(self) -> SettingsBisection:
        baseline = self._builds.tried(())
        found: tuple[build_changes.Change, ...] = ()
        groups = () if baseline.is_right else tuple(self._groups(baseline))
        if groups:
            self._steps.add(Step("search", 0.0, self._plan(groups, baseline)))
        for changes in groups:
            found = smallest(changes, lambda some: self._outcome(some, baseline))
            if found:
                break
        self._trials.finish()
        return SettingsBisection(self._trials.all, self._trials.earlier, found)

    def interrupted(self) -> SettingsBisection:
        """The result as far as it is known when the time is over."""
        limit = self._options.time_limit
        if not self._trials.all:
            raise TargetError(
                f"the baseline was not built and compared within {wording.duration(limit)}",
                hint="--time-limit SECONDS gives it longer",
            )
        return SettingsBisection(self._trials.all, self._trials.earlier, self._fixing, ended_after=limit)

    def _outcome(self, changes: tuple[build_changes.Change, ...], baseline: BuildTrial) -> SetOutcome:
        outcome = self._builds.tried(changes).outcome(baseline)
        if outcome is SetOutcome.YES and (not self._fixing or len(changes) < len(self._fixing)):
            self._fixing = changes
        return outcome

    def _plan(self, groups: Sequence[tuple[build_changes.Change, ...]], baseline: BuildTrial) -> str:
        """ "38 changes in 4 groups, at least 2 builds of about 30 s more; ends after 540 s": one change is enough."""
        filled = [group for group in groups if group]
        changes = wording.pluralize(len({change for group in filled for change in group}), "change")
        of_one = max((math.ceil(1.5 * math.log2(len(group))) for group in filled), default=0)
        more = wording.pluralize(len(filled) + of_one, "build")
        where = f"{changes} in {wording.pluralize(len(filled), 'group')}"
        each = f"the first took {wording.duration(baseline.seconds)}"
        limit = f"ends after {wording.duration(self._options.time_limit)} (--time-limit)"
        return f"{where}: about {more} more at most where one of them is to blame; {each}; {limit}"

    def _groups(self, baseline: BuildTrial) -> Iterator[tuple[build_changes.Change, ...]]:
        """Changes that are tried together first: what was asked for, then what is likely, by what is wrong."""
        configs, met = self._options.inductor_configs, baseline.applied
        settings = tuple(build_changes.suspects(configs, baseline.device))
        passes = without(build_changes.Part.PASS, met.passes)
        suspected = tuple(name for name in baseline.suspects if name in met.lowerings)
        lowerings = tuple(dict.fromkeys((*suspected, *met.lowerings)))
        operators = (without(build_changes.Part.LOWERING, suspected), without(build_changes.Part.LOWERING, lowerings))
        decompositions = without(build_changes.Part.DECOMPOSITION, met.decompositions)
        yield tuple(build_changes.asked_for(configs))
        if baseline.finding is BuildFault.DIFFERENCE:  # aoti-debug equal tries all else
            yield settings
        elif baseline.finding is BuildFault.OUTPUT:
            yield from (passes, decompositions, settings, *operators)
        else:
            yield from (settings, *operators, decompositions, passes)


def without(part: build_changes.Part, names: Sequence[str]) -> tuple[build_changes.Change, ...]:
    """The changes that leave out parts of these names, each by itself."""
    return tuple(build_changes.LeaveOut(part, name) for name in names)


@dataclass(frozen=True, kw_only=True)
class BisectOptions(ModelCalls):
    """Two models of one program, a right and a wrong one.

    Attributes:
        good, bad: each an exported program, a compiled or an instrumented package.
        out: the directory in which the directory of the bisection is made.
    """

    good: Path
    bad: Path
    out: Path = field(default_factory=ResultKind.BISECTS.place)


@dataclass(frozen=True)
class SuspectLaunch:
    """A launch that writes other results than the good package does, from the same inputs.

    Attributes:
        tensors: those that differ from its counterpart's; () if it has none.
        verdict: of the comparison with the program; None if it is not comparable.
        is_culprit: True if rounding does not explain the difference.
    """

    launch: Launch
    tensors: tuple[TensorDifference, ...]
    verdict: LaunchVerdict | None
    is_culprit: bool


@dataclass(frozen=True, kw_only=True)
class Bisection:
    """The launches that make a package wrong.

    Attributes:
        good, bad: runs of both as they are.
        by: how their launches are paired.
        paired: the number of pairs.
        same: of these, the ones with the same results from the same inputs.
        suspects: launches of the bad package with other results, in order.
        between: launches one of which is to blame, where replacing the suspects' results was not enough.
        outputs: their errors against the good package's, as the bad one is, and with the culprits' results replaced.
        runs: the number of runs that it took.
    """

    good: RunDir
    bad: RunDir
    by: PairedBy
    paired: int
    same: int
    suspects: tuple[SuspectLaunch, ...]
    between: tuple[Launch, ...]
    outputs: Outputs
    runs: int
    notes: tuple[str, ...]

    @property
    def culprits(self) -> tuple[SuspectLaunch, ...]:
        """The suspects whose difference rounding does not explain."""
        return tuple(suspect for suspect in self.suspects if suspect.is_culprit)

    @property
    def is_clean(self) -> bool:
        """True if nothing but rounding differs."""
        return not self.culprits and not self.between and all(error.is_right for error in self.outputs.before)


def bisect_packages(options: BisectOptions, listener: StepListener | None = None) -> Bisection:
    """Finds the launches that make the bad package wrong.

    Raises:
        ModelFaultError: one of them does not end well.
        UsageError: the models were called with other inputs, or are other programs.
        ArtifactError, ToolchainError, TargetError: one of them cannot be built or started.
        RunDirError: a run cannot be read.
    """
    forking = python_process.forking_from(PRELOADED, options.user_code.imports)
    with stamped_directories.new_folder(options.out) as folder, forking as server:
        server.preload()
        return _Packages(options, folder, Steps(listener)).bisect()


@dataclass(frozen=True)
class _Recorded:
    """Both packages as they are."""

    good: SubstitutedRun
    bad: SubstitutedRun
    pairing: Pairing
    notes: tuple[str, ...]


class _Packages:
    def __init__(self, options: BisectOptions, folder: Path, steps: Steps) -> None:
        session = ReplaySession(options.recorded(options.bad, folder / "runs"), folder, steps)
        self._models = (options.good, options.bad)
        self._good = session.of_model(options.good, "good")
        self._bad = session.of_model(options.bad, "bad")
        self._folder = folder
        self._steps = steps

    def bisect(self) -> Bisection:
        recorded = self._recorded()
        results = {pair.launch.id: tuple(results_of(pair, recorded.good.run)) for pair in recorded.pairing.pairs}
        forced = self._bad.again("with good's results", [item for items in results.values() for item in items], level=1)
        suspects = self._suspects(recorded.good.run, forced.run)
        before = errors(recorded.bad.outputs, recorded.good.outputs)
        after = before
        between: tuple[Launch, ...] = ()
        culprits = [suspect for suspect in suspects if suspect.is_culprit]
        if culprits:
            replaced = self._replacements(culprits, results, forced.run)
            after = self._errors("with the culprits replaced", replaced, recorded)
        if not all(error.is_right for error in after):
            between = self._between(recorded, results)
        outputs = Outputs(before, after)
        same = sum(pair.launch.id not in {s.launch.id for s in suspects} for pair in recorded.pairing.pairs)
        return Bisection(
            good=recorded.good.run,
            bad=recorded.bad.run,
            by=recorded.pairing.by,
            paired=len(recorded.pairing.pairs),
            same=same,
            suspects=tuple(suspects),
            between=between,
            outputs=outputs,
            runs=self._good.runs + self._bad.runs,
            notes=(*recorded.notes, *dict.fromkeys(forced.refused)),
        )

    def _recorded(self) -> _Recorded:
        good = self._good.again("good", (), level=1)
        bad = self._bad.again("bad", (), level=1)
        require_end(good.run, self._models[0])
        require_end(bad.run, self._models[1])
        pairing, notes = pair_runs(good.run, bad.run)
        if not pairing.pairs:
            raise UsageError(
                "no launch of one model computes what a launch of the other does",
                hint="pass two packages of one program",
            )
        if names := differing_inputs(pairing, bad.run):
            raise UsageError(
                f"the models were called with other inputs or weights: {wording.join_truncated(names, 4)}",
                hint="--inputs FILE for both; weights have to be the same",
            )
        return _Recorded(good, bad, pairing, notes)

    def _suspects(self, good: RunDir, forced: RunDir) -> list[SuspectLaunch]:
        """The launches that write other results than the good package's, from its results."""
        pairing, _ = pair_runs(good, forced)
        differing = {
            pair.launch.id: tuple(difference_of(write, good, forced) for write in pair.writes if write.equal is False)
            for pair in pairing.pairs
        }
        differing = {launch: tensors for launch, tensors in differing.items() if tensors}
        alone = {launch.id for launch in pairing.only_b}
        looked_at = [launch for launch in forced.launches if launch.id in differing or launch.id in alone]
        verdicts = self._verdicts(forced, looked_at)
        found = []
        for launch in looked_at:
            tensors, verdict = differing.get(launch.id, ()), verdicts.get(launch.id)
            of_bytes = any(not is_rounding(tensor, good, forced) for tensor in tensors)
            found.append(SuspectLaunch(launch, tensors, verdict, of_bytes if verdict is None else verdict in BAD))
        return [suspect for suspect in found if suspect.tensors or suspect.is_culprit]

    def _verdicts(self, run: RunDir, launches: Sequence[Launch]) -> dict[str, LaunchVerdict]:
        """The verdicts on launches, against the program, from the inputs that they were given."""
        if not launches or not has_reference(run):
            return {}
        options = self._bad.options
        ids = frozenset(launch.id for launch in launches)
        scope = Scope(launches=ids, inherited=False, user_code=options.user_code)
        folder = self._folder / "compare"
        folder.mkdir()
        rows = compare_run(run, scope, folder, self._steps).rows
        return {row.launch.id: row.verdict for row in rows if row.verdict is not LaunchVerdict.NOT_COMPARABLE}

    def _replacements(
        self, culprits: Iterable[SuspectLaunch], results: dict[str, tuple[Replace, ...]], forced: RunDir
    ) -> list[Replace]:
        """Right results for culprits: the good package's; where it has none, the program's."""
        found: list[Replace] = []
        missing = {}
        for culprit in culprits:
            given = results.get(culprit.launch.id, ())
            found += given
            if not given:
                missing[culprit.launch.id] = ValueArithmetic.EAGER
        if missing:
            options = self._bad.options
            scope = Scope(user_code=options.user_code)
            found += program_values(forced, missing, scope, self._folder / "program").replacements
        return found

    def _errors(self, name: str, replaced: Sequence[Replace], recorded: _Recorded) -> tuple[OutputError, ...]:
        return errors(self._bad.again(name, replaced).outputs, recorded.good.outputs)

    def _between(self, recorded: _Recorded, results: dict[str, tuple[Replace, ...]]) -> tuple[Launch, ...]:
        """The launches one of which is to blame: with the results of all before them replaced, the outputs are wrong.

        With those of the pair after them replaced as well, the outputs are right.
        """
        pairs = recorded.pairing.pairs

        def is_right(count: int) -> bool:
            replaced = [item for pair in pairs[:count] for item in results[pair.launch.id]]
            name = f"with the first {wording.pluralize(count, 'result')} replaced"
            return all(error.is_right for error in self._errors(name, replaced, recorded))

        wrong, right = 0, len(pairs)
        if not is_right(right):
            return ()
        while right - wrong > 1:
            middle = (wrong + right) // 2
            wrong, right = (wrong, middle) if is_right(middle) else (middle, right)
        first = pairs[wrong - 1].launch.sequence if wrong else -1
        last = pairs[right - 1].launch.sequence
        return tuple(launch for launch in recorded.bad.run.launches if first < launch.sequence <= last)
