"""Counts false alarms of `aoti-debug invariance`: samples that have the same bits everywhere must not be blamed.

usage: python -m benchmarks.quality.invariance_clean [--device cpu|cuda] [--jobs N] [--results FILE [--table]]
    [batch] [library] [length]

A model of clean steps, whose samples lie as rows, flattened, behind another axis, filled up, in other dtypes and beside
indices that depend on the batch, is run with many samples, sizes and places. A pair is a run of a sample alone and one
among others. The package itself is called again with the inputs of both, without recording: where everything that it
returns has the same bits, nothing may be named. `library`: routines of libraries, from 4 samples on. `length`: a causal
model, and the beginning of a sequence. Prints a Markdown table. Exit code 1: a launch or an output was named in a clean
pair, or fewer than 100 pairs are clean.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from aoti_debug.compare.invariance.invariance import InvarianceOptions, invariance
from aoti_debug.compare.invariance.variance import SampleRun
from aoti_debug.compare.invariance.varying_launches import Invariance
from aoti_debug.instrument.builder import build as builder
from aoti_debug.package.inputs import input_files
from aoti_debug.package.pt2 import archive
from benchmarks import cases
from benchmarks.markdown import table

_ENOUGH = 100  # clean pairs
MODELS = ("batch", "library", "length")
COUNTS = ("launches", "pairs", "clean", "accused", "unknown")


class Rows(nn.Module):
    """Steps that compute each sample of a batch for itself; they return what they compute, the samples in front."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.table = nn.LayerNorm(16), nn.Embedding(50, 16)
        self.scale = nn.Parameter(torch.rand(12, 16))

    def forward(self, x: Tensor, ids: Tensor) -> Any:
        hidden = self.norm(x) + self.table(ids)  # [batch, 12, 16]
        flat = F.gelu(hidden.flatten(0, 1)).unflatten(0, (-1, 12)) * self.scale
        behind = torch.tanh(flat.transpose(0, 1).contiguous())  # [12, batch, 16]
        scores = torch.softmax((hidden.unsqueeze(2) - hidden.unsqueeze(1)).square().sum(-1), -1)
        mixed = (scores.unsqueeze(-1) * flat.unsqueeze(1)).sum(2).bfloat16()
        filled = torch.cat([hidden, hidden.new_zeros(1, 12, 16)]).sin().cumsum(1)[:-1]
        last = hidden[
            torch.arange(x.shape[0], device=x.device), ids[:, 0] % 12
        ].exp()  # indices that depend on the batch
        order, places = torch.sort(hidden.sum(-1), dim=-1)
        if x.is_cuda:  # where a library may choose its algorithm by the batch
            products = (hidden.unsqueeze(2) * hidden.unsqueeze(1)).sum(-1).relu()
        else:
            products = torch.matmul(hidden, hidden.transpose(1, 2)).relu()
        counts = F.one_hot(ids % 5, 5).sum(1) * 1_000_003
        return (
            flat,
            behind.transpose(0, 1),
            scores,
            mixed.float(),
            filled,
            last,
            order,
            places,
            products.sum(-1),
            counts,
        )


class Causal(nn.Module):
    """Steps in which no element depends on a later one of its sequence; they return [batch, length, ...]."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.start = nn.LayerNorm(16), nn.Parameter(torch.rand(1, 1, 16))

    def forward(self, x: Tensor) -> Any:
        hidden = F.silu(self.norm(x))
        tokens = torch.cat([self.start.expand(x.shape[0], 1, 16), hidden], 1)  # one more than the length
        mixed = torch.sigmoid(hidden * tokens.tanh().narrow(1, 0, x.shape[1]))
        largest = torch.cummax(hidden, 1).values
        angle = torch.arange(x.shape[1], device=x.device).float().unsqueeze(-1) * 0.1
        return mixed, largest, hidden * angle.cos(), mixed.sum(-1), mixed.argmax(-1)


class Library(nn.Module):
    """A convolution, attention and matrix products of libraries."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Conv2d(3, 16, 3, padding=1), nn.Linear(16, 10)
        self.qkv = nn.Linear(16, 48)

    def forward(self, x: Tensor) -> Any:
        hidden = F.relu(self.first(x))
        tokens = hidden.flatten(2).transpose(1, 2)[:, :24]
        q, k, v = self.qkv(tokens).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return hidden, attended, self.out(hidden.mean((2, 3))), self.out(attended.mean(1)).softmax(-1)


@dataclass(frozen=True)
class Clean:
    """A model that computes a sample for itself.

    Attributes:
        axis: of its inputs and outputs that varies.
        samples: rows of the inputs.
        device: of the program; the inputs are on the CPU.
    """

    module: type[nn.Module]
    inputs: tuple[Tensor, ...]
    axis: int
    sizes: tuple[int, ...]
    samples: tuple[range, ...]
    device: str = "cpu"


def models(device: str) -> Mapping[str, Clean]:
    """The models by their names in MODELS."""
    torch.manual_seed(0)
    sizes = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33)
    rows = (torch.randn(9, 12, 16) * 3, torch.randint(0, 50, (9, 12)))
    lengths = (4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32)
    found = {
        "batch": Clean(Rows, rows, 0, sizes, tuple(range(n, n + 1) for n in (0, 3, 5, 8))),
        "library": Clean(
            Library,
            (torch.randn(9, 3, 8, 8) * 3,),
            0,
            (4, 5, 7, 8, 12, 16, 17, 31, 32),
            tuple(range(n, n + 1) for n in (0, 3, 8)),
        ),
        "length": Clean(
            Causal,
            (torch.randn(3, 20, 16) * 3,),
            1,
            lengths,
            (range(4), range(2, 6), range(8, 12), range(1, 4)),
        ),
    }
    return {name: replace(case, device=device) for name, case in found.items()}


def package_of(case: Clean, folder: Path) -> Path:
    size = torch.export.Dim("size", min=min(case.sizes), max=64)
    with torch.no_grad():
        exported = torch.export.export(
            case.module().eval().to(case.device),
            tuple(x.to(case.device) for x in case.inputs),
            dynamic_shapes=tuple({case.axis: size} for _ in case.inputs),
        )
    torch.export.save(exported, folder / "clean.pt2")
    return builder.build(folder / "clean.pt2", output=folder / "clean.instrumented.pt2")


def returned(model: Any, run: SampleRun, package: Path, axis: int) -> list[bytes]:
    """The bytes of the sample in what the package returns, called without recording."""
    assert run.run.inputs is not None
    inputs = input_files.read(run.run.inputs, input_files.read_signature(archive.inspect(package)))
    where = run.surroundings
    outputs = model(*inputs.args)
    return [y.narrow(axis, where.place, run.width).contiguous().cpu().numpy().tobytes() for y in outputs]


def accused(found: Invariance, run: SampleRun) -> list[str]:
    """The launches and outputs that are said to have other bits in a run, or in one with the same surroundings."""
    launches = (*found.begins, *found.mixes, *found.unrepeatable, *(found.own or ()))
    named = [
        item.first.launch.kernel
        for item in launches
        if any(other.surroundings == run.surroundings for other, _ in item.rows)
    ]
    return named + ["an output" for other, _ in found.differing_outputs if other is run]


def looked_at(case: Clean, sample: range) -> dict[str, Any]:
    """The pairs of one sample, as JSON data: all, the clean ones, and the clean ones in which something was named."""
    os.environ["AOTI_DEBUG_LEVEL"] = "0"
    with tempfile.TemporaryDirectory() as base:
        package = package_of(case, Path(base))
        model = torch._inductor.aoti_load_package(str(package))
        options = InvarianceOptions(
            model=package,
            dim="batch" if case.axis == 0 else "length",
            sizes=case.sizes,
            sample=sample,
            out=Path(base, "runs"),
        )
        found = invariance(options)
        alone = returned(model, found.alone, package, case.axis)
        clean = [run for run in found.runs if returned(model, run, package, case.axis) == alone]
        named = [accused(found, run) for run in clean]
        return {
            "launches": found.launches,
            "pairs": len(found.runs),
            "clean": len(clean),
            "accused": sum(map(bool, named)),
            "named": sorted({name for names in named for name in names}),
            "unknown": sum(any(other is run for item in found.unknown for other, _ in item.rows) for run in clean),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*MODELS, []], metavar="batch|library|length")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    cases.add_options(parser, limit=900)
    given = parser.parse_args()
    samples = {
        f"{name} {sample.start}:{sample.stop}": (case, sample)
        for name, case in models(given.device).items()
        if name in (given.names or MODELS)
        for sample in case.samples
    }
    rows = cases.run(list(samples), given, lambda name: looked_at(*samples[name]))
    table(("model and sample", *COUNTS), [(one["case"], *_counts(one)) for one in rows])
    failed = [one for one in rows if "failure" in one]
    clean, accused = (sum(one.get(what, 0) for one in rows) for what in ("clean", "accused"))
    print(f"{accused} of {clean} clean pairs accused, {len(failed)} samples failed")
    enough = 1 if given.names else _ENOUGH
    return int(bool(accused or failed) or clean < enough)


def _counts(one: Mapping[str, Any]) -> tuple[str, ...]:
    return (one["failure"], *[""] * (len(COUNTS) - 1)) if "failure" in one else tuple(str(one[w]) for w in COUNTS)


if __name__ == "__main__":
    sys.exit(main())
