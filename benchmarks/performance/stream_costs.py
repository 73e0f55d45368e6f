"""Measures what several streams cost on the host: a launch on another stream, and the search for races in a build.

usage: python -m benchmarks.performance.stream_costs [--calls N] [--launches N ...]

The runtime is that of packages, with the fake device of its tests: a launch costs what the host does and nothing of a
GPU. A call makes three launches, the second one on the stream of the call or on another one, at levels 0 and 3; times
are the least of nine, in processor time of the thread that calls. The search is that for the order of launches and for
races, in wrappers of launches on three streams, which is done once in a build. Prints Markdown tables; needs no GPU.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import random
import tempfile
import time
from pathlib import Path
from unittest import mock

import torch

from aoti_debug.instrument.wrapper import races
from benchmarks.markdown import table
from tests.instrument.wrapper import planted_races, race_kinds
from tests.runtime_shims import runtime_library
from tests.runtime_shims.runtime_library import INOUT, Handle, Runtime, Slot

MAIN, SIDE = 16, 32  # streams
LAUNCHES = 3  # of a call of the harness
ROUNDS = 9


def launch_rows(calls: int, folder: Path) -> list[tuple[str, ...]]:
    """The host's time of a launch in ns, at each level, with one stream and with two."""
    library = runtime_library.build(folder, runtime_library.HERE / "fake_device.cpp")
    rows: list[tuple[str, ...]] = []
    for level in ("0", "3"):
        run = folder / f"run{level}"
        run.mkdir()
        variables = {
            "AOTI_DEBUG_RUN": str(run),
            "AOTI_DEBUG_LEVEL": level,
            "AOTI_DEBUG_BACKTRACE": "0",
            "AOTI_DEBUG_PRINT": "none",
        }
        with mock.patch.dict(os.environ, variables):
            runtime = Runtime(library, folder / f"copy{level}.so")
            for site in (0, 1):
                runtime.site(site, f"kernel_{site}", Slot("y", role=INOUT))
            runtime.lib.h_sites()[1].side_stream = 1
            handle = Handle(torch.ones(4))
            runtime.keep(handle)
            runtime.lib.f_mark(handle.pointer)
            least = {MAIN: float("inf"), SIDE: float("inf")}
            for _ in range(ROUNDS):
                for stream in least:
                    least[stream] = min(least[stream], _seconds(runtime, handle, stream, calls))
            runtime.unload()
        one, two = (1e9 * least[stream] / (calls * LAUNCHES) for stream in (MAIN, SIDE))
        rows.append((f"level {level}", f"{one:.0f}", f"{two:.0f}", f"{two - one:+.0f}"))
    return rows


def _seconds(runtime: Runtime, handle: Handle, stream: int, calls: int) -> float:
    call = runtime.lib.h_run_streams
    main, side = ctypes.c_void_p(MAIN), ctypes.c_void_p(stream)
    began = time.thread_time()
    for _ in range(calls):
        call(handle.pointer, main, side)
    return time.thread_time() - began


def wrapper(count: int) -> str:
    """A wrapper of launches on three streams, each of which reads what some of the last six have written."""
    chance = random.Random(count)
    streams = [0, *(chance.randint(0, 2) for _ in range(count - 2)), 0]
    made = race_kinds.Program(streams, [])
    for number, stream in enumerate(streams):
        sources = range(max(-1, number - 6), number)
        made.reads.append([number - 1] if number == count - 1 else chance.sample(sources, min(2, len(sources))))
        awaited = [source for source in made.reads[-1] if source >= 0 and streams[source] != stream]
        made.waits.append(awaited + ([-1] if stream else []))
    made.waits[-1] += [number for number in range(count - 1) if streams[number]]
    return made.wrapper()


def search_rows(counts: list[int]) -> list[tuple[str, ...]]:
    """The processor time of the analysis of wrappers, and of the search for races in it, in s."""
    rows: list[tuple[str, ...]] = []
    find = races.find
    for count in counts:
        spent: list[float] = []

        def timed(*given: object, spent: list[float] = spent) -> races.Found:
            began = time.process_time()
            found = find(*given)  # type: ignore[arg-type]
            spent.append(time.process_time() - began)
            return found

        text = wrapper(count)
        with mock.patch.object(races, "find", timed):
            began = time.process_time()
            analysis = planted_races.analysed(text)
            whole = time.process_time() - began
        rows.append((str(len(analysis.sites)), f"{whole:.2f}", f"{sum(spent):.2f}"))
    return rows


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000)
    parser.add_argument("--launches", type=int, nargs="*", default=[50, 200, 800])
    chosen = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"torch {torch.__version__}, {len(os.sched_getaffinity(0))} cores, load {load:.0f}\n")
    with tempfile.TemporaryDirectory() as folder:
        rows = launch_rows(chosen.calls, Path(folder))
    print("Time of a launch on the host, ns:\n")
    table(("", "all on one stream", "one of three on another", "more"), rows)
    print("Processor time within a build, s:\n")
    table(("launches", "analysis of the wrapper", "of it: order and races"), search_rows(chosen.launches))


if __name__ == "__main__":
    main()
