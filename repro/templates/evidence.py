"""`--evidence`: writes the findings as one JSON object, whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from .accesses import lines_of
from .child import ReplayReport
from .job import AS_RECORDED, DIFFERS, FAILED, FAULT, NO_FAULT, Job
from .options import Options

OUTCOMES = {AS_RECORDED: "as recorded", DIFFERS: "differs", FAULT: "fault", NO_FAULT: "no fault"}
LOOKS_FOR_FAULTS = ("sanitize", "poison")  # options whose code 0 means that no fault was found
OPERATOR = "operator"  # the mode of a launch that has no kernel of its own


class CopiedStream:
    """A text stream that keeps a copy of what is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.text: list[str] = []

    def write(self, text: str) -> int:
        """Writes the text and keeps a copy."""
        self.text.append(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def lines(self) -> list[str]:
        """The lines that were written."""
        return "".join(self.text).splitlines()


def run_with_evidence(job: Job, options: Options, path: Path, run: Callable[[ReplayReport], int]) -> int:
    """Calls `run`, writes the evidence file however it ends, and returns the exit code.

    Raises:
        SystemExit: `run` does, or the file cannot be written.
    """
    report, output = ReplayReport(None), CopiedStream(sys.stdout)
    try:
        with contextlib.redirect_stdout(output):
            code = run(report)
    except (SystemExit, Exception) as error:
        report.what = report.what or str(error)
        _write(path, _evidence(job, options, report, FAILED, output.lines()))
        raise
    _write(path, _evidence(job, options, report, code, output.lines()))
    return code


def _evidence(job: Job, options: Options, report: ReplayReport, code: int, lines: list[str]) -> dict[str, object]:
    outcome = OUTCOMES.get(code, "failed")
    if code == AS_RECORDED and options.option in LOOKS_FOR_FAULTS:
        outcome = OUTCOMES[NO_FAULT]
    return {
        "title": job.title,
        "mode": options.backend or OPERATOR,
        "option": options.option,
        "sanitize": options.sanitize,
        "outcome": outcome,
        "code": code,
        "what": report.what.partition("\n")[0].rstrip(":") or _what(job, report, code, lines),
        "accesses": [access.evidence() for access in report.accesses],
        "lines": lines,
    }


def _what(job: Job, report: ReplayReport, code: int, lines: list[str]) -> str:
    """The first wrong access, or else the first line printed about the launch; "" if there is no fault."""
    if report.accesses:
        return lines_of(report.accesses[0])[0]
    summaries = (line.removeprefix(job.title) for line in lines if line.startswith(job.title))
    return "" if code in (AS_RECORDED, NO_FAULT) else next(summaries, "").lstrip(": ")


def _write(path: Path, content: dict[str, object]) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise SystemExit(f"cannot write {path}: {error.strerror}") from error
