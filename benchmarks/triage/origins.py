"""Plants faults whose true origin is known, and has a triage say where each comes from.

usage: python -m benchmarks.triage.origins [--only GLOB ...] [--compiled] [--truth] [--jobs N] [--folder DIR] [--list]

Bad indices, divisions by zero, operators that raise: planted in one element of an input or of a buffer, beside innocent
numbers that look worse, computed through one to four launches, in loops and branches; a third of them in packages as
torch compiles them. Every sentence that names an element of what comes in is compared with its true value. Exit code
1: a stated origin or a sentence is not true, or fewer than 85 % of the origins are stated.

--truth runs no triage: it shows that every fault is one in the package that torch compiles, and that without the
planted number there is none.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path

import torch

from aoti_debug.app.cli import main
from aoti_debug.base.machine.processes import python_process
from aoti_debug.instrument.frontend.exported_program import WORKER
from aoti_debug.runs.run.protocol import PRELOADED
from benchmarks import checkout
from benchmarks.markdown import table
from benchmarks.triage.origins_judge import Judge, Judgement
from benchmarks.triage.origins_programs import files_of, slug
from benchmarks.triage.origins_truth import FINE
from benchmarks.triage.planted_origins import OPERATORS, Case, inputs_of
from benchmarks.triage.planted_origins_cases import CASES, PROGRAMS

WANTED = 0.85  # of the origins are stated


@dataclass(frozen=True)
class Row:
    """What came of one case.

    Attributes:
        error: why there is no verdict; "".
    """

    case: Case
    judgement: Judgement | None
    error: str
    seconds: float

    @property
    def is_enough(self) -> bool:
        return self.judgement is not None and self.judgement.is_enough(self.case)

    @property
    def cells(self) -> tuple[str, ...]:
        of = "package" if self.case.is_compiled else "program"
        if self.judgement is None:
            return ("✗", self.case.name, of, "", "", "", self.error, "", f"{self.seconds:.0f}")
        said = self.judgement
        line = {True: "yes", False: "no", None: ""}[said.is_line_right]
        is_true = "" if not said.stated else "no" if said.wrong_origin else "yes"
        is_right = self.is_enough and said.is_found and not said.wrong and said.is_line_right is not False
        sign = "" if is_right else "✗"
        found = "yes" if said.is_found else "no"
        stated = f"{said.stated}: {said.origin}" if said.origin else said.stated
        return (sign, self.case.name, of, found, line, stated, is_true, str(len(said.wrong)), f"{self.seconds:.0f}")


class Bench:
    """Programs, packages and triages of one run, in a folder; what is there already is not made again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def children(self, script: str, lines: Sequence[str], *words: str) -> Iterator[str]:
        """The lines that a script of the benchmark prints, as they come.

        Raises:
            SystemExit: it failed.
        """
        log = self.folder / f"{script}.log"
        with log.open("wb") as errors:
            command = [sys.executable, "-m", f"benchmarks.triage.{script}", str(self.folder), *words]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n".join(lines))
            child.stdin.close()
            yield from child.stdout
            if child.wait():
                raise SystemExit(f"{script} failed with {child.returncode}:\n{log.read_text()[-3000:]}")

    def build(self, case: Case) -> None:
        """Builds the instrumented package of a case, unless it is there.

        Raises:
            RuntimeError: it cannot be built.
        """
        files = files_of(case, self.folder)
        model, output = (
            files.package if case.is_compiled else files.program,
            files.instrumented(is_compiled=case.is_compiled),
        )
        if output.exists():
            return
        settings = {} if case.is_compiled else PROGRAMS[case.program].configs
        words = ["build", str(model), "-o", str(output), "--import", OPERATORS]
        words += [word for name, value in settings.items() for word in ("--inductor-config", f"{name}={value}")]
        code = main.run(words)
        if code:
            raise RuntimeError(f"no build: exit code {code}")

    def row(self, case: Case) -> Row:
        """Triages a case and judges the verdict."""
        place, files = self.folder / "triages" / slug(case.name), files_of(case, self.folder)
        place.mkdir(parents=True, exist_ok=True)
        torch.save(inputs_of(PROGRAMS[case.program], (*case.planted, *case.innocent)), place / "inputs.pt")
        words = ["triage", str(files.instrumented(is_compiled=case.is_compiled)), "--json", "--import", OPERATORS]
        words += ["--inputs", str(place / "inputs.pt"), "--out", str(place)]
        began = time.monotonic()
        code = main.run(words)
        seconds = time.monotonic() - began
        if code not in (0, 1):
            return Row(case, None, f"exit code {code}", seconds)
        verdict = json.loads((place / "latest" / "triage.json").read_text())["finding"]
        return Row(case, Judge(case, PROGRAMS[case.program], files).judge(verdict), "", seconds)


def benchmark() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="GLOB", default=["*"], help="cases whose name fits")
    parser.add_argument("--compiled", action="store_true", help="only packages that torch compiled")
    parser.add_argument("--truth", action="store_true", help="show that the faults are faults; no triage")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="where programs and triages are kept")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    options = parser.parse_args()
    chosen = [case for case in CASES if any(fnmatchcase(case.name, glob) for glob in options.only)]
    chosen = [case for case in chosen if case.is_compiled or not options.compiled]
    if not chosen:
        parser.error("no case has such a name; --list prints them")
    if options.list:
        print(*(case.name for case in chosen), sep="\n")
        return 0
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="aoti-debug-origins-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for name in [name for name in os.environ if name.startswith(("AOTI_DEBUG_", "AOT_INDUCTOR_DEBUG_"))]:
        del os.environ[name]
    os.environ["PYTHONPATH"] = checkout.python_path()
    return (_truth if options.truth else _triages)(chosen, Bench(folder), options.jobs)


def _triages(chosen: Sequence[Case], bench: Bench, jobs: int) -> int:
    lines = [f"{'*' if case.is_compiled else ''}{case.name}" for case in chosen]
    for _ in bench.children("origins_programs", lines):
        pass
    sharing: dict[tuple[str, bool], list[Case]] = {}
    for case in chosen:
        sharing.setdefault((str(files_of(case, Path())), case.is_compiled), []).append(case)
    lowering = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
    with (
        ThreadPoolExecutor(jobs) as pool,
        python_process.forking_from((*PRELOADED, *lowering)),
        (bench.folder / "commands.log").open("w") as log,
        contextlib.redirect_stdout(log),
    ):
        rows = [row for group in pool.map(lambda cases: _rows(bench, cases), sharing.values()) for row in group]
    rows = _with_claims(bench, rows)
    head = ("", "case", "of", "fault", "line", "origin", "true", "wrong sentences", "seconds")
    table(head, [row.cells for row in rows])
    said = [(row, row.judgement) for row in rows if row.judgement is not None]
    stated = sum(row.is_enough for row in rows)
    wrong = [f"{row.case.name}: {text}" for row, judgement in said for text in _wrong(judgement)]
    print(*wrong, sep="\n")
    partly = sum(judgement.stated == "line" and not row.is_enough for row, judgement in said)
    print(f"\nfaults found: {sum(judgement.is_found for _, judgement in said)} of {len(rows)}")
    lines_known = [judgement.is_line_right for _, judgement in said if judgement.is_line_right is not None]
    print(f"model line right: {sum(lines_known)} of {len(lines_known)}")
    print(f"origins stated: {stated} of {len(rows)}, a launch or a line instead of an element: {partly}")
    print(f"wrong statements: {len(wrong)}")
    return int(bool(wrong) or stated < WANTED * len(rows))


def _rows(bench: Bench, cases: Sequence[Case]) -> list[Row]:
    """Cases of one package."""
    try:
        bench.build(cases[0])
    except RuntimeError as error:
        return [Row(case, None, str(error), 0.0) for case in cases]
    rows = []
    for case in cases:
        rows.append(bench.row(case))
        print(" | ".join(rows[-1].cells), file=sys.stderr, flush=True)
    return rows


def _with_claims(bench: Bench, rows: Sequence[Row]) -> list[Row]:
    """The rows; sentences that say that another number does not fail are wrong where eager fails with it."""
    claims = [(row, sentence, e) for row in rows if row.judgement for sentence, e in row.judgement.claims]
    if not claims:
        return list(rows)
    lines = [json.dumps({"case": row.case.name, **asdict(element)}) for row, _, element in claims]
    wrong: dict[str, tuple[str, ...]] = {}
    for (row, sentence, _), line in zip(claims, bench.children("origins_truth", lines, "--claims"), strict=True):
        seen = json.loads(line)
        if seen != FINE:
            wrong[row.case.name] = (*wrong.get(row.case.name, ()), f"{sentence}: it fails: {seen}")
    return [
        replace(row, judgement=replace(row.judgement, wrong=(*row.judgement.wrong, *wrong.get(row.case.name, ()))))
        if row.judgement
        else row
        for row in rows
    ]


def _wrong(judgement: Judgement) -> tuple[str, ...]:
    """All that is stated and not true."""
    origin = f"origin {judgement.origin}: {judgement.wrong_origin}" if judgement.wrong_origin else ""
    return (*((origin,) if origin else ()), *judgement.wrong)


def _truth(chosen: Sequence[Case], bench: Bench, _: int) -> int:
    for _line in bench.children("origins_programs", [f"*{case.name}" for case in chosen]):
        pass
    bogus, rows = 0, []
    for line in bench.children("origins_truth", [case.name for case in chosen]):
        seen = json.loads(line)
        is_fault = seen["all"] != FINE and seen.get("good", FINE) == FINE and seen.get("innocent", FINE) == FINE
        bogus += not is_fault
        rows.append(
            ("" if is_fault else "✗", seen["case"], seen.get("good", ""), seen.get("innocent", ""), seen["all"])
        )
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    table(("", "case", "without it", "innocent numbers", "with it"), rows)
    print(f"faults: {len(rows) - bogus} of {len(chosen)}")
    return int(bogus > 0 or len(rows) != len(chosen))


if __name__ == "__main__":
    sys.exit(benchmark())
