"""Plants a module that needs its precision among ordinary ones, and has `aoti-debug precision` rank them.

usage: python -m benchmarks.comparison.planted_precision [--device cpu|cuda] [--to DTYPE] [--build]
    [--folder DIR] [--jobs N] [--results FILE [--table]] [KIND ...]

Each model has five modules of which one is planted: a softmax of large logits, a sum of terms that cancel, and others.
It is found if it is the first of the ranking. Beside the change of the output with all modules rounded at once stands
that of the same model in this dtype (weights, inputs and operators), in eager on the same inputs, where torch has its
operators; then what the proposal keeps, and the change that is left; with `--build` also that of the program with casts
in the other modules, built. Prints a Markdown table. Exit code 1: one was not first.
"""

from __future__ import annotations

import argparse
import copy
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aoti_debug.base.errors import EXIT_CLEAN, EXIT_FINDING, EXIT_INCOMPLETE, EXIT_UNCONFIRMED
from benchmarks import cases, checkout
from benchmarks.markdown import table

WIDTH, ROWS = 64, 32
NONE = "none"  # a model in which nothing is planted


class Ordinary(nn.Module):
    """A linear layer with a residual connection and a norm."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        hidden: Tensor = self.norm(x + nn.functional.gelu(self.linear(x)))
        return hidden


class Planted(nn.Module):
    """A function of what a linear layer has written: what rounding makes of that is enlarged."""

    def __init__(self, function: Callable[[Tensor], Tensor], scale: float, bias: float) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)
        self.function = function
        with torch.no_grad():
            self.linear.weight.mul_(scale)
            self.linear.bias.fill_(bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


class Model(nn.Module):
    """The planted module stands at a place of five."""

    def __init__(self, planted: nn.Module | None, place: int) -> None:
        super().__init__()
        names = ("first", "second", "third", "fourth", "fifth")
        self.order = [*names[:place], "planted", *names[place:4]] if planted is not None else [*names]
        for name in self.order:
            setattr(self, name, planted if name == "planted" else Ordinary())

    def forward(self, x: Tensor) -> Tensor:
        for name in self.order:
            x = getattr(self, name)(x)
        return x


def _pairs(y: Tensor) -> Tensor:
    """Differences of neighbours, which are nearly equal."""
    return (y[:, ::2] - y[:, 1::2]).repeat(1, 2)


def _spread(y: Tensor) -> Tensor:
    mean = y.mean(-1, keepdim=True)
    return (y - mean) / ((y * y).mean(-1, keepdim=True) - mean * mean).abs().sqrt()


KINDS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "softmax of large logits": (lambda y: torch.softmax(y, -1) * 8, 1.0, 100.0),
    "sum of many terms that cancel": (lambda y: y.cumsum(-1).diff(dim=-1, prepend=y[:, :1]) / 8, 1.0, 40.0),
    "difference of large numbers": (_pairs, 1.0, 100.0),
    "exp of large numbers": (lambda y: (y - 30).exp(), 1.0, 30.0),
    "residual stream with outliers": (lambda y: y + 512 - (y + 512).round(), 1.0, 300.0),
    "norm of a small spread, small eps": (
        lambda y: nn.functional.layer_norm(y, (WIDTH,), eps=1e-12),
        1e-2,
        1.0,
    ),
    "variance by mean of squares": (_spread, 1.0, 20.0),
    "sine of large arguments": (torch.sin, 1.0, 200.0),
    "logarithm next to one": (lambda y: y.log() * 100, 1e-2, 1.0),
    "reciprocal next to zero": (lambda y: (y - 10).reciprocal().clamp(-50, 50), 1.0, 10.0),
}


@dataclass(frozen=True)
class Ranking:
    """The ranking of one model.

    Attributes:
        ranking: the modules, the most sensitive one first.
        errors: their changes of the output.
        at_once, real: the change with all rounded, and that of the model in this dtype in eager; None if it has none.
        kept: what the proposal keeps; None without one.
        left, built: the change that the proposal leaves, and that of the program with casts; None without a build.
    """

    ranking: tuple[str, ...]
    errors: tuple[float, ...]
    at_once: float
    real: float | None
    kept: tuple[str, ...] | None
    left: float
    built: float | None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=[NONE, *KINDS])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--to", default="bfloat16")
    parser.add_argument("--build", action="store_true", help="also build the proposal")
    parser.add_argument("--folder", type=Path, help="where the programs and the runs are kept")
    cases.add_options(parser, limit=900)
    options = parser.parse_args()

    def one(kind: str) -> dict[str, Any]:
        if options.folder is not None:
            return asdict(_measured(kind, options, options.folder.resolve() / kind.replace(" ", "_")))
        with tempfile.TemporaryDirectory(prefix="aoti-debug-precision-") as folder:
            return asdict(_measured(kind, options, Path(folder)))

    rows = cases.run(options.kinds, options, one)
    heads = (
        "planted",
        "first",
        "first and second error",
        "all at once",
        "in eager",
        "kept",
        "left",
        "built",
        "seconds",
    )
    table(heads, [_cells(row) for row in rows])
    planted = [row for row in rows if row["case"] != NONE]
    found = sum("failure" not in row and row["ranking"][0] == "planted" for row in planted)
    print(f"\n{found} of {len(planted)} first")
    return int(found < len(planted))


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    if "failure" in row:
        return (row["case"], row["failure"], *[""] * 7)
    return (
        row["case"],
        row["ranking"][0],
        f"{row['errors'][0]:.2g}, {row['errors'][1]:.2g}",
        f"{row['at_once']:.2g}",
        "-" if row["real"] is None else f"{row['real']:.2g}",
        "all" if row["kept"] is None else ", ".join(row["kept"]) or "none",
        f"{row['left']:.2g}",
        "-" if row["built"] is None else f"{row['built']:.2g}",
        f"{row['seconds']:.0f}",
    )


def _measured(kind: str, options: argparse.Namespace, folder: Path) -> Ranking:
    folder.mkdir(parents=True, exist_ok=True)
    number = [NONE, *KINDS].index(kind)
    torch.manual_seed(number)
    planted = Planted(*KINDS[kind]) if kind != NONE else None
    model, x = Model(planted, number % 5).eval().to(options.device), torch.randn(ROWS, WIDTH).to(options.device)
    program = folder / "program.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(model, (x,)), program)
    command = ["precision", str(program), "--to", options.to, "--depth", "1", "--json", "--out", str(folder / "runs")]
    done = subprocess.run(
        [sys.executable, "-m", "aoti_debug", *command, *["--build"] * options.build],
        env=checkout.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (EXIT_CLEAN, EXIT_FINDING, EXIT_UNCONFIRMED, EXIT_INCOMPLETE):
        raise SystemExit(f"{kind}: exit code {done.returncode}: {done.stderr.strip()[-400:]}")
    found = json.loads(done.stdout)
    proposal = found["proposal"]
    return Ranking(
        tuple(part["name"] for part in found["parts"]),
        tuple(float(part["error"]) for part in found["parts"]),
        float(found["all"]["error"]),
        _real(model, x, getattr(torch, options.to)),
        None if proposal is None else tuple(proposal["kept"]),
        0.0 if proposal is None else float(proposal["error"]),
        None if not found["built"] or found["built"]["failure"] else float(found["built"]["error"]),
    )


def _real(model: nn.Module, x: Tensor, dtype: torch.dtype) -> float | None:
    """The change of the output if the model is of this dtype, in eager; None if torch lacks an operator."""
    try:
        with torch.no_grad():
            expected, narrow = model(x), copy.deepcopy(model).to(dtype)(x.to(dtype)).float()
    except (RuntimeError, NotImplementedError):
        return None
    return float((narrow - expected).norm() / expected.norm())


if __name__ == "__main__":
    sys.exit(main())
