"""Plants wrong numbers that are easy to overlook, each in a small model of its own, and has a triage find them.

usage: python -m benchmarks.comparison.planted_numbers [--device cpu|cuda] [--folder DIR] [--compare]
    [--jobs N] [--limit S] [--results FILE [--table]] [FAULT ...]

Wrong in one element of many, beside much larger numbers, in integers beside bfloat16, in what is returned while all
launches are right, in weights, in states, beside random numbers. For each fault `aoti-debug triage` (with `--compare`
also `aoti-debug compare`) runs with this module imported. Models whose name begins with "right" hold no fault. Prints
a Markdown table. Exit code 1: a fault was not found, or a model without one is not clean as far as compared; of a
chaotic one the outputs may differ from eager's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from aoti_debug.base.errors import EXIT_INCOMPLETE
from benchmarks import cases, checkout
from benchmarks.comparison.planted_numbers_faults import FAULTS
from benchmarks.comparison.planted_numbers_models import MODELS
from benchmarks.markdown import table

VARIABLE = "AOTI_PLANTED_NUMBER"
WRONG = ("state, cloned", "signs of zeros")  # models that torch 2.13 compiles wrongly
NONE = "right: "  # how the name of a model without a fault begins
DIFFERING = ("chaotic",)  # models without a fault that rounding makes other outputs of than eager's

if (_planted := os.environ.get(VARIABLE, "")) in FAULTS:
    FAULTS[_planted].plant()


@dataclass(frozen=True)
class Row:
    """What was said of one fault."""

    fault: str
    model: str
    kind: str
    said: str
    seconds: float

    @property
    def is_right(self) -> bool:
        """True if it was found; without a fault, if the model is clean, or its outputs are not eager's."""
        if not self.fault.startswith(NONE):
            return self.kind == "wrong_value"
        return self.kind in ("clean", "incomplete") or (self.kind == "differs" and self.model in DIFFERING)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    right = [f"{NONE}{name}" for name in MODELS if name not in WRONG]
    parser.add_argument("faults", nargs="*", metavar="FAULT", default=[*FAULTS, *right])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--folder", type=Path, help="where the programs and the triages are kept")
    parser.add_argument("--compare", action="store_true", help="compare instead of triage")
    cases.add_options(parser, limit=900)
    given = parser.parse_args()
    rows = [_row_of(one) for one in cases.run(given.faults, given, lambda fault: asdict(_asked(fault, given)))]
    cells = [("" if r.is_right else "✗", r.fault, r.model, r.kind, r.said, f"{r.seconds:.0f}") for r in rows]
    table(("", "planted", "model", "verdict", "said first", "seconds"), cells)
    planted = [row for row in rows if not row.fault.startswith(NONE)]
    print(f"{sum(row.is_right for row in planted)} of {len(planted)} faults found, ", end="")
    print(f"{sum(not row.is_right for row in rows if row not in planted)} false alarms in {len(rows) - len(planted)}")
    return int(not all(row.is_right for row in rows))


def _row_of(one: Mapping[str, Any]) -> Row:
    if "failure" in one:
        return Row(one["case"], _model(one["case"]), "failure", one["failure"], one["seconds"])
    return Row(one["fault"], one["model"], one["kind"], one["said"], one["seconds"])


def _asked(fault: str, given: argparse.Namespace) -> Row:
    with tempfile.TemporaryDirectory(prefix="aoti-debug-numbers-") as temporary:
        folder = Path(given.folder or temporary).resolve() / "".join(c if c.isalnum() else "_" for c in fault)
        folder.mkdir(parents=True, exist_ok=True)
        return _measured(fault, _export(_model(fault), given.device, folder), is_compared=given.compare)


def _model(fault: str) -> str:
    return fault.removeprefix(NONE) if fault.startswith(NONE) else FAULTS[fault].model


def _measured(fault: str, program: Path, *, is_compared: bool) -> Row:
    model = _model(fault)
    environment = checkout.environment(**{VARIABLE: fault})
    command = ["compare" if is_compared else "triage", str(program), "--json"]
    command += ["--import", "benchmarks.comparison.planted_numbers"]
    command += ["--calls", str(MODELS[model].calls), "--out", str(program.parent / "out")]
    for name, value in MODELS[model].settings.items():
        command += ["--inductor-config", f"{name}={value}"]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "aoti_debug", *command], env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    if done.returncode not in (0, 1, EXIT_INCOMPLETE):
        return Row(fault, model, f"exit code {done.returncode}", done.stderr.strip()[-200:], seconds)
    found = json.loads(done.stdout)
    if is_compared:
        return Row(fault, model, found["outcome"] or "unfinished", found["first_wrong"] or "", seconds)
    said = [found["message"] if "message" in found else found.get("what", ""), *found["evidence"], *found["warnings"]]
    return Row(fault, model, found["kind"], "; ".join(filter(None, said))[:300], seconds)


def _export(name: str, device: str, folder: Path) -> Path:
    model, path = MODELS[name], folder / f"{name.replace(' ', '_')}.pt2"
    if path.exists():
        return path
    torch.manual_seed(0)
    module = model.make().to(device).train(model.is_training)
    inputs = tuple(x.to(device) if isinstance(x, torch.Tensor) else x for x in model.inputs())
    with torch.no_grad():
        torch.export.save(torch.export.export(module, inputs, dynamic_shapes=model.dynamic), path)
    return path


if __name__ == "__main__":
    sys.exit(main())
