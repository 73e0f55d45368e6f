"""Measures what the commands about numbers cost: invariance, equal, precision, repeated calls, tables by module.

usage: python -m benchmarks.performance.numeric_costs [--device cpu|cuda] [--jobs N] [--results FILE [--table]]
    [NAME ...]

The models: "classifier", that of the README; "stack", four layers of a transformer with a width of 256. Both have a
batch that varies. Each command is a process of its own, called after the program was built once, so that Inductor's
results and the objects of its code are in the cache; what a command builds with other settings is not, the first time.
Prints Markdown: seconds of the whole process, the packages that it runs or builds, and MiB that it leaves on the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, EXIT_UNCONFIRMED
from benchmarks import cases, checkout
from benchmarks.markdown import table
from benchmarks.rows_file import Row
from examples.model import Classifier

PROGRAM, PACKAGE = "program.pt2", "package.pt2"
ENDS = (EXIT_CLEAN, EXIT_FINDING, EXIT_UNCONFIRMED, EXIT_INCOMPLETE)


class Stack(nn.Module):
    """Four layers of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, nhead=8, dim_feedforward=1024, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, num_layers=4, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.layers(x)
        return hidden


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "classifier": (Classifier, lambda: torch.randint(0, 1000, (8, 32))),
    "stack": (Stack, lambda: torch.randn(8, 64, 256)),
}


@dataclass(frozen=True)
class Command:
    """A command.

    Attributes:
        words: of its command line.
        done: says from its JSON what it has run or built; "" for nothing to say.
    """

    words: Sequence[str]
    done: Callable[[Any], str] = lambda _: ""


COMMANDS: Mapping[str, Command] = {
    "build": Command(("build", PROGRAM, "-o", "again.pt2")),
    "run, level 3": Command(("run", PACKAGE, "--level", "3")),
    "run, level 1": Command(("run", PACKAGE, "--level", "1")),
    "run --repeat 2": Command(("run", PACKAGE, "--repeat", "2")),
    "run --repeat 100": Command(("run", PACKAGE, "--repeat", "100")),
    "compare": Command(("compare", PROGRAM, "--json")),
    "compare --by module": Command(("compare", PROGRAM, "--by", "module", "--json")),
    "profile --by module": Command(("profile", PROGRAM, "--by", "module", "--json")),
    "invariance": Command(("invariance", PROGRAM, "--json"), lambda found: f"{1 + len(found['runs'])} runs"),
    "invariance --fix": Command(
        ("invariance", PROGRAM, "--fix", "--json"), lambda found: f"{len(found['fixes'])} more builds"
    ),
    "precision --to bfloat16": Command(
        ("precision", PROGRAM, "--to", "bfloat16", "--json"), lambda found: f"{len(found['parts'])} modules"
    ),
    "precision --to float8_e4m3fn": Command(
        ("precision", PROGRAM, "--to", "float8_e4m3fn", "--json"), lambda found: f"{len(found['parts'])} modules"
    ),
    "precision --build": Command(
        ("precision", PROGRAM, "--build", "--json"), lambda found: f"{len(found['parts'])} modules, 1 more build"
    ),
    "equal": Command(("equal", PROGRAM, "--json"), lambda found: f"{len(found['trials'])} builds"),
}


def measured(model: str, command: Command, device: str) -> dict[str, Any]:
    """Seconds and bytes of a command, as JSON data."""
    with tempfile.TemporaryDirectory(prefix="aoti-debug-costs-") as temporary:
        folder = Path(temporary)
        make, inputs = MODELS[model]
        torch.manual_seed(0)
        x = inputs().to(device)
        batch = torch.export.Dim("batch", min=1, max=64)
        with torch.no_grad():
            exported = torch.export.export(make().eval().to(device), (x,), dynamic_shapes=({0: batch},))
        torch.export.save(exported, folder / PROGRAM)
        _called(("build", PROGRAM, "-o", PACKAGE), folder)
        before = _size(folder)
        began = time.monotonic()
        said = _called(command.words, folder)
        seconds = time.monotonic() - began
        found = json.loads(said) if "--json" in command.words else None
        return {"took": seconds, "mebibytes": (_size(folder) - before) / 2**20, "done": command.done(found)}


def _called(words: Sequence[str], folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "aoti_debug", *words],
        cwd=folder,
        env=checkout.environment(AOTI_DEBUG_PRINT="none"),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in ENDS:
        raise SystemExit(f"{words} ended with {done.returncode}: {done.stderr[-300:]}")
    return done.stdout


def _size(folder: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(Path(base, name).lstat().st_size for base, _, names in os.walk(folder) for name in names)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {f"{model}: {name}": (model, name) for model in MODELS for name in COMMANDS}
    parser.add_argument("names", nargs="*", metavar="NAME", help='how names begin: "stack", "stack: equal"')
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    cases.add_options(parser, limit=600)
    given = parser.parse_args()
    chosen = [name for name in known if name.startswith(tuple(given.names) or "")]

    def one(name: str) -> dict[str, Any]:
        model, command = known[name]
        return measured(model, COMMANDS[command], given.device)

    rows = {row["case"]: row for row in cases.run(chosen, given, one)}
    header = ("command", *(f"{model}{what}" for model in MODELS for what in (": seconds", "", ", MiB")))
    table(
        header,
        [(name, *(cell for model in MODELS for cell in _cells(rows.get(f"{model}: {name}")))) for name in COMMANDS],
    )
    return int(any("failure" in row for row in rows.values()) or len(rows) < len(chosen))


def _cells(row: Row | None) -> tuple[str, str, str]:
    if row is None:
        return ("", "", "")
    if "failure" in row:
        return (row["failure"], "", "")
    return (f"{row['took']:.1f}", row["done"], f"{row['mebibytes']:.1f}")


if __name__ == "__main__":
    sys.exit(main())
