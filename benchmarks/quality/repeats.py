"""Plants reasons for other bits from call to call, and looks whether `aoti-debug run --repeat` names launch and reason.

usage: python -m benchmarks.quality.repeats [--device cpu|cuda] [--calls N] [--jobs N] [--results FILE [--table]]
    [NAME ...]

Kernels that add atomically, threads that race (the same kernel without atomics), memory that nothing has written (the
same kernel without its zeros), random numbers, and models that repeat: integers that are added atomically, a state that
each call changes. On a GPU the kernels that race, and that lack zeros, are of repeats_cuda.py. Prints a Markdown table.
Exit code 1: a launch or its reason was not the planted one.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aoti_debug.base.abi import Level
from aoti_debug.compare.diff.repeated_calls import RepeatedCalls, compare_calls
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.frontend.lowered_model import LoweredModel
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import recording_everything
from aoti_debug.runs.run.supervise import Observer
from benchmarks import cases
from benchmarks.markdown import table

ROWS, WIDTH = 1 << 16, 16
_OPS = "benchmarks.quality.repeats_cuda"
_ATOMIC = re.compile(r"atomic_add_vec<[^>]*>\((\w+), (\w+), (\w+)\);")
_PLAIN = (
    r"{ int64_t places[64]; float values[64]; \2.store(places); \3.store(values); "
    r"for (int i = 0; i < \3.size(); ++i) \1[places[i]] += values[i]; }"
)
_ZEROS = re.compile(r"tmp1\.store\(out_ptr0 \+ static_cast<int64_t>\(x0\)[^;]*\);")


class Scattered(nn.Module):
    """Rows that are added to few others, between generated kernels and a product."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, rows: Tensor, index: Tensor) -> Tensor:
        zeros = torch.zeros(4, WIDTH, dtype=rows.dtype, device=rows.device)
        added = zeros.index_add(0, index, rows * 3)
        return self.linear(added.float()).relu()


class Raced(nn.Module):
    """Rows that are added by a Triton kernel whose threads race."""

    def forward(self, rows: Tensor, index: Tensor) -> Tensor:
        from benchmarks.quality import repeats_cuda

        return repeats_cuda.raced(rows * 3, index).relu()


class Unwritten(nn.Module):
    """Rows that are added by a Triton kernel to memory that nothing has written."""

    def forward(self, rows: Tensor, index: Tensor) -> Tensor:
        from benchmarks.quality import repeats_cuda

        return repeats_cuda.unwritten(rows * 3, index).relu()


class Drawn(nn.Module):
    """Random numbers between kernels that repeat."""

    def forward(self, rows: Tensor, index: Tensor) -> Tensor:
        return (torch.rand_like(rows[:64]) + rows[:64].sin()).sum(-1) + index[:64]


class Stateful(nn.Module):
    """A buffer that each call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(WIDTH))

    def forward(self, rows: Tensor, index: Tensor) -> Tensor:
        self.count.add_(1)
        return (rows[:64] * self.count).sum(-1) + index[:64]


def _kernels(edit: Callable[[str], str]) -> Callable[[LoweredModel], LoweredModel]:
    def edited(lowered: LoweredModel) -> LoweredModel:
        text = edit(lowered.sources.kernels)
        if text == lowered.sources.kernels:
            raise SystemExit("the kernels have nothing to edit:\n" + text)
        return replace(lowered, sources=replace(lowered.sources, kernels=text))

    return edited


def _without_atomics(text: str) -> str:
    return _ATOMIC.sub(_PLAIN, text)


def _without_zeros(text: str) -> str:
    return _ZEROS.sub(";", text, count=1)


@dataclass(frozen=True)
class Plant:
    """A reason for other bits, or none.

    Attributes:
        expected: what a cause begins with; "" if none may be named, None if every call must repeat.
        kernel: a word of the launch that must be named.
    """

    module: Callable[[], nn.Module]
    expected: str | None = None
    kernel: str = ""
    edit: Callable[[LoweredModel], LoweredModel] | None = None
    dtype: torch.dtype = torch.float32
    imports: tuple[str, ...] = ()


PLANTS = {
    "atomics": Plant(Scattered, "atomics", "index_add"),
    "race": Plant(Scattered, "threads", "index_add", _kernels(_without_atomics)),
    "uninitialised": Plant(Scattered, "memory that nothing has written", "index_add", _kernels(_without_zeros)),
    "random": Plant(Drawn, "random numbers", "rand"),
    "atomic integers": Plant(Scattered, dtype=torch.int64),
    "state": Plant(Stateful),
}
CUDA_PLANTS = {
    "atomics": Plant(Scattered, "atomics", "index_add"),
    "race": Plant(Raced, "", "racing_kernel", imports=(_OPS,)),
    "uninitialised": Plant(Unwritten, "memory that nothing has written", "adding_kernel", imports=(_OPS,)),
    "random": PLANTS["random"],
    "atomic integers": PLANTS["atomic integers"],
    "state": PLANTS["state"],
}


@contextmanager
def edited_build(edit: Callable[[LoweredModel], LoweredModel] | None) -> Iterator[None]:
    """Builds inside the `with` compile the sources that `edit` makes."""
    lower = builder.lower_or_unpack
    if edit is not None:

        def changed(checked: Any, torch_: Any, work: Path) -> LoweredModel:
            return edit(lower(checked, torch_, work))

        builder.lower_or_unpack = changed  # type: ignore[assignment]
    try:
        yield
    finally:
        builder.lower_or_unpack = lower


def repeated(plant: Plant, folder: Path, *, calls: int, device: str) -> RepeatedCalls:
    torch.manual_seed(0)
    rows = torch.randn(ROWS, WIDTH) if plant.dtype.is_floating_point else torch.randint(-99, 99, (ROWS, WIDTH))
    inputs = (rows.to(device, plant.dtype), torch.randint(0, 4, (ROWS,)).to(device))
    program, package = folder / "program.pt2", folder / "package.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(plant.module().to(device), inputs), program)
    with edited_build(plant.edit):
        builder.build(program, output=package, imports=plant.imports)
    options = replace(recording_everything(package, folder / "runs"), level=Level.HASH, calls=calls)
    return compare_calls(runner.run(options, Observer()).run)


def row(plant: Plant, *, calls: int, device: str) -> dict[str, Any]:
    """What is said of a plant, as JSON data."""
    with tempfile.TemporaryDirectory() as folder:
        found = repeated(plant, Path(folder), calls=calls, device=device)
    first = found.launches[0] if found.launches else None
    causes = () if first is None else first.causes
    if first is None:
        is_right = plant.expected is None
    elif plant.expected is None:
        is_right = False
    else:
        named = any(cause.startswith(plant.expected) for cause in causes) if plant.expected else not causes
        is_right = named and plant.kernel in first.launch.kernel and len(found.launches) == 1
    where = "every call repeats" if first is None else f"{first.launch.kernel}, {len(first.calls)} calls"
    return {"where": where, "causes": causes, "changed_state": found.changed_state, "right": is_right}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=list(PLANTS))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--calls", type=int, default=100)
    cases.add_options(parser, limit=600)
    given = parser.parse_args()
    plants = PLANTS if given.device == "cpu" else CUDA_PLANTS
    rows = cases.run(given.names, given, lambda name: row(plants[name], calls=given.calls, device=given.device))
    cells = [
        (
            str(one["case"]),
            str(one.get("where", one.get("failure"))),
            "; ".join(one.get("causes", ())),
            str(one.get("changed_state", "")),
            "yes" if one.get("right") else "NO",
        )
        for one in rows
    ]
    table(("planted", "first launch", "what may be the cause", "read a changed state", "right"), cells)
    right = sum(bool(one.get("right")) for one in rows)
    print(f"\n{right} of {len(rows)} right")
    return int(right < len(rows))


if __name__ == "__main__":
    sys.exit(main())
