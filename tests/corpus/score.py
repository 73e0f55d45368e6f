"""Triages cases of the corpus with the command line and judges what it says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from aoti_debug.app.cli import main
from tests import native_library
from tests.corpus.case import Case, Expected, Line
from tests.paths import ROOT

Execute = Callable[[Sequence[str], Path], tuple[int, str, str]]

LIMIT = 900.0  # seconds, for one triage
EXITS = {"clean": 0, "incomplete": 8}  # of the command line, by kind; 1 otherwise
OUTPUT_LINES = 12


@dataclass(frozen=True)
class Exported:
    """A case on the disk, ready to be triaged.

    Attributes:
        inputs: the file of the run's inputs; None for the program's own.
        origins: the lines that are marked as the fault's origin.
        library: of native_library.py; None where the model does not need it.
    """

    case: Case
    program: Path
    inputs: Path | None
    origins: tuple[Line, ...]
    library: Path | None


@dataclass(frozen=True)
class Outcome:
    """
    Attributes:
        verdict: the JSON object that was printed; None where there was none.
        seconds: of the whole command.
        building: seconds of them that went into the package.
        said: the end of stderr.
    """

    verdict: Mapping[str, Any] | None
    returncode: int
    seconds: float
    building: float
    said: str


@dataclass(frozen=True)
class Judgement:
    """What is wrong with a verdict and with its origin; nothing: they are right."""

    verdict: tuple[str, ...]
    origin: tuple[str, ...]

    @property
    def right(self) -> bool:
        return not self.verdict and not self.origin


def environment() -> dict[str, str]:
    """This process's, in which children find aoti_debug and the corpus and no setting of ours is left."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTI_DEBUG_", "AOT_INDUCTOR_DEBUG_"))}
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**kept, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def export(cases: Sequence[Case], device: str, folder: Path) -> Iterator[Exported]:
    """Exports cases below `folder`, in one process, and yields each as soon as it is there.

    Raises:
        RuntimeError: one could not be exported.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = native_library.compiled() if any(case.native for case in cases) else None
    missing = [case.name for case in cases if not (folder / case.name / "case.json").exists()]
    command = [sys.executable, "-m", "tests.corpus.export", str(folder), device, *([str(library)] if library else [])]
    log = folder / "export.log"
    with log.open("ab") as errors:
        exporting = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment()
        )
        assert exporting.stdin is not None
        assert exporting.stdout is not None
        try:
            exporting.stdin.write("\n".join(missing))
            exporting.stdin.close()
            for case in cases:
                if case.name in missing and exporting.stdout.readline().strip() != case.name:
                    raise RuntimeError(f"{case.name} was not exported:\n{log.read_text()[-3000:]}")
                yield exported(case, folder, library)
        finally:
            exporting.stdout.close()
            exporting.kill()
            exporting.wait()


def exported(case: Case, folder: Path, library: Path | None) -> Exported:
    place = folder / case.name
    described = json.loads((place / "case.json").read_text())
    return Exported(
        case=case,
        program=place / "model.pt2",
        inputs=place / "inputs.pt" if described["inputs"] else None,
        origins=tuple(Line(Path(file), line, text) for file, line, text in described["origins"]),
        library=library if case.native else None,
    )


def command(of: Exported, model: Path | None = None) -> list[str]:
    """The arguments of the command line, without `--out`.

    Args:
        model: an instrumented package of the case, in the place of the program.
    """
    case, words = of.case, ["triage", str(model or of.program), "--json"]
    words += [word for module in case.imports for word in ("--import", module)]
    words += ["--load-library", str(of.library)] if of.library else []
    words += ["--inputs", str(of.inputs)] if of.inputs else []
    words += [word for key, value in case.configs.items() for word in ("--inductor-config", f"{key}={value}")]
    return [*words, *case.options]


def in_a_process(arguments: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Executes the command line in a folder; returns the exit code, stdout and stderr."""
    ran = subprocess.run(
        [sys.executable, "-m", "aoti_debug", *arguments],
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT,
        check=False,
    )
    return ran.returncode, ran.stdout, ran.stderr


def here(arguments: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Executes the command line in this process, with its fork server and in its working directory."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        code = main.run(arguments)
    return code, output.getvalue(), errors.getvalue()


def triage(of: Exported, folder: Path, execute: Execute, model: Path | None = None) -> Outcome:
    """Triages a case in `folder`; see `command` for `model`."""
    folder.mkdir(parents=True, exist_ok=True)
    base = folder / "triages"
    began = time.monotonic()
    code, output, errors = execute([*command(of, model), "--out", str(base)], folder)
    seconds = time.monotonic() - began
    verdict = json.loads(output) if code in (0, 1, 8) and output.strip() else None
    return Outcome(verdict, code, seconds, _building(base), "\n".join(errors.splitlines()[-OUTPUT_LINES:]))


def _building(base: Path) -> float:
    record = base / "latest" / "triage.json"
    if not record.exists():
        return 0.0
    return sum(float(step["seconds"]) for step in json.loads(record.read_text())["steps"] if step["name"] == "build")


def judge(of: Exported, outcome: Outcome) -> Judgement:
    verdict = outcome.verdict
    if verdict is None:
        return Judgement((f"exit code {outcome.returncode} and no verdict: {outcome.said}",), ("none",))
    expected = of.case.expected
    code = EXITS.get(verdict["kind"], 1)
    wrong = [] if outcome.returncode == code else [f"exit code {outcome.returncode} for {verdict['kind']}"]
    if expected is None:
        is_open = bool(of.case.not_compared) and of.case.not_compared in verdict["what"]
        right = verdict["kind"] == ("incomplete" if is_open else "clean")
        false_alarm = [] if right else [f"{verdict['kind']}: {verdict['what']}"]
        return Judgement((*wrong, *false_alarm), ())
    return Judgement((*wrong, *_wrong(expected, verdict)), _wrong_origin(of, expected, verdict))


def _wrong(expected: Expected, verdict: Mapping[str, Any]) -> list[str]:
    if verdict["kind"] != expected.kind:
        return [f"{verdict['kind']} instead of {expected.kind}: {verdict['what']}"]
    wrong = []
    names = [verdict["kernel"] or "", verdict["operator"] or ""]
    if not any(fnmatchcase(name, pattern) for name in names for pattern in expected.kernels):
        wrong.append(f"{' '.join(filter(None, names)) or 'no kernel'} instead of {' or '.join(expected.kernels)}")
    if expected.arguments and not any(fnmatchcase(verdict["argument"] or "", p) for p in expected.arguments):
        wrong.append(f"argument {verdict['argument']} instead of {' or '.join(expected.arguments)}")
    if verdict["launch"] and int(verdict["launch"].partition(".")[0]) != expected.call:
        wrong.append(f"launch {verdict['launch']} instead of call {expected.call}")
    said = [*verdict["evidence"], *(f"in {frame}" for frame in verdict["stack"])]
    wrong += [f"no evidence says {part!r}" for part in expected.says if not any(part in e for e in said)]
    if expected.confirmed and not any(fnmatchcase(text, expected.confirmed) for text in verdict["confirmed_by"]):
        wrong.append(f"confirmed by {verdict['confirmed_by'] or 'nothing'}")
    return wrong


def _wrong_origin(of: Exported, expected: Expected, verdict: Mapping[str, Any]) -> tuple[str, ...]:
    place = verdict["origin"] or verdict
    if place["input"] and _plain(place["input"]) in {_plain(name) for name in expected.inputs}:
        return ()
    if not place["input"] and place["file"]:
        found = (Path(place["file"]).resolve(), place["line"])
        if found in {(line.file, line.line) for line in of.origins}:
            return ()
    wanted = [f"input {name}" for name in expected.inputs] + [f"line {line.line}: {line.text}" for line in of.origins]
    shown = f"input {place['input']}" if place["input"] else f"line {place['line']}: {place['text']}"
    return (f"{shown} instead of {' or '.join(wanted)}",)


def _plain(name: str) -> str:
    """A weight is `linear.weight` to the user and `linear_weight` in C++."""
    return name.replace(".", "_")
