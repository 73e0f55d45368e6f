"""Finds the setting, the pass or the lowering of Inductor that makes a program wrong, by building it repeatedly."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from aoti_debug import wording
from aoti_debug.bisect.options import SettingsOptions
from aoti_debug.bisect.suspects import SettingChange, suspects
from aoti_debug.bisect.trials import Operator, Trial, Trials
from aoti_debug.compare.compare import compare
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.comparison import BAD, Comparison
from aoti_debug.compare.options import CompareOptions
from aoti_debug.compare.text import state_text
from aoti_debug.errors import AotiDebugError, ArtifactError, UsageError
from aoti_debug.frontend.pass_limit import SUBSYSTEMS, PassLimit
from aoti_debug.machine.steps import StepListener, Steps
from aoti_debug.pt2 import archive
from aoti_debug.pt2.archive import ArtifactKind

AS_IT_IS = "as it is"
_ALL = 1 << 31  # applications
_MOST_OPERATORS = 6


@dataclass(frozen=True)
class SettingsBisection:
    """The cause of a finding among the settings, passes and lowerings.

    Attributes:
        trials: all builds, in order, those of an earlier, interrupted bisection first.
        known: how many of them that were.
        change: the smallest change that heals it, as a line to paste; "" if none was found.
        cause: what it concerns: "the vector width", "application 12 of lowerings: …".
    """

    trials: tuple[Trial, ...]
    known: int
    change: str = ""
    cause: str = ""


def bisect_settings(options: SettingsOptions, listener: StepListener | None = None) -> SettingsBisection:
    """Finds out what makes a program wrong; an interrupted bisection of the same goes on.

    Raises:
        UsageError: the directory cannot be made.
        ArtifactError: the program is none.
        ToolchainError, TargetError, RunDirError: it cannot be built or run as it is.
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
    return _Settings(options, folder, Trials(folder, key, options.inductor_configs), Steps(listener)).bisect()


def key_of(options: SettingsOptions) -> str:
    """The identity of a bisection, in hexadecimal digits: of the program, its settings and inputs."""
    digest = sha256(options.program.read_bytes())
    if options.inputs is not None:
        digest.update(options.inputs.read_bytes())
    words = (options.inductor_configs, options.calls, options.imports, [str(path) for path in options.libraries])
    digest.update(json.dumps(words, sort_keys=True, default=str).encode())
    return digest.hexdigest()


class _Settings:
    def __init__(self, options: SettingsOptions, folder: Path, trials: Trials, steps: Steps) -> None:
        self._options = options
        self._configs = options.inductor_configs
        self._folder = folder
        self._trials = trials
        self._steps = steps
        self._log = str(folder / "applied.txt")

    def bisect(self) -> SettingsBisection:
        as_it_is = self._tried(AS_IT_IS, self._configs)
        if as_it_is.is_right:
            return self._ended()
        for change in suspects(self._configs, as_it_is.device):
            if self._tried(change.option, change.applied_to(self._configs)).is_right:
                return self._ended(change.option, _concern(change))
        for operator in as_it_is.operators:
            limit = PassLimit("lowerings", _ALL, self._log, operator.nodes)
            if self._tried(f"without the lowering of {operator.name}", self._configs, limit).is_right:
                line = f"torch._inductor.lowering.make_fallback(torch.ops.{operator.name})"
                return self._ended(line, f"the lowering of {operator.name}; the line goes into a module for --import")
        for subsystem in SUBSYSTEMS:
            if self._limited(subsystem, 0).is_right:
                return self._searched(subsystem)
        return self._ended()

    def _searched(self, subsystem: str) -> SettingsBisection:
        """The first application of a subsystem that makes the program wrong, searched by halves."""
        right, wrong = 0, len(self._limited(subsystem, 0).applied)
        while wrong - right > 1:
            middle = (right + wrong) // 2
            right, wrong = (middle, wrong) if self._limited(subsystem, middle).is_right else (right, middle)
        names = self._limited(subsystem, right).applied
        name = names[right] if right < len(names) else ""
        cause = f"application {wrong} of {subsystem}: {name}"
        if subsystem != "lowerings" and name:
            change = SettingChange("disabled_passes", name, name)
            if self._tried(change.option, change.applied_to(self._configs)).is_right:
                return self._ended(change.option, cause)
        variables = ("BACKEND=inductor", f"SUBSYSTEM={subsystem}", f"MAX={right - 1}")
        return self._ended(" ".join(f"TORCH_BISECT_{variable}" for variable in variables), cause)

    def _ended(self, change: str = "", cause: str = "") -> SettingsBisection:
        self._trials.finish()
        return SettingsBisection(self._trials.all, self._trials.known, change, cause)

    def _limited(self, subsystem: str, most: int) -> Trial:
        name = f"at most {most} {subsystem}" if most else f"no {subsystem}"
        return self._tried(name, self._configs, PassLimit(subsystem, most, self._log))

    def _tried(self, name: str, configs: Mapping[str, Any], limit: PassLimit | None = None) -> Trial:
        """The trial of a name: a finished one, or a new one."""
        known = self._trials.find(name)
        if known is not None:
            return known
        began = time.monotonic()
        with self._steps.step(name) as note:
            trial = self._built(name, configs, limit)
            note.text = (trial.failure and f"not tried: {trial.failure}") or trial.wrong or "right"
        self._trials.add(replace(trial, seconds=time.monotonic() - began))
        return trial

    def _built(self, name: str, configs: Mapping[str, Any], limit: PassLimit | None) -> Trial:
        options = self._options
        chosen = CompareOptions(
            model=options.program,
            inputs=options.inputs,
            calls=options.calls,
            out=self._folder / "compares",
            inductor_configs=configs,
            imports=options.imports,
            libraries=options.libraries,
            trusted=options.trusted,
            limit=limit,
        )
        try:
            comparison = compare(chosen)
        except AotiDebugError as error:
            if name == AS_IT_IS:
                raise
            return Trial(name, failure=wording.first_line(str(error)))
        applied = () if limit is None else tuple(Path(limit.log).read_text().splitlines())
        wrong, failure = _finding(comparison), ""
        if not wrong and not comparison.coverage.compared:
            failure = "no launch could be compared with the program"
        operators = tuple(_operators(comparison)) if name == AS_IT_IS and wrong else ()
        if name != AS_IT_IS:
            shutil.rmtree(comparison.directory, ignore_errors=True)
        return Trial(name, wrong, failure, applied, operators, comparison.run.manifest.device)


def _operators(comparison: Comparison) -> Iterator[Operator]:
    """The operators that may be to blame for the wrong launches, the likeliest first."""
    graphs = reference_of(comparison.run)[0].graphs
    suspected = (suspect.operator for row in comparison.rows if row.verdict in BAD for suspect in row.suspects)
    for name in list(dict.fromkeys(suspected))[:_MOST_OPERATORS]:
        nodes = (node.name for graph in graphs for node in graph.nodes if node.target == name)
        yield Operator(name, tuple(nodes))


def _finding(comparison: Comparison) -> str:
    """The finding of a comparison; "" if it is clean."""
    if comparison.first_wrong is not None:
        launch = comparison.first_wrong.launch
        return f"{launch.id} {launch.kernel} is wrong"
    if comparison.wrong_states:
        return state_text(comparison.wrong_states[0])
    return comparison.unfinished


def _concern(change: SettingChange) -> str:
    return f"{change.key}, which was asked for" if change.value is None else change.what
