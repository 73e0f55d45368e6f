"""Plants faults in programs, and has the smallest script made that shows each of them.

usage: python -m benchmarks.triage.planted_minify [--folder DIR] [FAULT ...]

For each fault, `aoti-debug minify` runs; its script is then run alone, in a fresh process. A fault is shown if that
script has exit code 1, prints one line that begins with "observed", has at most 40 lines and names nothing of
aoti-debug. Prints a Markdown table. Exit code 1: a fault was not shown, or the median is more than 5 operators.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from aoti_debug.base.errors import EXIT_FINDING
from benchmarks import checkout
from benchmarks.markdown import table
from benchmarks.triage import planted_minify_faults, planted_settings_faults
from benchmarks.triage.planted_settings_faults import VARIABLE as SETTINGS

MAX_LINES, MAX_CALLS = 40, 5


@dataclass(frozen=True)
class Fault:
    """A planted fault.

    Attributes:
        program: its program: "settings" is that of planted_settings.py, else of planted_minify_faults.py.
        variables: of the environment.
    """

    program: str
    kind: str
    imports: tuple[str, ...]
    variables: dict[str, str]
    options: tuple[str, ...] = ()


def _setting(name: str) -> Fault:
    return Fault("settings", "WRONG VALUE", (planted_settings_faults.__name__,), {SETTINGS: name})


_YES_OR_NO = {True: "yes", False: "no"}
FAR = Fault(
    "words",
    "FAULT",
    (planted_minify_faults.__name__,),
    {"AOTI_PLANTED_LOWERING": "far"},
    ("--inductor-config", "assert_indirect_indexing=False"),
)
FAULTS = {
    **{name: _setting(name) for name in ("relu for abs", "sum one short", "exp by three per cent", "cat reversed")},
    **{name: _setting(name) for name in ("silu of twice", "pattern that swaps operands")},
    "zero by zero": Fault("by_zero", "NOT FINITE", (), {}),
    "lowering reads far away": FAR,
    "operator writes far away": Fault("spilled", "FAULT", ("tests.memory_ops",), {}),
    "operator waits": Fault("waited", "HANG", ("tests.corpus.ops",), {}, ("--timeout", "8")),
    "operator lies about strides": Fault("transposed", "BROKEN CONTRACT", ("tests.corpus.ops",), {}),
}


@dataclass(frozen=True)
class Row:
    """The minimisation of one fault."""

    fault: str
    is_shown: bool
    calls: int
    lines: int
    inputs: str
    is_confirmed: bool
    scripts: int
    seconds: float
    said: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", default=list(FAULTS))
    parser.add_argument("--folder", type=Path, help="where the programs and the minimisations are kept")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="aoti-debug-minify-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for name in options.faults:
        rows.append(_minify(name, FAULTS[name], folder))
        print(f"{name}: {rows[-1].said}", flush=True)
    head = ("planted", "shown alone", "operators", "lines", "inputs", "same verdict", "scripts tried", "seconds")
    cells = [
        (
            row.fault,
            _YES_OR_NO[row.is_shown],
            str(row.calls),
            str(row.lines),
            row.inputs,
            _YES_OR_NO[row.is_confirmed],
            str(row.scripts),
            f"{row.seconds:.0f}",
        )
        for row in rows
    ]
    table(head, cells)
    median = statistics.median(row.calls for row in rows)
    print(f"{sum(row.is_shown for row in rows)} of {len(rows)} shown alone; median of {median:g} operators")
    return int(not all(row.is_shown for row in rows) or median > MAX_CALLS)


def _minify(name: str, fault: Fault, folder: Path) -> Row:
    program = folder / f"{fault.program}.pt2"
    if not program.exists():
        _export(fault.program, program)
    out = folder / name.replace(" ", "_")
    words = ["minify", str(program), "--out", str(out), *fault.options]
    words += [word for module in fault.imports for word in ("--import", module)]
    began = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "aoti_debug", *words],
        env=checkout.environment(**fault.variables),
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    (folder / f"{out.name}.txt").write_text(result.stdout + result.stderr)
    calls = re.search(r"^SMALLEST (\d+) calls? of", result.stdout, re.MULTILINE)
    tried = re.search(r"(\d+) scripts?$", result.stdout, re.MULTILINE)
    count = int(tried[1]) if tried else 0
    if calls is None or fault.kind not in result.stdout:
        said = (result.stdout.splitlines() or result.stderr.splitlines() or ["nothing"])[-1]
        return Row(
            name,
            is_shown=False,
            calls=99,
            lines=0,
            inputs="",
            is_confirmed=False,
            scripts=count,
            seconds=seconds,
            said=said,
        )
    (script,) = out.glob("*/repro/repro.py")
    text = script.read_text()
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    alone = subprocess.run(
        [sys.executable, str(script)],
        env={**environment, **fault.variables},
        capture_output=True,
        text=True,
        check=False,
    )
    said = (alone.stderr.splitlines() or ["nothing"])[-1]
    lines = len(text.splitlines())
    is_shown = alone.returncode == 1 and said.startswith("observed: ") and lines <= MAX_LINES
    files = "file" if "torch.load(" in text else "seed" if "manual_seed" in text else "literal"
    return Row(
        fault=name,
        is_shown=is_shown and "aoti_debug" not in text,
        calls=int(calls[1]),
        lines=lines,
        inputs=files,
        is_confirmed=result.returncode == EXIT_FINDING,
        scripts=count,
        seconds=seconds,
        said=said[:160],
    )


def _export(name: str, path: Path) -> None:
    if name == "settings":
        from benchmarks.triage.planted_settings import Model

        torch.manual_seed(0)
        inputs = torch.randint(32, (8, 12)), torch.randn(8, 12, 16)
        torch.export.save(torch.export.export(Model().eval(), inputs), path)
        return
    import tests.corpus.ops
    import tests.memory_ops  # noqa: F401 - they register operators

    torch.export.save(planted_minify_faults.program(name), path)


if __name__ == "__main__":
    sys.exit(main())
