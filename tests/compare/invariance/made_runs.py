"""Made-up runs of one sample alone and among others: chains of kernels on rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from aoti_debug.compare.invariance.variance import Control, LaunchRows, SampleComparison, SampleRun
from aoti_debug.compare.invariance.varied_inputs import InputAxis, Others, SampleSurroundings, VariedSize
from aoti_debug.compare.invariance.varying_launches import Invariance, RunPlace, collected
from aoti_debug.package.inputs.signature import Dim
from tests.saved_tensors import save
from tests.triage.recorder import Recorder

Kernel = Callable[[torch.Tensor], torch.Tensor]

WEIGHT = torch.tensor([1.0, 2.0, 3.0])
SAMPLE = torch.tensor([[0.5, 1.5, 2.5]])


def rows(size: int, place: int, seed: int) -> torch.Tensor:
    others = torch.rand(size - 1, 3, generator=torch.Generator().manual_seed(seed))
    return torch.cat([others[:place], SAMPLE, others[place:]])


def run(base: Path, x: torch.Tensor, kernels: list[Kernel], place: int = 0, operator: str = "") -> SampleRun:
    """A run of a chain of kernels, each of which reads what the one before wrote, and a weight."""
    recorder = Recorder(base, inputs=("x",), outputs=(f"buf{len(kernels) - 1}",), weights=("w",))
    recorder.journal.call_begin()
    name, value = "x", x
    for number, kernel in enumerate(kernels):
        written = kernel(value)
        recorder.launch(f"cpp_{number}", {name: value, "w": WEIGHT}, {f"buf{number}": written}, op=operator)
        name, value = f"buf{number}", written
    recorder.journal.call_end(launches=len(kernels))
    recorder.journal.run_end()
    output = base / "outputs" / "0.safetensors"
    save(output, "0", value)
    return SampleRun(
        surroundings=SampleSurroundings(x.shape[0], place, Others.GIVEN),
        run=recorder.run(),
        outputs={0: output},
        width=1,
    )


def compared(
    base: Path, kernels: list[Kernel], again: list[Kernel] | None = None
) -> tuple[dict[int, list[LaunchRows]], SampleComparison]:
    """The launches at the first and the last place of a batch of four."""
    alone = run(base / "alone", SAMPLE, kernels)
    among = run(base / "among", rows(4, 0, 1), kernels)
    last = run(base / "last", rows(4, 3, 1), kernels, place=3)
    control = run(base / "control", rows(4, 0, 2), kernels)
    repeated = run(base / "again", rows(4, 0, 1), again or kernels)
    comparison = SampleComparison(alone, controls(base, among, last, control, kernels), repeated.run)
    return {place.surroundings.place: list(comparison.launches(place)) for place in (among, last)}, comparison


def controls(
    base: Path, among: SampleRun, last: SampleRun, control: SampleRun, kernels: list[Kernel]
) -> tuple[Control, Control]:
    """The runs with other values beside the sample: at the first place, and small ones at the last place."""
    small = torch.cat([rows(4, 3, 2)[:3] / 1024, SAMPLE])
    return Control(among, control), Control(last, run(base / "small", small, kernels, place=3))


def made(base: Path, kernels: list[Kernel], operator: str = "") -> Invariance:
    """The bits of a sample at both places of a batch of four.

    Args:
        operator: that each kernel is of; "" for generated kernels.
    """
    alone = run(base / "alone", SAMPLE, kernels, operator=operator)
    among = run(base / "among", rows(4, 0, 1), kernels, operator=operator)
    last = run(base / "last", rows(4, 3, 1), kernels, place=3, operator=operator)
    control = run(base / "control", rows(4, 0, 2), kernels, operator=operator)
    again = run(base / "again", rows(4, 0, 1), kernels).run
    comparison = SampleComparison(alone, controls(base, among, last, control, kernels), again)
    varied = VariedSize("s0", (InputAxis(0, 0),), "axis 0 of x", Dim(1, 64, "s0"), is_batch=True)
    return collected(comparison, alone, (among, last), RunPlace(varied, base / "model.pt2", base))


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def by_size(x: torch.Tensor) -> torch.Tensor:
    """Another algorithm for one row."""
    return x + 1 if x.shape[0] == 1 else torch.nextafter(x + 1, torch.tensor(9.0))
