"""Plants kernels whose results depend on the batch, and looks whether `aoti-debug invariance` names them; real models.

usage: python -m benchmarks.quality.invariance [--device cpu|cuda] [--fix] [--jobs N] [--limit S]
    [--results FILE [--table]] [planted] [NAME ...]

Without names, all of the real models; with `transformers` installed also architectures of Hugging Face, in float32 and
bfloat16: along the batch, causal ones along the length, and with padding that a mask hides. With `--fix` remedies are
built for models that vary, and calls are timed: with the first one that works, and of the first size that is enough.

`planted`: a model of ten steps, each of which has its samples at another place: as rows, flattened with the time steps
on either side, behind another axis, as scores, as numbers, in bfloat16. One after the other gives a sample other bits
by the size of the batch or by its place in it; that step, and no other launch, must be named. With none planted,
nothing may be named. Prints Markdown tables. Exit code 1: a step was not named, or another launch was.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from aoti_debug.base import wording
from aoti_debug.base.errors import AotiDebugError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.invariance.invariance import SIZES, InvarianceOptions, invariance
from aoti_debug.compare.invariance.remedies import padding_price, try_remedies
from aoti_debug.compare.invariance.varied_inputs import BATCH, LENGTH, Others
from aoti_debug.compare.invariance.varying_launches import Invariance
from aoti_debug.instrument.builder import build as builder
from aoti_debug.runs.run.timed_pairs import PairedTimes
from aoti_debug.runs.rundir.launch import Launch
from benchmarks import cases
from benchmarks.markdown import table
from benchmarks.models import huggingface_models, ordinary_models
from benchmarks.quality import invariance_ops

OPS = "benchmarks.quality.invariance_ops"
_NUMBERS = re.compile(r", (\d+), (\d+), (-?\d+)\)")  # of a call of a step
NONE = "none"
step = invariance_ops.step
PLANTS: tuple[
    tuple[int, str, set[tuple[int, int]]], ...
] = (  # the step, the fault, and the sizes and places where it shows, of the default sizes
    (0, "size", {(4, 0), (16, 0), (16, 15)}),
    (1, "place", {(16, 15)}),
    (2, "large", {(16, 0), (16, 15)}),
    (3, "size", {(4, 0), (16, 0), (16, 15)}),
    (4, "place", {(16, 15)}),
    (5, "size", {(4, 0), (16, 0), (16, 15)}),
    (6, "large", {(16, 0), (16, 15)}),
    (7, "place", {(16, 15)}),
    (8, "size", {(4, 0), (16, 0), (16, 15)}),
    (9, "odd", {(4, 0), (16, 0), (16, 15)}),
    (-1, NONE, set()),
)


class Steps(nn.Module):
    """Ten steps with generated kernels between them."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(16)

    def forward(self, x: Tensor) -> Any:
        hidden = self.norm(step(x, 0, 0, 1))  # [batch, 12, 16]
        hidden = F.gelu(step(hidden.flatten(0, 1), 1, 0, 12)).unflatten(0, (-1, 12))
        hidden = torch.tanh(step(hidden.transpose(0, 1).contiguous(), 2, 1, 1))  # [12, batch, 16]
        hidden = step(hidden.flatten(0, 1), 3, 0, -12).unflatten(0, (12, -1)) * 1.5
        hidden = step(hidden.permute(2, 1, 0).contiguous(), 4, 1, 1) + 1  # [16, batch, 12]
        hidden = hidden.permute(1, 2, 0)
        scores = step(torch.softmax((hidden.unsqueeze(2) - hidden.unsqueeze(1)).square().sum(-1), -1), 5, 0, 1)
        mixed = step((scores.unsqueeze(-1) * hidden.unsqueeze(1)).sum(2).bfloat16(), 6, 0, 1).float() * 2
        pooled = step(mixed.mean(1), 7, 0, 1)  # [batch, 16]
        largest = step(pooled.argmax(-1), 8, 0, 1)  # [batch]
        return step(pooled.sum(-1), 9, 0, 1) * 3, largest * 2, mixed


@dataclass(frozen=True)
class Real:
    """A model with samples along the first axis of its inputs.

    Attributes:
        inputs: of eight samples.
        axis: that varies: 1 for the length of sequences.
        sizes: of it.
        others: beside the sample.
    """

    module: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Any, ...]]
    configs: Mapping[str, Any] = field(default_factory=dict)
    axis: int = 0
    sizes: tuple[int, ...] = SIZES
    others: Others = Others.GIVEN


class Attention(nn.Module):
    """Scaled dot product attention between two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 4, 16)).permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v)
        return self.out(attended.transpose(1, 2).flatten(2))


class Bags(nn.Module):
    """An embedding bag of a fixed number of indices for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(100, 32, mode="mean"), nn.Linear(32, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.out(self.bag(ids))


class Gated(nn.Module):
    """A gated recurrent cell, unrolled, of operators: that of torch has no meta kernel on a GPU, where sizes vary."""

    def __init__(self) -> None:
        super().__init__()
        self.given, self.kept = nn.Linear(24, 96), nn.Linear(32, 96)

    def forward(self, x: Tensor) -> Tensor:
        state = x.new_zeros(x.shape[0], 32)
        states = []
        for step in range(x.shape[1]):
            reset, update, new = self.given(x[:, step]).chunk(3, 1)
            kept_reset, kept_update, kept_new = self.kept(state).chunk(3, 1)
            gate = torch.sigmoid(update + kept_update)
            candidate = torch.tanh(new + torch.sigmoid(reset + kept_reset) * kept_new)
            state = candidate + gate * (state - candidate)
            states.append(state)
        return torch.stack(states, 1)


class LongSoftmax(nn.Module):
    """Softmax and sums over a long axis."""

    def forward(self, x: Tensor) -> Any:
        return torch.softmax(x, -1).square().sum(-1), torch.logsumexp(x * 3, -1)


class Net(nn.Module):
    """Convolutions with batch normalisation in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Conv2d(16, 16, 3)
        self.out = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.second(F.relu(self.norm(self.first(x)))).mean((2, 3)))


def _normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Callable[[], tuple[Tensor, ...]]:
    return lambda: tuple(torch.randn(8, *shape).to(dtype) for shape in shapes)


_TEMPLATE = {"freezing": True, "max_autotune_gemm": True, "max_autotune_gemm_backends": "CPP"}
_PERCEPTRON = lambda: nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 10))  # noqa: E731
_TRITON = {"freezing": False, "max_autotune_gemm_backends": "TRITON"}
PLANTED = "planted"
PLANTED_CASES = {
    f"{PLANTED} {kind}, step {step}" if kind != NONE else f"{PLANTED} {NONE}": number
    for number, (step, kind, _) in enumerate(PLANTS)
}
REAL = {
    "perceptron": Real(_PERCEPTRON, _normal((64,))),
    "perceptron, GEMM template": Real(_PERCEPTRON, _normal((64,)), _TEMPLATE),
    "attention": Real(Attention, _normal((24, 64))),
    "layer norm": Real(lambda: nn.Sequential(nn.LayerNorm(96), nn.SiLU()), _normal((12, 96))),
    "convolutions": Real(Net, _normal((3, 16, 16))),
    "embedding bag": Real(Bags, lambda: (torch.randint(0, 100, (8, 6)),)),
    "long softmax": Real(LongSoftmax, _normal((5000,))),
    "gated recurrent": Real(Gated, _normal((5, 24))),
    "functions": Real(ordinary_models.Functions, _normal((40,))),
    "batch norm in training": Real(ordinary_models.Convolutions, _normal((3, 16, 16))),
}


class Masked(nn.Module):
    """A model of token ids with a mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        result: Tensor = self.model(input_ids=ids, attention_mask=mask, return_dict=False)[0]
        return result


def _architectures() -> dict[str, Real]:
    """Architectures of Hugging Face; empty without `transformers`."""
    found: dict[str, Real] = {}
    for name, example in huggingface_models.architectures().items():
        kind, _, dtype = name.partition("_")
        if dtype == "float16":
            continue
        kind_and_dtype = kind if dtype == "float32" else f"{kind} {dtype}"
        make = lambda example=example: example.module().to(example.dtype)  # noqa: E731
        images = kind in ("vit", "convnext")
        inputs = _normal((3, 32, 32), dtype=example.dtype) if images else _tokens(8, 16)
        found[f"{kind_and_dtype}, batch"] = Real(make, inputs)
        sizes = (8, 12, 32)
        if kind in ("gpt2", "llama", "qwen2"):
            found[f"{kind_and_dtype}, length"] = Real(make, _tokens(2, 32), axis=1, sizes=sizes)
        if kind in ("bert", "distilbert", "llama"):
            module = lambda make=make: Masked(make().model)  # noqa: E731
            inputs = _tokens(2, 32, masked=True)
            found[f"{kind_and_dtype}, padding"] = Real(module, inputs, axis=1, sizes=sizes, others=Others.ZEROS)
    return found


def _tokens(*shape: int, masked: bool = False) -> Callable[[], tuple[Tensor, ...]]:
    def inputs() -> tuple[Tensor, ...]:
        ids = torch.randint(0, 200, shape)
        return (ids, torch.ones_like(ids)) if masked else (ids,)

    return inputs


def program(module: nn.Module, inputs: tuple[Any, ...], path: Path, axis: int = 0) -> Path:
    """Exports a module with a batch of 1 to 64, or sequences of 2 to 64."""
    size = torch.export.Dim("length" if axis else "batch", min=1 + axis, max=64)
    with torch.no_grad():
        exported = torch.export.export(module, inputs, dynamic_shapes=tuple({axis: size} for _ in inputs))
    torch.export.save(exported, path)
    return path


def planted(number: int, device: str, folder: Path) -> dict[str, Any]:
    """Looks for one of the planted faults, or for none; what is found, as JSON data."""
    torch.manual_seed(0)
    package = builder.build(
        program(Steps().eval().to(device), (torch.randn(8, 12, 16, device=device),), folder / "steps.pt2"),
        output=folder / "steps.instrumented.pt2",
        imports=[OPS],
    )
    step, kind, places = PLANTS[number]
    os.environ[invariance_ops.VARIABLE] = f"{step}:{kind}"
    found = invariance(InvarianceOptions(model=package, out=folder / "runs", user_code=UserCode((OPS,))))
    named = [_step(item.first.launch) for item in found.begins]
    where = {(run.surroundings.size, run.surroundings.place) for item in found.begins for run, _ in item.rows}
    others = len(found.mixes) + len(found.unrepeatable) + len(found.unknown) + len(found.own or ())
    is_right = named == ([] if kind == NONE else [step]) and where == places and not others
    return {"named": named, "at": sorted(where), "others": others, "right": is_right}


def _step(launch: Launch) -> int:
    """The number of a step, from the model line of its launch; -1 for another launch."""
    numbers = [match for line in launch.site.provenance.source for match in _NUMBERS.findall(line.text)]
    return int(numbers[0][0]) if launch.site.op.startswith("invariance") and numbers else -1


def real(model: Real, device: str, folder: Path, *, is_fixed: bool) -> dict[str, Any]:
    """What is found in a real model, as JSON data."""
    torch.manual_seed(0)
    inputs = tuple(x.to(device) for x in model.inputs())
    module = model.module().eval().to(device)
    if device == "cuda" and model.axis:
        _without_library_attention(module)
    try:
        options = InvarianceOptions(
            model=program(module, inputs, folder / "program.pt2", model.axis),
            dim=LENGTH if model.axis else BATCH,
            sizes=model.sizes,
            others=model.others,
            out=folder / "runs",
            inductor_configs={**model.configs, **(_TRITON if device == "cuda" and model.configs else {})},
        )
        found = invariance(options)
        trials = try_remedies(found, options) if is_fixed and found.begins else ()
        padding = padding_price(found, options) if is_fixed else None
    except AotiDebugError as error:
        return {"failure": wording.first_line(str(error))}
    return {
        "launches": found.launches,
        "verdict": found.verdict,
        **_first(found),
        "begins": [item.first.launch.kernel for item in found.begins],
        "trials": [
            {
                "what": trial.remedy.what,
                "lines": trial.lines,
                "said": trial.said,
                "works": trial.seems_to_work,
                "price": _price(trial.price),
            }
            for trial in trials
        ],
        "padding": _price(padding),
    }


def _without_library_attention(module: nn.Module) -> None:
    """Has attention computed by operators: on a GPU that of the library pads masks, which fixes their length."""
    for part in module.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation = "eager"


def _price(found: PairedTimes | None) -> list[float] | None:
    return None if found is None else [found.ratio, found.low, found.high, found.before, found.after]


def _first(found: Invariance) -> dict[str, Any]:
    first = next(iter((*found.begins, *found.mixes, *found.unrepeatable)), None)
    if first is None:
        return {"first": "none" if found.is_complete else "none known", "ulp": 0, "enough": None}
    ulp = max(
        (tensor.rows.elements.max_ulp or 0 for tensor in first.first.differing if tensor.rows.elements), default=0
    )
    enough = min((run.surroundings.size for run in found.enough), default=None)
    return {"first": f"{first.first.launch.kernel} {first.relation.value}", "ulp": ulp, "enough": enough}


def _cells(one: Mapping[str, Any]) -> tuple[str, ...]:
    if "failure" in one:
        return (one["case"], "-", one["failure"], "", "", "", f"{one['seconds']:.0f}")
    trial = next((trial for trial in one["trials"] if trial["works"]), None)
    remedy = f"none of {len(one['trials'])}" if one["trials"] else ""
    if trial is not None:
        remedy = f"{trial['what'] or ' '.join(trial['lines'])}{_times(trial['price'])}"
    ulp = f"{one['ulp']:g} ULP" if one["ulp"] else ""
    enough = "" if one["enough"] is None else f"{one['enough']}{_times(one['padding'])}"
    return (one["case"], str(one["launches"]), one["first"], ulp, enough, remedy, f"{one['seconds']:.0f}")


def _times(price: list[float] | None) -> str:
    if price is None:
        return ""
    ratio, low, high, before, after = price
    return f": {ratio:.2f} × ({low:.2f} to {high:.2f}), {1e3 * before:.3g} to {1e3 * after:.3g} ms"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = {**REAL, **_architectures()}
    parser.add_argument("names", nargs="*", choices=[*known, PLANTED, []], metavar="NAME")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--fix", action="store_true", help="also build remedies, and time calls")
    cases.add_options(parser, limit=900)
    given = parser.parse_args()

    def one(name: str) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as base:
            if name in PLANTED_CASES:
                return planted(PLANTED_CASES[name], given.device, Path(base))
            return real(known[name], given.device, Path(base), is_fixed=given.fix)

    names = given.names or [PLANTED, *known]
    chosen = [case for name in names for case in (PLANTED_CASES if name == PLANTED else [name])]
    rows = cases.run(chosen, given, one)
    plants = [row for row in rows if row["case"] in PLANTED_CASES]
    table(("planted", "named", "at (size, place)", "others named", "right"), [_planted_cells(row) for row in plants])
    header = ("model", "launches", "first launch", "largest", "same bits from, its time", "remedy, its time", "seconds")
    table(header, [_cells(row) for row in rows if row not in plants])
    return int(not all(row.get("right") for row in plants))


def _planted_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if "failure" in row:
        return (row["case"], row["failure"], "", "", "NO")
    return (row["case"], str(row["named"]), str(row["at"]), str(row["others"]), "yes" if row["right"] else "NO")


if __name__ == "__main__":
    sys.exit(main())
