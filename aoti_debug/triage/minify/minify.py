"""Finds the smallest part of a program that still shows its finding, by running scripts of parts."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.machine import user_code
from aoti_debug.base.machine.compiler import installed_versions
from aoti_debug.base.machine.processes import python_process
from aoti_debug.base.machine.steps import StepListener, Steps
from aoti_debug.compare.bisect.delta_debugging import SetOutcome, smallest
from aoti_debug.package.inputs import input_files
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.runs.run.protocol import PRELOADED
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.triage.minify import script_results
from aoti_debug.triage.minify.attempt import SMALL, Attempt, AttemptScript, InputForm, InputMode, sizes_of
from aoti_debug.triage.minify.known_finding import PROGRAM, known_finding, verdict_of
from aoti_debug.triage.minify.minified import Minified, Smallest
from aoti_debug.triage.minify.script_text import SCRIPT, ScriptCheck, ScriptSetup, checks_of
from aoti_debug.triage.minify.start_parts import MinifyOptions, Start, Unit, starts_of

MAX_TRIAGED = 4  # candidates that are triaged
RESULT = "repro"
_STARTS, _CANDIDATES = "starts", "candidates"  # while it searches
_FEW = 4  # more runs of the result
_MANY = 20  # of what does not show itself every time
Confirm = Callable[[Path, Finding, MinifyOptions, StepListener | None], script_results.ScriptVerdict]


def key_of(options: MinifyOptions) -> str:
    """The identity of a minimisation, in hexadecimal digits.

    It is that of the program, its settings and inputs, of the user's modules and libraries, and of what is installed.
    """
    code, digest = options.user_code, sha256(options.program.read_bytes())
    if options.inputs is not None:
        digest.update(options.inputs.read_bytes())
    for path in (*user_code.files_of(code.imports), *filter(Path.is_file, code.libraries)):
        digest.update(sha256(path.read_bytes()).digest())
    digest.update(json.dumps(installed_versions("torch", "aoti-debug"), sort_keys=True).encode())
    words = (
        options.inductor_configs,
        options.calls,
        options.guards,
        code.imports,
        code.libraries,
    )
    digest.update(json.dumps(words, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def likely_parts(start: Start, check: ScriptCheck, finding: Finding) -> Iterator[tuple[Unit, ...]]:
    """Yields single calls, these with the calls that they read, and the whole start, each once.

    Likely is a call that fails in eager, one that makes what is not finite, and the operator that the finding names.
    """
    parts: dict[tuple[Unit, ...], None] = {}
    for name in _suspects(start, check, finding):
        unit = next((unit for unit in start.units if name in unit), None)
        if unit is not None:
            parts[(unit,)] = parts[_with_sources(start, unit)] = None
    yield from dict.fromkeys((*parts, start.units))


def _with_sources(start: Start, unit: Unit) -> tuple[Unit, ...]:
    """A call with those of the start that it reads."""
    sources = {source for name in unit for source in start.graph.by_name[name].inputs}
    return tuple(other for other in start.units if other == unit or sources.intersection(other))


def _suspects(start: Start, check: ScriptCheck, finding: Finding) -> Iterator[str]:
    """The names of likely calls."""
    if start.failing:
        yield start.failing
    if check in (ScriptCheck.NAN, ScriptCheck.INFINITY):
        bad = (line for line in start.lines if line.file and (line.has_nan or line.has_infinity))
        yield from (line.after or line.node for line in bad)
        return
    places = (finding.origin, finding.where)
    operators = {place.operator for place in places if place is not None and place.operator}
    yield from (node.name for node in start.graph.nodes if node.target in operators)


def candidates(
    simplified: Attempt, reduced: Attempt, seen: Iterable[Attempt], others: Iterable[Attempt]
) -> Iterator[Attempt]:
    """Yields the smallest attempt, the same with the recorded inputs, then larger ones that showed the finding.

    Args:
        simplified: with simpler inputs, or equal to `reduced`.
        seen: while it was reduced; the next larger one comes first.
        others: that were not reduced, the likeliest first; read only as far as they are asked for.
    """
    yield simplified
    if reduced != simplified:
        yield reduced
    known = {_identity(reduced)}
    for attempt in itertools.chain(sorted(seen, key=lambda attempt: len(attempt.units)), others):
        is_larger = len(attempt.units) > len(reduced.units)
        if is_larger and _identity(attempt) not in known:
            known.add(_identity(attempt))
            yield attempt


def _identity(attempt: Attempt) -> tuple[str, tuple[Unit, ...]]:
    return attempt.start.name, attempt.units


def minify(
    options: MinifyOptions,
    listener: StepListener | None = None,
    run: script_results.Run = script_results.run_script,
    confirm: Confirm = verdict_of,
) -> Minified:
    """Finds the smallest script that shows the finding of a program; resumes an interrupted minimisation of the same.

    Args:
        run: runs a script, and adds to its trial what that showed; one run of it may take so many seconds.
        confirm: triages the program of a script, which says if it has the finding.

    Raises:
        UsageError: the directory cannot be made, or the program is not trusted.
        ArtifactError: the program is none, or its inputs are missing or do not fit.
        ToolchainError, TargetError, RunDirError: it cannot be built, run or read.
    """
    found = archive.inspect(options.program)
    if found.kind is not ArtifactKind.EXPORTED:
        raise ArtifactError(
            f"{options.program} is {found.kind.value}: it has no parts that could be compiled alone",
            hint="pass the exported program; of a launch of a run, aoti-debug repro --fx writes the operators",
        )
    if options.inputs is not None:
        input_files.check_is_file(options.inputs)
    trust.require(found, trusted=options.user_code.trusted)
    key = key_of(options)
    folder = (options.out / key[:12]).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}", hint="--out DIR") from error
    with python_process.forking_from(PRELOADED, options.user_code.imports):
        return _Minimisation(
            options, folder, script_results.ScriptTrials(folder, key), listener, run, confirm
        ).minified()


class _Minimisation:
    def __init__(
        self,
        options: MinifyOptions,
        folder: Path,
        trials: script_results.ScriptTrials,
        listener: StepListener | None,
        run: script_results.Run,
        confirm: Confirm,
    ) -> None:
        self._confirm = confirm
        self._options = options
        self._folder = folder
        self._trials = trials
        self._listener = listener
        self._steps = Steps(listener)
        self._notes: list[str] = []
        setting = ScriptSetup(
            configs=options.inductor_configs,
            folders=user_code.folders_of(options.user_code.imports),
            imports=options.user_code.imports,
            libraries=options.user_code.library_paths,
            seconds=options.stall,
        )
        self._scripts = script_results.Scripts(folder, trials, run, setting, options.most_scripts, self._steps)

    def minified(self) -> Minified:
        finding, done = known_finding(self._options, self._folder, self._trials, self._steps, self._listener)
        best: Smallest | None = None
        refused: tuple[script_results.TriagedScript, ...] = ()
        if finding.kind.is_fault:
            self._scripts.title = _title(self._options, finding)
            showing = self._showing(finding, None if done.run is None else done.open_run(done.run))
            shown = next(showing, None)
            if shown is not None:
                best, refused = self._confirmed(self._candidates(shown, showing), finding)
        if self._scripts.is_spent:
            self._notes.append(f"ended after {len(self._trials.all)} scripts; a larger --most-scripts resumes")
        else:
            self._trials.finish()
        for name in (_STARTS, _CANDIDATES, script_results.FOLDER):  # they hold values of the program
            shutil.rmtree(self._folder / name, ignore_errors=True)
        return Minified(finding, self._trials.all, self._trials.earlier, best, refused, tuple(self._notes))

    def _showing(self, finding: Finding, run: RunDir | None) -> Iterator[Attempt]:
        """Yields the attempts that show the finding: likely parts of a start, or all of it."""
        failed = []
        is_shown = False
        for start in starts_of(self._options, finding, run, self._folder / _STARTS, self._notes.append):
            for check in checks_of(finding):
                for units in likely_parts(start, check, finding):
                    attempt = Attempt(start, units, check)
                    if self._scripts.tried(attempt).shown:
                        is_shown = True
                        yield attempt
                    else:
                        failed.append(attempt)
        if not is_shown:
            often = (replace(attempt, runs=_MANY) for attempt in failed if attempt.units == attempt.start.units)
            yield from (attempt for attempt in often if self._scripts.tried(attempt).shown)

    def _candidates(self, whole: Attempt, others: Iterator[Attempt]) -> Iterator[Attempt]:
        """The smallest attempt like one that shows the finding, then larger ones."""
        first = self._scripts.tried(whole).observed
        seen = []

        def outcome(units: tuple[Unit, ...]) -> SetOutcome:
            attempt = replace(whole, units=units)
            found = self._scripts.outcome(attempt, first)
            if found is SetOutcome.YES:
                seen.append(attempt)
            return found

        reduced = replace(whole, units=smallest(whole.units, outcome) or whole.units)
        return candidates(self._simplified(reduced), reduced, seen, others)

    def _simplified(self, attempt: Attempt) -> Attempt:
        """The attempt with inputs that need no file, and are small, if it shows the finding with these.

        Random numbers lie in other ranges than the recorded ones: log makes NaN of them without any fault.
        """
        if attempt.check in (ScriptCheck.NAN, ScriptCheck.INFINITY):
            return attempt
        first = self._scripts.tried(attempt).observed
        script = self._scripts.script(attempt)
        sizes = {} if script is None else dict.fromkeys(sizes_of(attempt.start, script.module), SMALL)
        forms = [
            InputForm(InputMode.SEED, sizes),
            *([InputForm(InputMode.SEED)] if sizes else []),
            InputForm(InputMode.LITERAL),
        ]
        simple = (replace(attempt, form=form) for form in forms)
        return next((a for a in simple if self._scripts.outcome(a, first) is SetOutcome.YES), attempt)

    def _confirmed(
        self, attempts: Iterator[Attempt], finding: Finding
    ) -> tuple[Smallest | None, tuple[script_results.TriagedScript, ...]]:
        """The first attempt that a triage confirms, else the first of all; and those that were not confirmed."""
        refused: list[script_results.TriagedScript] = []
        first: Attempt | None = None
        for attempt in itertools.islice(attempts, MAX_TRIAGED):
            first = first or attempt
            verdict = self._verdict(attempt, finding)
            if verdict.confirmation is script_results.TriageAnswer.YES:
                return self._result(attempt, verdict), tuple(refused)
            refused.append(script_results.TriagedScript(attempt.name, verdict))
        assert first is not None, "what shows the finding is a candidate itself"
        return self._result(first, refused[0].verdict), tuple(refused)

    def _verdict(self, attempt: Attempt, finding: Finding) -> script_results.ScriptVerdict:
        """The verdict of a triage of an attempt's program; that of an interrupted minimisation is taken from there."""
        script = self._scripts.script(attempt)
        assert script is not None
        known = self._trials.verdict(script.hash)
        folder = self._candidate(script)
        if known is not None and folder.is_dir():
            return known
        verdict = self._confirm(script.write(folder), finding, self._options, self._listener)
        self._trials.judge(script.hash, verdict)
        return verdict

    def _candidate(self, script: AttemptScript) -> Path:
        return self._folder / _CANDIDATES / script.hash[:12]

    def _result(self, attempt: Attempt, verdict: script_results.ScriptVerdict) -> Smallest:
        """Keeps the script of an attempt, after a look at whether it shows the finding every time."""
        script = self._scripts.script(attempt)
        assert script is not None
        result = self._folder / RESULT
        shutil.rmtree(result, ignore_errors=True)
        self._candidate(script).rename(result)
        first = self._scripts.tried(attempt)
        shown, runs = first.shown, first.runs
        if attempt.runs == 1:
            more = self._scripts.tried(replace(attempt, runs=_FEW))
            if not more.failure:
                shown, runs = shown + more.shown, runs + more.runs
            often = replace(attempt, runs=_MANY)
            if shown < runs and not self._scripts.tried(often).failure:
                script, shown, runs = self._scripts.script(often) or script, self._scripts.tried(often).shown, _MANY
        path = result / SCRIPT
        path.write_text(script.text, encoding="utf-8")
        program = path.with_name(PROGRAM)
        return Smallest(
            script=path,
            lines=script.lines,
            calls=script.module.calls,
            among=len(attempt.start.units),
            start=attempt.start.name,
            operators=tuple(attempt.start.graph.by_name[unit[0]].target for unit in attempt.units),
            observed=first.observed,
            fails_in_eager=any(attempt.start.failing in unit for unit in attempt.units),
            shown=shown,
            runs=runs,
            verdict=verdict,
            program=program if program.is_file() else None,
        )


def _title(options: MinifyOptions, finding: Finding) -> str:
    where = finding.where
    place = f" in {where.launch} {where.kernel}" if where is not None and where.launch else ""
    what = finding.what.partition("\n")[0]
    return f"{finding.kind.heading}{place} of {options.program.name}: {what}"
