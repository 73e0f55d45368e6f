"""Has torch generate wrappers of programs with streams of their own that have no race, and looks for races in them.

usage: python -m benchmarks.quality.races_generated [--programs N] [--reuse] [--folder DIR]

Needs a torch from 2.14 on that was built for CUDA, with its Triton, and no GPU. Each program is put together at random:
kernels on the stream of the call, and regions on three side streams, each of one to three calls of library operators
that wait for all they read; whoever reads what a region has made waits for its event. Side streams are numbered as they
come: torch gives launches other streams than events wait for where they are not. No buffer is used again by Inductor,
which does so while another stream reads it; with --reuse it may, and a race that is found is one of torch's.

Prints a Markdown table, and each race. Exits with 1 if there is one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from benchmarks import markdown
from tests.instrument.wrapper import planted_races
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


def main() -> int:
    """Prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=50)
    parser.add_argument("--reuse", action="store_true", help="let Inductor use buffers again")
    parser.add_argument("--folder", type=Path, help="where wrappers with a race are written")
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    began = time.perf_counter()
    for seed in range(arguments.programs):
        steps = steps_of(seed)
        inputs = (torch.randn(64, 64), torch.randn(64, 64))
        settings = {} if arguments.reuse else WITHOUT_REUSE
        files = generated(Model(program(steps)), inputs, settings=settings, change=on_their_streams)
        text = files["model.wrapper.cpp"]
        analysis = planted_races.analysed(text)
        order = analysis.stream_order
        counts["programs"] += 1
        if order is None:
            counts["of one stream"] += 1
            continue
        counts["launches"] += len(analysis.sites)
        counts["on side streams"] += sum(site.stream > 0 for site in analysis.sites)
        certain = [race for race in order.races if not race.doubt]
        counts["may race"] += any(race.doubt for race in order.races)
        counts["with a race"] += bool(certain)
        for race in certain:
            kernels = [
                analysis.sites[side.site].kernel if side.site >= 0 else "caller" for side in (race.first, race.second)
            ]
            print(f"{seed}: {kernels}, {race.memory}", file=sys.stderr, flush=True)
        if certain and arguments.folder:
            arguments.folder.mkdir(parents=True, exist_ok=True)
            (arguments.folder / f"{seed}.cpp").write_text(text)
    names = ("programs", "of one stream", "launches", "on side streams", "may race", "with a race")
    markdown.table(("torch", *names), [(torch.__version__, *(str(counts[name]) for name in names))])
    print(f"{time.perf_counter() - began:.0f} s")
    return 1 if counts["with a race"] else 0


if __name__ == "__main__":
    sys.exit(main())
