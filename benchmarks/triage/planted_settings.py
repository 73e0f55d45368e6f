"""Plants a fault in one setting, pass, lowering or decomposition of Inductor, and has it found.

usage: python -m benchmarks.triage.planted_settings [--folder DIR] [FAULT ...]

One program is exported. For each fault of planted_settings_faults.py, `aoti-debug bisect --settings` runs
with that module imported. A fault is named if what fixes the program is the part in which it was planted, and nothing
else. Prints a Markdown table, and what was found instead for each fault that was not named. Exit code 1: one was not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks import checkout
from benchmarks.markdown import table
from benchmarks.triage import planted_settings_faults
from benchmarks.triage.planted_settings_faults import VARIABLE

# What names each fault, and the options that it appears with; a lowering by its operator
CHUNKS = "cpp.min_chunk_size=64"
EXPECTED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "relu for abs": (("torch.ops.aten.relu.default",), ()),
    "sum one short": (("torch.ops.aten.sum.dim_IntList",), ()),
    "exp by three per cent": (("torch.ops.aten.exp.default",), ()),
    "cat reversed": (("torch.ops.aten.cat.default",), ()),
    "silu of twice": (("decompositions.pop(torch.ops.aten.silu.default",), ()),
    "custom pass after autograd": (("disabled_passes=post_grad_custom_post_pass",), ()),
    "custom pass of the joint graph": (("disabled_passes=joint_custom_pre_pass",), ()),
    "pattern that swaps operands": (("disabled_passes=pass_pattern_0", "pattern_matcher=False"), ()),
    "sine is nothing": (("disabled_passes=remove_noop_ops",), ()),
    "doubled constants": (("disabled_passes=constant_fold_uniform_value",), ()),
    "exp of vectors": (("cpp.simdlen=1",), ()),
    "exp in fused kernels": (("max_fusion_size=1",), ()),
    "exp of small chunks": (("without --inductor-config cpp.min_chunk_size",), ("--inductor-config", CHUNKS)),
    "relu for abs,cat reversed": (("torch.ops.aten.relu.default", "torch.ops.aten.cat.default"), ()),
}


class Model(nn.Module):
    """Something of everything that a fault is planted in."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(32, 16)
        self.first = nn.Linear(16, 32)
        self.second = nn.Linear(32, 16)

    def forward(self, index: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        rows = self.table(index) - x
        hidden = torch.nn.functional.silu(self.first(rows)).tanh()
        wide = torch.cat([self.second(hidden).relu(), x.sin()], dim=-1)
        scaled = wide * torch.full((32,), 3.0)
        less = wide - scaled
        return scaled.exp().sum(dim=1) / 10, less.tanh(), less.exp()


@dataclass(frozen=True)
class Row:
    """The search for one fault."""

    fault: str
    named: bool
    builds: int
    seconds: float
    fixed: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("faults", nargs="*", metavar="FAULT", default=list(EXPECTED))
    parser.add_argument("--folder", type=Path, help="where the program and the bisections are kept")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="aoti-debug-settings-"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "program.pt2"
    torch.manual_seed(0)
    inputs = torch.randint(32, (8, 12)), torch.randn(8, 12, 16)
    torch.export.save(torch.export.export(Model().eval(), inputs), program)
    rows = []
    for fault in options.faults:
        rows.append(_search(fault, program, folder))
        if not rows[-1].named:
            print(f"{fault}: {rows[-1].fixed}", flush=True)
    head = ("planted", "named", "fixed by", "builds", "seconds")
    cells = [(r.fault, "yes" if r.named else "no", f"`{r.fixed}`", str(r.builds), f"{r.seconds:.0f}") for r in rows]
    table(head, cells)
    return int(not all(row.named for row in rows))


def _search(fault: str, program: Path, folder: Path) -> Row:
    wanted, words = EXPECTED[fault]
    environment = checkout.environment(**{VARIABLE: fault})
    out = folder / fault.replace(" ", "_")
    command = ["bisect", str(program), "--settings", "--out", str(out)]
    command += ["--import", planted_settings_faults.__name__, *words]
    began = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-m", "aoti_debug", *command], env=environment, capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - began
    (folder / f"{out.name}.txt").write_text(result.stdout + result.stderr)
    lines = result.stdout.splitlines()
    at = next((n for n, line in enumerate(lines) if line.startswith("FIXED by")), None)
    if at is None:
        said = (lines or result.stderr.splitlines() or ["nothing"])[-1]
        return Row(fault, named=False, builds=0, seconds=seconds, fixed=said)
    end = next(n for n, line in enumerate(lines) if n > at and line.startswith("  cause"))
    fixed = [line[len("FIXED by  ") :] for line in lines[at:end]]
    builds = int(lines[end].rsplit("; ", 1)[1].split()[0])
    named = len(fixed) == (len(wanted) if "," in fault else 1) and all(any(w in h for w in wanted) for h in fixed)
    return Row(fault, named, builds, seconds, "; ".join(fixed))


if __name__ == "__main__":
    sys.exit(main())
