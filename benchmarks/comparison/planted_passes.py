"""Plants a fault in a graph pass or a decomposition of Inductor, and has a triage find it.

usage: python -m benchmarks.comparison.planted_passes [--device cpu|cuda] [--folder DIR] [FAULT ...]

The kernels of such a model compute what the graph says that they were generated from; that graph is not the program any
more. One program is exported. For each fault, `aoti-debug triage` runs with this module imported. A fault is found if
the triage reports a wrong value, and the operator that was made wrong is one of those that it names; "first" if it is
the first one. Prints a Markdown table. Exit code 1: one was not found, or the program without a fault is not clean.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from aoti_debug.base.errors import EXIT_INCOMPLETE
from benchmarks import checkout
from benchmarks.markdown import table

VARIABLE = "AOTI_PLANTED_PASS"


class Model(nn.Module):
    """Something of everything that a fault is planted in."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 16)
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 16)
        self.norm = nn.LayerNorm(16)
        self.register_buffer("steps", torch.zeros(16))

    def forward(self, index: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        self.steps.add_(x.mean((0, 1)))
        rows = self.table(index) - x
        hidden = torch.nn.functional.silu(self.first(rows)).tanh()
        wide = torch.cat([self.second(hidden).relu(), x.sin()], dim=-1)
        scaled = wide * torch.full((32,), 3.0, device=x.device)
        less = torch.where(wide > 0.5, wide, scaled - 1)
        weights = torch.softmax(less, dim=-1)
        normed = self.norm(x.transpose(0, 1)) * (self.steps + 1)
        half = (normed.to(torch.float16) * 2048).to(torch.float32).clamp(-900.0, 900.0)
        return weights, half, torch.logsumexp(rows, 1), (less.cumsum(1) * 0.01).exp()


def _replace(setting: str, wrong: str, change: Callable[[Any], None]) -> None:
    """A pass of the user's that changes the first node of a graph that calls this operator."""
    import torch._inductor.config

    def edit(graph: Any) -> None:
        for node in graph.nodes:
            if str(node.target) == wrong:
                change(node)
                return

    setattr(torch._inductor.config, setting, edit)


def _target(name: str) -> Callable[[Any], None]:
    def change(node: Any) -> None:
        packet, overload = name.split(".")
        node.target = getattr(getattr(torch.ops.aten, packet), overload)

    return change


def _argument(position: int, value: Any) -> Callable[[Any], None]:
    def change(node: Any) -> None:
        args = list(node.args)
        args[position] = value
        node.args = tuple(args)

    return change


def _swapped(first: int, second: int) -> Callable[[Any], None]:
    def change(node: Any) -> None:
        args = list(node.args)
        args[first], args[second] = args[second], args[first]
        node.args = tuple(args)

    return change


def _bypassed(node: Any) -> None:
    node.replace_all_uses_with(node.args[0])


def _decomposed(name: str, wrong: Callable[..., Any]) -> None:
    from torch._inductor.decomposition import decompositions

    packet, overload = name.split(".")
    decompositions[getattr(getattr(torch.ops.aten, packet), overload)] = wrong


JOINT, POST = "joint_custom_pre_pass", "post_grad_custom_post_pass"
# What plants each fault, and the operator of the exported program that it makes wrong.
FAULTS: dict[str, tuple[Callable[[], None], str]] = {
    "sigmoid for tanh": (lambda: _replace(POST, "aten.tanh.default", _target("sigmoid.default")), "aten.tanh"),
    "abs for relu": (lambda: _replace(JOINT, "aten.relu.default", _target("abs.default")), "aten.relu"),
    "operands of a subtraction swapped": (lambda: _replace(JOINT, "aten.sub.Tensor", _swapped(0, 1)), "aten.sub"),
    "branches of a where swapped": (lambda: _replace(POST, "aten.where.self", _swapped(1, 2)), "aten.where"),
    "another limit in a comparison": (lambda: _replace(JOINT, "aten.gt.Scalar", _argument(1, 0.25)), "aten.gt"),
    "a sine left out": (lambda: _replace(JOINT, "aten.sin.default", _bypassed), "aten.sin"),
    "an upper limit left out": (
        lambda: _replace(POST, "aten.clamp_max.default", _bypassed),
        "aten.clamp",
    ),
    "a cumulative sum along another axis": (
        lambda: _replace(JOINT, "aten.cumsum.default", _argument(1, 0)),
        "aten.cumsum",
    ),
    "a mean over one axis too few": (lambda: _replace(JOINT, "aten.mean.dim", _target("sum.dim_IntList")), "aten.mean"),
    "a constant doubled": (lambda: _replace(JOINT, "aten.full.default", _argument(1, 6.0)), "aten.full"),
    "silu of twice its argument": (
        lambda: _decomposed("silu.default", lambda x: x * torch.sigmoid(2 * x)),
        "aten.silu",
    ),
    "logsumexp of half its argument": (
        lambda: _decomposed("logsumexp.default", lambda x, dim, keepdim=False: (x * 0.5).exp().sum(dim, keepdim).log()),
        "aten.logsumexp",
    ),
    "a row of a table shifted": (
        lambda: _decomposed(
            "embedding.default",
            lambda weight, indices, *_: torch.ops.aten.index.Tensor(weight.roll(1, 0), [indices]),
        ),
        "aten.embedding",
    ),
}

if _planted := os.environ.get(VARIABLE):
    FAULTS[_planted][0]()


@dataclass(frozen=True)
class Row:
    """The triage of one fault."""

    fault: str
    kind: str
    named: str
    seconds: float

    @property
    def is_right(self) -> bool:
        """True if it was found, with its operator; without a fault, if the model is clean."""
        return self.kind == "wrong_value" and self.named != "" if self.fault else self.kind == "clean"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", default=["", *FAULTS])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--folder", type=Path, help="where the program and the triages are kept")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="aoti-debug-passes-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "program.pt2"
    torch.manual_seed(0)
    inputs = torch.randint(32, (8, 12)).to(options.device), torch.randn(8, 12, 16, device=options.device)
    with torch.no_grad():
        torch.export.save(torch.export.export(Model().eval().to(options.device), inputs), program)
    rows = [_triage(fault, program, folder) for fault in options.faults]
    cells = [(r.fault or "none", r.kind, r.named, f"{r.seconds:.0f}") for r in rows]
    table(("planted", "triage", "operator named", "seconds"), cells)
    return int(not all(row.is_right for row in rows))


def _triage(fault: str, program: Path, folder: Path) -> Row:
    environment = checkout.environment(**{VARIABLE: fault})
    command = ["triage", str(program), "--json", "--import", "benchmarks.comparison.planted_passes"]
    command += ["--out", str(folder / (fault or "none").replace(" ", "_"))]
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "aoti_debug", *command], env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    if done.returncode not in (0, 1, EXIT_INCOMPLETE):
        return Row(fault, f"exit code {done.returncode}: {done.stderr.strip()[-200:]}", "", seconds)
    finding = json.loads(done.stdout)
    wanted = FAULTS[fault][1] if fault else ""
    return Row(fault, finding["kind"], _named(finding["evidence"], wanted) if wanted else "", seconds)


def _named(evidence: Sequence[str], operator: str) -> str:
    """ "first" if the operator is the first that is named, "yes" if it is another one, "" if it is none."""
    lost = [said for said in evidence if said.startswith(("it has no value like that of", "it has the numbers of"))]
    at = next((n for n, sentence in enumerate(lost) if f" {operator}." in sentence), None)
    return "" if at is None else "first" if at == 0 else "yes"


if __name__ == "__main__":
    sys.exit(main())
