"""Finds the smallest part of a program that still shows its finding, by running scripts of parts."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from aoti_debug.bisect.smallest import Outcome, smallest
from aoti_debug.diagnosis.findings import Finding
from aoti_debug.errors import ArtifactError, UsageError
from aoti_debug.inputs import files
from aoti_debug.machine import python_process, user_modules
from aoti_debug.machine.steps import StepListener, Steps
from aoti_debug.machine.versions import installed_versions
from aoti_debug.minify.attempt import Attempt, Script, script_of
from aoti_debug.minify.check import Check, checks_of
from aoti_debug.minify.finding import known_finding
from aoti_debug.minify.found import Minified, Smallest
from aoti_debug.minify.inputs import SMALL, Given, InputForm, sizes_of
from aoti_debug.minify.likely import likely_parts
from aoti_debug.minify.options import MinifyOptions
from aoti_debug.minify.run_script import is_like, run_script
from aoti_debug.minify.script_text import Setting
from aoti_debug.minify.starts import starts_of
from aoti_debug.minify.trials import Trial, Trials
from aoti_debug.pt2 import archive, trust
from aoti_debug.pt2.archive import ArtifactKind
from aoti_debug.run.preloaded import PRELOADED

RESULT = "repro"
_STARTS, _TRIAL = "starts", "trial"  # while it searches
_FEW = 4  # more runs of the result
_MANY = 20  # of what does not show itself every time
Run = Callable[[Path, Trial, float], Trial]


def minify(options: MinifyOptions, listener: StepListener | None = None, run: Run = run_script) -> Minified:
    """Finds the smallest script that shows the finding of a program; an interrupted minimisation of the same goes on.

    Args:
        run: runs a script, and adds to its trial what that showed; one run of it may take so many seconds.

    Raises:
        UsageError: the directory cannot be made, or the program is not trusted.
        ArtifactError: the program is none, or its inputs are missing or do not fit.
        ToolchainError, TargetError, RunDirError: it cannot be built, run or read.
    """
    found = archive.inspect(options.program)
    if found.kind is not ArtifactKind.EXPORTED:
        raise ArtifactError(
            f"{options.program} is {found.kind.value}: it has no parts that could be compiled alone",
            hint="pass the exported program; of a recorded launch, aoti-debug repro KERNEL --fx writes the operators",
        )
    if options.inputs is not None:
        files.check_is_file(options.inputs)
    trust.require(found, options.trusted)
    key = key_of(options)
    folder = (options.out / key[:12]).resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error.strerror}", hint="--out DIR") from error
    with python_process.forking_from(PRELOADED, options.imports):
        return _Minimisation(options, folder, Trials(folder, key), listener, run).minified()


def key_of(options: MinifyOptions) -> str:
    """The identity of a minimisation, in hexadecimal digits.

    It is that of the program, its settings and inputs, of the user's modules and libraries, and of what is installed.
    """
    digest = sha256(options.program.read_bytes())
    if options.inputs is not None:
        digest.update(options.inputs.read_bytes())
    for path in (*user_modules.files_of(options.imports), *filter(Path.is_file, options.libraries)):
        digest.update(sha256(path.read_bytes()).digest())
    digest.update(json.dumps(installed_versions("torch", "aoti-debug"), sort_keys=True).encode())
    words = (options.inductor_configs, options.calls, options.guards, options.imports, options.libraries)
    digest.update(json.dumps(words, sort_keys=True, default=str).encode())
    return digest.hexdigest()


class _Minimisation:
    def __init__(
        self,
        options: MinifyOptions,
        folder: Path,
        trials: Trials,
        listener: StepListener | None,
        run: Run,
    ) -> None:
        self._run = run
        self._options = options
        self._folder = folder
        self._trials = trials
        self._listener = listener
        self._steps = Steps(listener)
        self._notes: list[str] = []
        self._title = ""
        self._is_spent = False
        self._setting = Setting(
            configs=options.inductor_configs,
            folders=user_modules.folders_of(options.imports),
            imports=options.imports,
            libraries=tuple(str(path.resolve()) for path in options.libraries),
            seconds=options.stall,
        )

    def minified(self) -> Minified:
        finding, done = known_finding(self._options, self._folder, self._trials, self._steps, self._listener)
        best = None
        if finding.kind.value != "clean":
            self._title = _title(self._options, finding)
            shown = self._shown(finding, done.run)
            best = None if shown is None else self._result(self._simplified(self._reduced(shown)))
        if self._is_spent:
            self._notes.append(f"ended after {len(self._trials.all)} scripts; a larger --most-scripts goes on")
        else:
            self._trials.finish()
        for name in (_STARTS, _TRIAL):  # they hold values of the program
            shutil.rmtree(self._folder / name, ignore_errors=True)
        return Minified(finding, self._trials.all, self._trials.earlier, best, tuple(self._notes))

    def _shown(self, finding: Finding, run: Path | None) -> Attempt | None:
        """The first attempt that shows the finding: a likely part of a start, or all of it; None if none does."""
        attempts = []
        for start in starts_of(self._options, finding, run, self._folder / _STARTS, self._notes.append):
            for check in checks_of(finding):
                for units in likely_parts(start, check, finding):
                    attempt = Attempt(start, units, check)
                    if self._tried(attempt).shown:
                        return attempt
                    attempts.append(attempt)
        often = (replace(attempt, runs=_MANY) for attempt in attempts if attempt.units == attempt.start.units)
        return next((attempt for attempt in often if self._tried(attempt).shown), None)

    def _reduced(self, whole: Attempt) -> Attempt:
        """The smallest attempt like one that shows the finding."""
        first = self._tried(whole).observed
        found = smallest(whole.units, lambda units: self._outcome(replace(whole, units=units), first))
        return replace(whole, units=found or whole.units)

    def _simplified(self, attempt: Attempt) -> Attempt:
        """The attempt with inputs that need no file, and are small, if it shows the finding with these.

        Random numbers lie in other ranges than the recorded ones: log makes NaN of them without any fault.
        """
        if attempt.check in (Check.NAN, Check.INFINITY):
            return attempt
        first = self._tried(attempt).observed
        script = self._script(attempt)
        sizes = {} if script is None else dict.fromkeys(sizes_of(attempt.start, script.module), SMALL)
        forms = [InputForm(Given.SEED, sizes), *([InputForm(Given.SEED)] if sizes else []), InputForm(Given.LITERAL)]
        simple = (replace(attempt, form=form) for form in forms)
        return next((attempt for attempt in simple if self._shows(attempt, first)), attempt)

    def _result(self, attempt: Attempt) -> Smallest:
        """Writes the script of an attempt, after a look at whether it shows the finding every time."""
        first = self._tried(attempt)
        shown, runs = first.shown, first.runs
        if attempt.runs == 1:
            more = self._tried(replace(attempt, runs=_FEW))
            if not more.failure:
                shown, runs = shown + more.shown, runs + more.runs
            often = replace(attempt, runs=_MANY)
            if shown < runs and not self._tried(often).failure:
                attempt, shown, runs = often, self._tried(often).shown, _MANY
        script = self._script(attempt)
        assert script is not None
        return Smallest(
            script=script.write(self._folder / RESULT),
            lines=script.lines,
            calls=script.module.calls,
            among=len(attempt.start.units),
            start=attempt.start.name,
            operators=tuple(attempt.start.graph.by_name[unit[0]].target for unit in attempt.units),
            observed=first.observed,
            fails_in_eager=any(attempt.start.failing in unit for unit in attempt.units),
            shown=shown,
            runs=runs,
        )

    def _shows(self, attempt: Attempt, first: str) -> bool:
        return self._outcome(attempt, first) is Outcome.YES

    def _outcome(self, attempt: Attempt, first: str) -> Outcome:
        """Whether an attempt shows the finding; a part of one that does not may, as what follows may hide it."""
        trial = self._tried(attempt)
        return Outcome.YES if trial.shown and is_like(trial.observed, first) else Outcome.UNKNOWN

    def _tried(self, attempt: Attempt) -> Trial:
        """The trial of an attempt: a finished one, or a new one."""
        script = self._script(attempt)
        if script is None:
            return Trial("", attempt.name, failure="it cannot show the finding")
        known = self._trials.find(script.hash)
        if known is not None:
            return known
        if len(self._trials.all) >= self._options.most_scripts:
            self._is_spent = True
            return Trial("", attempt.name, failure="no more scripts may run")
        with self._steps.step(attempt.name) as note:
            path = script.write(self._folder / _TRIAL)
            trial = self._run(path, Trial(script.hash, attempt.name, runs=attempt.runs), self._options.stall)
            note.text = result_text(trial)
        self._trials.add(trial)
        return trial

    def _script(self, attempt: Attempt) -> Script | None:
        return script_of(attempt, self._title, self._setting)


def result_text(trial: Trial) -> str:
    """The result of a script in words: "relu: Tensor-likes are not close!", "as expected"."""
    if trial.failure:
        return f"not known: {trial.failure}"
    return trial.observed if trial.shown else "as expected"


def _title(options: MinifyOptions, finding: Finding) -> str:
    where = finding.where
    place = f" in {where.launch} {where.kernel}" if where is not None and where.launch else ""
    what = finding.what.partition("\n")[0]
    return f"{finding.kind.heading}{place} of {options.program.name}: {what}"
