"""Plants memory that calls from several threads share, and looks whether `aoti-debug run --threads` finds the race.

usage: python -m benchmarks.quality.thread_races [--device cpu|cuda] [--runs N] [--jobs N] [--results FILE] [--table]
           [NAME ...]

Each model shares memory in its own way: a state that its kernels or operators write to, a weight that an operator
changes, results that lie in memory of another call; some look similar and are right. Each is built, and called N times
16 times from 4 threads, each time in processes of its own. A race is found if it is named without doubt, and with the
memory that is shared (of an operator that may hold a lock: as what may be one); one that is named without doubt in a
right model, or of other memory, is false. Appends a line for each model to FILE as JSON; those that it has are not run
again. Prints a Markdown table. Exit code 1: one is false, or a model could not be run.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.bisect.threaded_calls import ThreadsOptions, call_from_threads, recorded_by_default
from aoti_debug.compare.bisect.threads_text import race_evidence, race_text
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run.options import RunOptions
from benchmarks import cases
from benchmarks.markdown import table
from benchmarks.quality import threads

ROWS, WIDTH = 256, 64
THREADS, CALLS = 4, 16


class Stateful(nn.Module):
    """Kernels before and behind a step that uses a state, as a function of the state and x says."""

    state: Tensor

    def __init__(
        self, step: Callable[[Tensor, Tensor], Tensor], *shape: int, dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("state", torch.zeros(shape or (WIDTH,), dtype=dtype))
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.last(self.step(self.state, torch.relu(self.first(x)))), -1)


class Normalised(nn.Module):
    """Batch normalisation in training mode, which updates running statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH)
        self.norm.num_batches_tracked = None

    def forward(self, x: Tensor) -> Tensor:
        self.norm.train()
        return torch.softmax(self.norm(self.linear(x)), -1)


def _counted(state: Tensor, x: Tensor) -> Tensor:
    state.add_(1)
    return x * state


def _mean(state: Tensor, x: Tensor) -> Tensor:
    state.mul_(0.9).add_(0.1 * x.mean(0))
    return x - state


def _copied(state: Tensor, x: Tensor) -> Tensor:
    state.copy_(x[0])
    return x + state


def _cached(state: Tensor, x: Tensor) -> Tensor:
    rows = (x[:4].sum(1).abs() * 100).long() % state.shape[0]
    state.index_put_((rows,), x[:4])
    return x @ state.t() @ state


def _histogram(state: Tensor, x: Tensor) -> Tensor:
    state.scatter_add_(0, (x.flatten().abs() * 10).long() % WIDTH, x.flatten())
    return x + state


def _part(state: Tensor, x: Tensor) -> Tensor:
    state[8:24].copy_(x[0, :16])
    return x + state[16:32].sum()


def _hidden(state: Tensor, x: Tensor) -> Tensor:
    new = torch.tanh(x.mean(0) + state)
    state.copy_(new)
    return x * new


def _maximum(state: Tensor, x: Tensor) -> Tensor:
    state.copy_(torch.maximum(state, x.amax(0)))
    return x / (state + 1)


def _product(state: Tensor, x: Tensor) -> Tensor:
    out = x[:WIDTH].t() @ x[:WIDTH]
    state.copy_(out)
    return x @ state


def _long(state: Tensor, x: Tensor) -> Tensor:
    state.add_(1)
    return x + (state % 7)


def _only_read(state: Tensor, x: Tensor) -> Tensor:
    return x * (state + 1)


def _viewed(state: Tensor, x: Tensor) -> Tensor:
    return x @ state.view(WIDTH, WIDTH).t() + state.view(torch.int32).float().mean()


def _own(state: Tensor, x: Tensor) -> Tensor:
    mine = state.clone()
    mine.add_(x.mean(0))
    return x * mine


def _touched(state: Tensor, x: Tensor) -> Tensor:
    return torch.ops.planted.touch(x, state)


def _stored(state: Tensor, x: Tensor) -> Tensor:
    stored = torch.ops.planted.store(x)
    return torch.ops.planted.load(torch.sin(stored) + state, stored)


@dataclass(frozen=True)
class Planted:
    """A model.

    Attributes:
        memory: the names that a race of it may have; () if it has none.
        certain: nothing leaves a doubt; else it has to be said that there may be one.
        fault: the way in which the operators of threads_ops.cpp share memory; "" without them.
        runners: how many calls run at once.
    """

    make: Callable[[], nn.Module]
    memory: tuple[str, ...] = ()
    fault: str = ""
    runners: int | None = None
    certain: bool = True


def _state(step: Callable[[Tensor, Tensor], Tensor], *shape: int, **fields: Any) -> Callable[[], nn.Module]:
    return lambda: Stateful(step, *shape, **fields)


STATE = ("state",)
MODELS = {
    "a counter": Planted(_state(_counted), STATE),
    "an integer counter": Planted(_state(_long, dtype=torch.int64), STATE),
    "a running mean": Planted(_state(_mean), STATE),
    "batch normalisation": Planted(Normalised, ("norm.running_mean", "norm.running_var")),
    "a copy into a state": Planted(_state(_copied), STATE),
    "rows of a cache": Planted(_state(_cached, 32, WIDTH), STATE),
    "a histogram": Planted(_state(_histogram), STATE),
    "parts of a state that overlap": Planted(_state(_part), STATE),
    "a hidden state": Planted(_state(_hidden), STATE),
    "a running maximum": Planted(_state(_maximum), STATE),
    "a product that is kept": Planted(_state(_product, WIDTH, WIDTH), STATE),
    "a weight that an operator changes and changes back": Planted(threads.Model, ("weight",), "weight"),
    "a weight that an operator adds to": Planted(_state(_touched), STATE, "unlocked weight", certain=False),
    "a result in memory that all calls share": Planted(_state(_stored), ("buf*",), "alias"),
    "the memory of an output, given to the next but one call": Planted(threads.Model, ("buf*",), "ring"),
    "right: nothing is shared": Planted(_state(_own)),
    "right: a state that is only read": Planted(_state(_only_read)),
    "right: views of a weight": Planted(_state(_viewed, WIDTH * WIDTH)),
    "right: a counter, one call at a time": Planted(_state(_counted), runners=1),
    "right: an operator that adds under a lock": Planted(_state(_touched), fault="locked weight"),
    "right: a table that all calls are given": Planted(_state(_stored), fault="table"),
    "right: memory of each thread": Planted(threads.Model, fault="thread_local"),
}


def look(name: str, device: str, runs: int) -> dict[str, Any]:
    """Builds a model and calls it from threads; what was found."""
    planted = MODELS[name]
    os.environ["PLANTED"] = planted.fault
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        libraries: tuple[Path, ...] = ()
        if planted.fault:
            libraries = (threads.library(folder),)
            torch.ops.load_library(libraries[0])
        module, x = planted.make().to(device).eval(), torch.linspace(-1, 1, ROWS * WIDTH).reshape(ROWS, WIDTH)
        with torch.no_grad():
            program = torch.export.export(module, (x.to(device),), strict=False)
        torch.export.save(program, folder / "model.pt2")
        package = builder.build(folder / "model.pt2", output=folder / "planted.pt2", libraries=libraries)
        environment = {"PLANTED": planted.fault} if planted.fault else {}
        code = UserCode(libraries=libraries)
        run = RunOptions(package, out=folder / "runs", calls=CALLS, user_code=code, environment=environment)
        options = ThreadsOptions(run=recorded_by_default(run), threads=THREADS, runners=planted.runners)
        found, false, notes, differs = 0, [], 0, 0
        example = ""
        for _ in range(runs):
            called = call_from_threads(options)
            certain = [race for race in called.races if not race.doubt]
            expected = [race for race in called.races if _is_expected(race.memory, planted.memory)]
            right = [race for race in expected if not (race.doubt and planted.certain)]
            found += bool(right)
            false += [race_text(race) for race in certain if race not in right]
            notes += any(race.doubt for race in called.races)
            differs += bool(called.wrong)
            if right and not example:
                example = f"{race_text(right[0])}; {race_evidence(right[0])}"
    return {"found": found, "runs": runs, "false": false, "notes": notes, "differs": differs, "example": example}


def _is_expected(memory: str, names: tuple[str, ...]) -> bool:
    return memory in names or ("buf*" in names and memory.startswith("buf"))


def main() -> int:
    """Looks for the races and prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only those with this in their names")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--runs", type=int, default=4)
    cases.add_options(parser, limit=600)
    chosen = parser.parse_args()
    names = [name for name in MODELS if not chosen.names or any(part in name for part in chosen.names)]
    if chosen.device == "cuda":  # the operators are for the CPU alone
        names = [name for name in names if not MODELS[name].fault]
    return print_table(cases.run(names, chosen, lambda name: look(name, chosen.device, chosen.runs)))


def print_table(rows: list[dict[str, Any]]) -> int:
    """Prints what was found; 1 if something was found that there is not, or a model could not be run."""
    lines = []
    for row in rows:
        if "failure" in row:
            lines.append((row["case"], "not run", "", "", "", " ".join(row["failure"].split())[-200:]))
            continue
        counts = [f"{row[kind]} of {row['runs']}" for kind in ("found", "notes", "differs")]
        lines.append((row["case"], *counts, str(len(row["false"])), "; ".join(row["false"][:1]) or row["example"]))
    header = ("model", "race found", "what may be one", "outputs differ", "false", "the race")
    table(header, lines)
    racing = [row for row in rows if MODELS[row["case"]].memory and "failure" not in row]
    false = sum(len(row.get("false", ())) for row in rows)
    print(f"{sum(row['found'] > 0 for row in racing)} of {len(racing)} found, {false} false")
    return 1 if false or any("failure" in row for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
