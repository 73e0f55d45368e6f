"""Minimisations as lines of text, and parts that cannot be triaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from aoti_debug.diagnosis.findings import FAULT, Finding, Place
from aoti_debug.minify.confirm import confirmed
from aoti_debug.minify.found import Minified, Smallest
from aoti_debug.minify.options import MinifyOptions
from aoti_debug.minify.text import minified_lines
from aoti_debug.minify.trials import Trial

FINDING = Finding(FAULT, "SIGSEGV (Segmentation fault)", Place("0.2", "my::op.default"))
SMALLEST = Smallest(
    script=Path("out/repro/repro.py"),
    lines=38,
    calls=1,
    among=3,
    start="launch 0.2",
    operators=("my.op.default",),
    observed="SIGSEGV",
    fails_in_eager=True,
    shown=5,
    runs=5,
    verdict="FAULT SIGSEGV (Segmentation fault)",
)
FOUND = Minified(FINDING, (Trial("hash", "1 of 3 calls of launch 0.2"),), 0, SMALLEST)


def test_the_smallest_part() -> None:
    assert minified_lines(FOUND) == [
        "FAULT SIGSEGV (Segmentation fault) in 0.2 my::op.default",
        "SMALLEST 1 call of 3 of launch 0.2: my.op.default",
        "  observed SIGSEGV",
        "  verdict  FAULT SIGSEGV (Segmentation fault)",
        "  note     it fails in eager, too",
        "  shown    in 5 of 5 runs, every time",
        "  script   out/repro/repro.py, 38 lines",
        "  next     python out/repro/repro.py",
        "  tried    1 script",
    ]


def test_no_part_and_starts_that_could_not_be_used() -> None:
    found = replace(FOUND, smallest=None, notes=("launch 0.2: no tensors were saved",))
    assert minified_lines(found) == [
        "note: launch 0.2: no tensors were saved",
        "FAULT SIGSEGV (Segmentation fault) in 0.2 my::op.default",
        "NOT SHOWN by a script that needs only torch; 1 script",
    ]


def test_a_part_that_cannot_be_exported_has_no_verdict(tmp_path: Path) -> None:
    script = tmp_path / "repro.py"
    script.write_text("raise ValueError('no such operator')\n")
    found = replace(FOUND, smallest=replace(SMALLEST, script=script, verdict=""))
    again = confirmed(found, MinifyOptions(tmp_path / "program.pt2"))
    assert again.smallest is not None
    assert again.smallest.verdict == f"not known: {script} cannot be exported: ValueError: no such operator"
    assert again.smallest.program is None
