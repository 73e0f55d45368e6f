"""Asks aoti-debug about the program of a public report, and reads its answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import checkout
from benchmarks.triage.public_reports.planted import VARIABLE
from benchmarks.triage.public_reports.report import INPUTS, PACKAGE, PROGRAM, Report

KEPT = "answer.json"  # what was printed
LIMIT = 1500.0  # seconds, for one command
SENTENCES = ("what", "evidence", "confirmed_by", "warnings")
PLACE = re.compile(r"([\w./-]+\.py):(\d+)")


@dataclass(frozen=True)
class Place:
    """A place that an answer names: a launch with its model line, or an input."""

    file: str = ""
    line: int = 0
    operator: str = ""
    input: str = ""
    element: int | None = None


@dataclass(frozen=True)
class Answer:
    """
    Attributes:
        kind: of the verdict; "error" where there is none.
        observed: sentences that are stated as facts.
        possible: sentences that are not.
        places: of the findings.
        origins: of the bad values, of the findings that have one.
        code: the exit code.
        said: the end of what went to stderr, for an error.
    """

    kind: str
    observed: tuple[str, ...]
    possible: tuple[str, ...]
    places: tuple[Place, ...]
    origins: tuple[Place, ...]
    code: int
    seconds: float
    said: str = ""


def ask(report: Report, folder: Path) -> Answer:
    """Executes the report's command on the program in `folder` and returns the answer; what was printed is kept."""
    began = time.monotonic()
    done = [_run([sys.executable, *words], folder, report.plant) for words in COMMANDS[report.command](report)]
    seconds = time.monotonic() - began
    kept = {
        "code": done[-1].returncode,
        "stdout": [d.stdout for d in done],
        "stderr": done[-1].stderr,
        "seconds": seconds,
    }
    (folder / KEPT).write_text(json.dumps(kept, indent=1))
    return kept_answer(report, folder)


def kept_answer(report: Report, folder: Path) -> Answer:
    """The answer that `ask` has kept in a folder."""
    kept = json.loads((folder / KEPT).read_text())
    return READERS[report.command](kept["stdout"], kept["code"], kept["seconds"], kept["stderr"])


def environment(plant: str) -> dict[str, str]:
    """This process's, in which children find the reports and aoti_debug, and no setting of ours is left."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("AOTI_DEBUG_", "AOT_INDUCTOR_DEBUG_"))}
    return {**kept, "PYTHONPATH": checkout.python_path(), VARIABLE: plant}


def _run(words: list[str], folder: Path, plant: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        env=environment(plant),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=LIMIT,
        check=False,
    )


def _common(report: Report) -> list[str]:
    modules = ("operators", *(["planted"] if report.plant else []))
    return [word for module in modules for word in ("--import", f"{__package__}.{module}")]


def _words(*first: str) -> Callable[[Report], list[list[str]]]:
    def words(report: Report) -> list[list[str]]:
        configs = [word for key, value in report.configs.items() for word in ("--inductor-config", f"{key}={value}")]
        configs = [] if PACKAGE in first else configs
        return [["-m", "aoti_debug", *first, *_common(report), *configs, *report.options]]

    return words


def _run_and_show(report: Report) -> list[list[str]]:
    common = _common(report)
    build = ["-m", "aoti_debug", "build", PROGRAM, "-o", PACKAGE, *common]
    return [build, ["-m", "aoti_debug", "run", PACKAGE, "--inputs", INPUTS, *common, *report.options]]


COMMANDS: Mapping[str, Callable[[Report], list[list[str]]]] = {
    "triage": _words("triage", PROGRAM, "--inputs", INPUTS, "--json"),
    "compiled": _words("triage", PACKAGE, "--inputs", INPUTS, "--json"),
    "compare": _words("compare", PROGRAM, "--inputs", INPUTS, "--json"),
    "run": _run_and_show,
    "memory": _words("memory", PROGRAM, "--inputs", INPUTS, "--calls", "20"),
    "bisect": _words("bisect", PROGRAM, "--settings", "--inputs", INPUTS),
    "minify": _words("minify", PROGRAM, "--inputs", INPUTS, "--json"),
    "api": lambda report: [["-m", f"{__package__}.call", report.name]],
    "script": lambda report: [["-m", "aoti_debug", "triage", "--json", "-m", f"{__package__}.script", report.name]],
    "torch_compile": lambda report: [
        ["-m", "aoti_debug", "triage", "--torch-compile", "--json", "-m", f"{__package__}.script", report.name]
    ],
}


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def _error(code: int, seconds: float, stdout: list[str], stderr: str) -> Answer:
    lines = [line for line in f"{stdout[-1]}\n{stderr}".splitlines() if line.strip()]
    return Answer("error", tuple(lines[-6:]), (), (), (), code, seconds, "\n".join(lines[-6:]))


def _findings(finding: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield finding
    for other in finding.get("also", ()):
        yield from _findings(other)


def _place(data: Mapping[str, Any]) -> Place:
    return Place(data["file"] or "", data["line"] or 0, data["operator"] or "", data["input"] or "", data["element"])


def _of_finding(finding: Mapping[str, Any], code: int, seconds: float, more: tuple[str, ...] = ()) -> Answer:
    found = list(_findings(finding))
    observed = [
        sentence
        for one in found
        for member in SENTENCES
        for sentence in ([one[member]] if member == "what" else one[member])
    ]
    return Answer(
        finding["kind"],
        (*observed, *more),
        tuple(sentence for one in found for sentence in one.get("possible", ())),
        tuple(_place(one) for one in found),
        tuple(_place(one["origin"]) for one in found if one["origin"]),
        code,
        seconds,
    )


def _triage(stdout: list[str], code: int, seconds: float, stderr: str) -> Answer:
    finding = _json(stdout[-1])
    return _error(code, seconds, stdout, stderr) if finding is None else _of_finding(finding, code, seconds)


def _minify(stdout: list[str], code: int, seconds: float, stderr: str) -> Answer:
    result = _json(stdout[-1])
    if result is None or "finding" not in result:
        return _error(code, seconds, stdout, stderr)
    smallest = result["smallest"]
    more = () if smallest is None else (smallest["observed"], *smallest["operators"])
    return _of_finding(result["finding"], code, seconds, (*more, *result["notes"]))


def _compare(stdout: list[str], code: int, seconds: float, stderr: str) -> Answer:
    result = _json(stdout[-1])
    if result is None:
        return _error(code, seconds, stdout, stderr)
    wrong = [row for row in result["launches"] if row["verdict"] in ("wrong", "differs from its source")]
    lost = (result.get("alteration") or {}).get("lost", [])
    suspects = [s for row in wrong for s in row["suspects"]]
    places = [_at(one["line"], one.get("operator") or "") for one in (*wrong, *suspects, *lost)]
    notes = [note for row in result["launches"] for note in row["notes"]]
    begun = result["beginning"] or {}
    said = [result[member] for member in ("program_failure", "states_failure", "setting") if result.get(member)]
    return Answer(
        result["outcome"] or "error",
        (*notes, *map(str, said), *result["not_compared"], *_refusal(result["refusal"]), begun.get("operator", "")),
        (),
        (*places, *(_at(line) for line in (result["refusal_line"], begun.get("line")) if line)),
        (),
        code,
        seconds,
    )


def _refusal(refusal: Mapping[str, Any] | None) -> list[str]:
    """What eager refuses, as the sentences that are printed of it."""
    if refusal is None:
        return []
    inputs = [f"{i['name']}[{', '.join(map(str, i['index']))}] is {i['value']}" for i in refusal["inputs"]]
    return [f"{refusal['operator']}: {refusal['error']}: {refusal['words']}", *inputs]


def _at(line: Mapping[str, Any] | None, operator: str = "") -> Place:
    return Place((line or {}).get("file", ""), (line or {}).get("line", 0), operator)


def _text(kind: Callable[[str, int], str]) -> Callable[[list[str], int, float, str], Answer]:
    """A reader of what is printed for people: every line is a sentence."""

    def read(stdout: list[str], code: int, seconds: float, stderr: str) -> Answer:
        if code not in (0, 1, 8):
            return _error(code, seconds, stdout, stderr)
        lines = [line.strip() for line in stdout[-1].splitlines() if line.strip()]
        places = [Place(file, int(line)) for text in lines for file, line in PLACE.findall(text)]
        may = [line for line in lines if re.search(r"\bmay\b", line)]
        return Answer(
            kind(stdout[-1], code),
            tuple(line for line in lines if line not in may),
            tuple(may),
            tuple(places),
            (),
            code,
            seconds,
        )

    return read


def _faulted(text: str, code: int) -> str:
    return "hang" if text.lstrip().startswith("HANG") else "fault" if code else "clean"


READERS: Mapping[str, Callable[[list[str], int, float, str], Answer]] = {
    "triage": _triage,
    "compiled": _triage,
    "script": _triage,
    "torch_compile": _triage,
    "compare": _compare,
    "run": _text(_faulted),
    "memory": _text(lambda text, _: "growth" if re.search(r"^ *growth .*[MG]iB", text, re.MULTILINE) else "clean"),
    "bisect": _text(lambda _, code: "wrong_value" if code else "clean"),
    "minify": _minify,
    "api": _text(_faulted),
}
