"""Has torch generate wrappers of programs with streams of their own, and compares the races found with an oracle.

usage: python -m benchmarks.quality.races_generated [--programs N] [--reuse] [--jobs N] [--results FILE] [--table]
           [--orders N] [--folder DIR]

Needs a torch from 2.14 on that was built for CUDA, with its Triton, and no GPU. Each program is put together at random:
kernels on the stream of the call, and regions on three side streams, each of one to three calls of library operators
that wait for all they read; whoever reads what a region has made waits for its event. Side streams are numbered as they
come: torch gives launches other streams than events wait for where they are not. No buffer is used again by Inductor,
which does so while another stream reads it; with --reuse it may.

The oracle (stream_emulation.py) executes each wrapper in other orders than the host's. It is asked about each wrapper
as torch generates it, and without each of its records and waits, with each record earlier and each wait later. Appends
a line for each program to FILE as JSON, and goes on where it was cut off. Prints a Markdown table. Exit code 1: a race
of the oracle was not found, not even as what may be one, or one was found for sure that the oracle does not have.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from aoti_debug.instrument.wrapper.analysis import Analysis, analyse
from benchmarks import cases
from benchmarks.markdown import table
from benchmarks.quality import stream_emulation
from tests.instrument.wrapper import texts
from tests.instrument.wrapper.cuda_models import Model, on_their_streams
from tests.instrument.wrapper.without_gpu import generated

SIDES = (1, 2, 3)
WITHOUT_REUSE = {"allow_buffer_reuse": False, "inplace_buffers": False}
_MAIN: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "add": lambda a, b: a + b,
    "relu": lambda a, b: torch.relu(a) * b,
    "softmax": lambda a, b: torch.softmax(a, -1) + b,
    "sum": lambda a, b: a + b.sum(0),
    "mm": lambda a, b: a @ b,
    "cat": lambda a, b: torch.cat([a, b], 1)[:, 32:96].tanh(),
    "view": lambda a, b: a.t() - b,
}
_SIDE: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "mm": lambda a, b: a @ b,
    "mm transposed": lambda a, b: a @ b.t(),
    "addmm": lambda a, b: torch.addmm(b, a, b),
    "bmm": lambda a, b: torch.bmm(a.reshape(4, 16, 64), b.expand(4, 64, 64)).reshape(64, 64),
    "of rows": lambda a, b: a[:32] @ b @ b[:, :64],
}


@dataclass(frozen=True)
class _Step:
    """A kernel of the call's stream, or a region of a side stream (then `event` is recorded at its end)."""

    stream: int
    operators: tuple[str, ...]
    reads: tuple[int, ...]
    event: int = 0


def steps_of(seed: int) -> list[_Step]:
    """The steps of a program; its values are the two inputs, then one for each step."""
    chosen = random.Random(seed)
    made: list[_Step] = []
    numbers: dict[int, int] = {}
    for number in range(chosen.randint(4, 10)):
        reads = tuple(chosen.choices(range(max(0, number - 3), number + 2), k=2))
        if number == 0 or chosen.random() < 0.45:
            made.append(_Step(0, (chosen.choice(list(_MAIN)),), reads))
        else:
            operators = tuple(chosen.choices(list(_SIDE), k=chosen.randint(1, 3)))
            side = chosen.choice(SIDES)
            made.append(_Step(numbers.setdefault(side, len(numbers) + 1), operators, reads, 10 + 2 * number))
    return made


def program(steps: list[_Step]) -> Callable[..., torch.Tensor]:
    """The program of steps: the sum of all values that no other step reads."""
    streams = torch.ops.streams

    def run(*inputs: torch.Tensor) -> torch.Tensor:
        values = list(inputs)
        events: dict[int, tuple[int, int]] = {}  # of the values of side streams
        for number, step in enumerate(steps):
            waits = [events[read] for read in dict.fromkeys(step.reads) if read in events]
            if step.stream:
                streams.record_event(step.event + 1, 0)
                streams.wait_event(step.event + 1, step.stream)
            for event, of in waits:
                if of != step.stream:
                    streams.wait_event(event, step.stream)
            value, other = (values[read] for read in step.reads)
            for operator in step.operators:
                value = (_SIDE if step.stream else _MAIN)[operator](value, other)
                value = value.expand(64, 64) if value.shape[0] == 1 else value
                if value.shape[0] != 64:
                    value = values[step.reads[0]] @ value.t() @ value if step.stream else value
            if step.stream:
                streams.record_event(step.event, step.stream)
                events[number + 2] = (step.event, step.stream)
            values.append(value)
        read = {value for step in steps for value in step.reads}
        last = [number for number in range(2, len(values)) if number not in read]
        for number in last:
            if number in events:
                streams.wait_event(events[number][0], 0)
        return torch.stack([values[number] for number in last]).sum(0)

    return run


def of_program(seed: int, *, reuse: bool, orders: int, folder: Path | None) -> dict[str, Any]:
    """What is found in the wrapper of a program and its mutants, against the oracle."""
    inputs = (torch.randn(64, 64), torch.randn(64, 64))
    settings = {} if reuse else WITHOUT_REUSE
    files = generated(Model(program(steps_of(seed))), inputs, settings=settings, change=on_their_streams)
    text = files["model.wrapper.cpp"]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{seed}.cpp").write_text(text)
    analysis = analysed(text)
    counts = {"launches": len(analysis.sites), "on side streams": sum(site.stream > 0 for site in analysis.sites)}
    if analysis.stream_order is None:
        return {**counts, "of one stream": 1}
    mutants = [("as generated", text), *stream_emulation.mutants(text)]
    return {**counts, "wrappers": [against_oracle(*mutant, seed, orders) for mutant in mutants]}


@cache
def _headers() -> tuple[str, ...]:
    """The declarations of operators of the installed torch, as a build has them."""
    folder = Path(torch.__file__).parent / "include/torch/csrc/inductor/aoti_torch"
    return tuple((folder / name).read_text() for name in ("c/shim.h", "generated/c_shim_cuda.h"))


def analysed(text: str) -> Analysis:
    """The analysis of a wrapper."""
    return analyse(text, headers=_headers(), operators=texts.OPERATORS)


def against_oracle(what: str, text: str, seed: int, orders: int) -> dict[str, Any]:
    """The races that are found in a wrapper, for sure and as what may be one, and those of the oracle."""
    analysis = analysed(text)
    lines: dict[bool, set[tuple[int, int]]] = {False: set(), True: set()}
    for race in () if analysis.stream_order is None else analysis.stream_order.races:
        if race.first.site >= 0 and race.second.site >= 0:
            first, second = sorted(analysis.sites[side.site].line for side in (race.first, race.second))
            lines[bool(race.doubt)].add((first, second))
    emulated = stream_emulation.read(text)
    truth = stream_emulation.races(emulated)
    sure, maybe = lines[False], lines[True]
    order = analysis.stream_order
    is_open = order is not None and any("is not read" in sentence for sentence in order.undecided)
    left = sorted(truth - sure - maybe)
    return {
        "what": what,
        "races": len(truth),
        "sure": len(truth & sure),
        "maybe": len(truth & maybe - sure),
        "open": left if is_open else [],  # it is said that a part of the wrapper is not read
        "missed": [] if is_open else left,
        "false": sorted(sure - truth),
        "changes": stream_emulation.outputs_change(emulated, seed, orders),
    }


def print_table(rows: list[dict[str, Any]]) -> int:
    """Prints how the tool and the oracle agree; the number of disagreements."""
    wrong = 0
    lines = []
    every = [(row["case"], wrapper) for row in rows for wrapper in row.get("wrappers", ())]
    kinds = ("as generated", "no record", "no wait", "record of", "wait of")
    for kind in kinds:
        found = [wrapper for _, wrapper in every if wrapper["what"].startswith(kind)]
        racing = [wrapper for wrapper in found if wrapper["races"]]
        open_, missed, false = (sum(len(wrapper[key]) for wrapper in found) for key in ("open", "missed", "false"))
        wrong += missed + false
        total, sure, maybe = (sum(wrapper[key] for wrapper in found) for key in ("races", "sure", "maybe"))
        changed = sum(wrapper["changes"] for wrapper in racing)
        clean = sum(wrapper["changes"] for wrapper in found if not wrapper["races"])
        counts = (len(found), len(racing), total, sure, maybe, open_, missed, false)
        label = {"record of": "record earlier", "wait of": "wait later"}.get(kind, kind)
        lines.append(
            (label, *map(str, counts), f"{changed} of {len(racing)}", f"{clean} of {len(found) - len(racing)}")
        )
    header = (
        "wrappers",
        "",
        "with a race",
        "races of the oracle",
        "found",
        "as what may be one",
        "not read",
        "missed",
        "false",
    )
    table((*header, "outputs change: of racing", "of the others"), lines)
    for name, wrapper in every:
        if wrapper["missed"] or wrapper["false"] or (wrapper["changes"] and not wrapper["races"]):
            print(f"program {name}, {wrapper['what']}: missed {wrapper['missed']}, false {wrapper['false']}")
    failed = [row for row in rows if "failure" in row]
    single = sum("of one stream" in row for row in rows)
    print(
        f"torch {torch.__version__}: {len(rows)} programs, {single} of one stream, "
        f"{len(failed)} not emulated; {sum(row.get('launches', 0) for row in rows)} launches, "
        f"{sum(row.get('on side streams', 0) for row in rows)} on side streams"
    )
    return wrong + len(failed)


def main() -> int:
    """Compares, and prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=53)
    parser.add_argument("--reuse", action="store_true", help="let Inductor use buffers again")
    parser.add_argument("--orders", type=int, default=40, help="random orders in which a call is executed")
    parser.add_argument("--folder", type=Path, help="where wrappers are written")
    cases.add_options(parser, limit=900)
    chosen = parser.parse_args()

    def one(seed: str) -> dict[str, Any]:
        return of_program(int(seed), reuse=chosen.reuse, orders=chosen.orders, folder=chosen.folder)

    return 1 if print_table(cases.run([str(seed) for seed in range(chosen.programs)], chosen, one)) else 0


if __name__ == "__main__":
    sys.exit(main())
