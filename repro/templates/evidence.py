"""`--evidence`: what was found, for programs to read. One JSON object, written whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

from .access_text import lines_of
from .child import ReplayReport
from .job import AS_RECORDED, DIFFERS, FAILED, FAULT, NO_FAULT, Job
from .options import Options

OUTCOMES = {AS_RECORDED: "as recorded", DIFFERS: "differs", FAULT: "fault", NO_FAULT: "no fault"}
LOOKS_FOR_FAULTS = ("sanitize", "poison")  # options that find nothing where all is well
OPERATOR = "operator"  # the mode of a launch that has no kernel of its own


class Copied:
    """A text stream whose text is kept as it goes through."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.text: list[str] = []

    def write(self, text: str) -> int:
        self.text.append(text)
        return self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def lines(self) -> list[str]:
        return "".join(self.text).splitlines()


def kept(job: Job, options: Options, path: Path, run: Callable[[ReplayReport], int]) -> int:
    """What `run` returns; whatever it ends in is written down first.

    Raises:
        SystemExit: `run` does, or the file cannot be written.
    """
    report, heard = ReplayReport(None), Copied(sys.stdout)
    try:
        with contextlib.redirect_stdout(heard):
            code = run(report)
    except (SystemExit, Exception) as error:
        report.what = report.what or str(error)
        _write(path, _evidence(job, options, report, FAILED, heard.lines()))
        raise
    _write(path, _evidence(job, options, report, code, heard.lines()))
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
    """The first wrong access, or else what was said first of the launch; "" where all is well."""
    if report.accesses:
        return lines_of(report.accesses[0])[0]
    said = (line.removeprefix(job.title) for line in lines if line.startswith(job.title))
    return "" if code in (AS_RECORDED, NO_FAULT) else next(said, "").lstrip(": ")


def _write(path: Path, content: dict[str, object]) -> None:
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(unfinished, path)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise SystemExit(f"cannot write {path}: {error.strerror}") from error
