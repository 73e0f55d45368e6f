"""Calls clean models from several threads as a triage does, and counts those that are blamed.

usage: python -m benchmarks.quality.threads_clean [--threads N] [--calls N] [NAME ...]

The models are the clean ones of tests/corpus, those of tests/models.py, and small ones that are put together here at
random. Each is built once, and called without delays, and then in the three ways of a triage with `--threads`. Prints a
line for each model, and the numbers of those that are equal, that are not compared as they are not repeatable in one
thread, and that are blamed. Exit code 1: one is blamed, or could not be run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.machine.fork_server import python_process
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.bisect.threaded_calls import ThreadsOptions, call_from_threads, recorded_by_default, ways
from aoti_debug.compare.bisect.threads_text import fault_line, threads_lines
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.run.protocol import PRELOADED
from tests import models, native_library
from tests.corpus import cases, ops  # noqa: F401 - ops registers operators
from tests.corpus.case import Case

GENERATED = 24  # small models that are put together


@dataclass(frozen=True)
class Clean:
    """A model without a fault.

    Attributes:
        program: exported.
        configs: Inductor settings.
        imports, libraries: modules and libraries with its operators.
    """

    program: torch.export.ExportedProgram
    inputs: tuple[Any, ...] | None = None
    configs: dict[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ()
    libraries: tuple[Path, ...] = ()


class Stack(nn.Module):
    """Layers one after the other, of rows of 32 numbers."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        choices = random.Random(seed)
        kinds = (
            lambda: nn.Linear(32, 32),
            lambda: nn.LayerNorm(32),
            nn.GELU,
            nn.Tanh,
            lambda: nn.Softmax(-1),
            lambda: nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True),
            lambda: nn.Sequential(nn.Unflatten(-1, (2, 16)), nn.Flatten(-2)),
            nn.SiLU,
        )
        self.layers = nn.ModuleList([choices.choice(kinds)() for _ in range(choices.randint(3, 9))])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = x + layer(x)
        return x, x.cumsum(-1).mean(0)


def clean_models() -> Iterator[tuple[str, Callable[[], Clean]]]:
    """The names of all, and what exports each."""
    for case in cases.clean("cpu"):
        yield f"corpus {case.name}", partial(_of_corpus, case)
    for name in sorted(models.CASES.keys() - {"shimmed"}):  # which needs a library beside it
        yield f"models {name}", partial(_of_tests, name)
    for seed in range(GENERATED):
        yield f"stack {seed}", partial(_stack, seed)


def _of_tests(name: str) -> Clean:
    configs = models.CASES[name].configs
    return Clean(models.program(name), configs=configs, imports=("tests.models",))


def _of_corpus(case: Case) -> Clean:
    example = case.make("cpu")
    program = torch.export.export(
        example.module.eval(), example.args, dict(example.kwargs), dynamic_shapes=example.dynamic, strict=example.strict
    )
    inputs = example.inputs if example.inputs is not None and not example.kwargs else None
    libraries = (native_library.compiled(),) if case.native else ()
    return Clean(program, inputs, dict(case.configs), case.imports, libraries)


def _stack(seed: int) -> Clean:
    rows = (1, 3, 16, 200)[seed % 4]
    return Clean(torch.export.export(Stack(seed).eval(), (torch.rand(rows, 8, 32),)))


def outcome(model: Clean, folder: Path, threads: int, calls: int) -> str:
    """Builds and calls a model: "EQUAL …", "NOT COMPARED …", or what it is blamed for."""
    torch.export.save(model.program, folder / "model.pt2")
    code = UserCode(imports=model.imports, libraries=model.libraries)
    package = builder.build(
        folder / "model.pt2",
        output=folder / "instrumented.pt2",
        imports=model.imports,
        libraries=model.libraries,
        inductor_configs=model.configs,
    )
    inputs = None
    if model.inputs is not None:
        inputs = folder / "inputs.pt"
        torch.save(model.inputs, inputs)
    run = RunOptions(package, inputs=inputs, out=folder / "runs", calls=calls, user_code=code)
    options = ThreadsOptions(run=recorded_by_default(run), threads=threads, further=ways(threads))
    found = call_from_threads(options)
    return fault_line(found) or "; ".join(threads_lines(found)[:2])


def _outcome_or_error(make: Callable[[], Clean], threads: int, calls: int) -> str:
    with tempfile.TemporaryDirectory() as folder:
        try:
            return outcome(make(), Path(folder), threads, calls)
        except AotiDebugError as error:
            return f"NOT RUN {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only those whose name has this in it")
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--calls", type=int, default=16)
    chosen = parser.parse_args()
    counts: Counter[str] = Counter()
    torch.set_grad_enabled(False)
    torch.ops.load_library(native_library.compiled())
    wanted = [pair for pair in clean_models() if not chosen.names or any(part in pair[0] for part in chosen.names)]
    with python_process.forking_from(PRELOADED) as server:
        server.preload()
        for name, make in wanted:
            text = _outcome_or_error(make, chosen.threads, chosen.calls)
            kinds = ("EQUAL", "NOT COMPARED", "NOT RUN")
            counts[next((kind for kind in kinds if text.startswith(kind)), "BLAMED")] += 1
            print(f"{name}: {' '.join(text.split())}", flush=True)
    print(", ".join(f"{count} {kind.lower()}" for kind, count in counts.items()))
    return 1 if counts["BLAMED"] or counts["NOT RUN"] else 0


if __name__ == "__main__":
    sys.exit(main())
