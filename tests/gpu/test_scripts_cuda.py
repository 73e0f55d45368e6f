"""Scripts that run packages on a GPU: an illegal access and NaN in one of their calls."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.paths import ROOT

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

SCRIPT = """
import sys
import torch
import triton
import triton.language as tl
from torch.library import triton_op, wrap_triton

@triton.jit
def lookup_kernel(table, index, out, width: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    source = tl.load(index + row)
    values = tl.load(table + source * width + column, mask=column < width)
    tl.store(out + row * width + column, values, mask=column < width)

@triton_op("script::lookup", mutates_args={})
def lookup(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    out = table.new_empty(index.shape[0], table.shape[1])
    wrap_triton(lookup_kernel)[(index.shape[0],)](table, index, out, table.shape[1], BLOCK=64)
    return out

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1000, 64))
        self.linear = torch.nn.Linear(64, 64)

    def forward(self, index, scale):
        table = self.table.sin()
        index = index * 2
        rows = lookup(table, index)
        rows = torch.sqrt(self.linear(rows) ** 2 + scale)
        return rows.cos()

torch.manual_seed(0)
model = Model().cuda().eval()
index = torch.randint(0, 500, (256,), device="cuda")
scale = torch.ones((), device="cuda")
with torch.no_grad():
    program = torch.export.export(model, (index, scale))
    path = torch._inductor.aoti_compile_and_package(program, package_path="lookup.pt2")
    loaded = torch._inductor.aoti_load_package(path)
    for call in range(4):
        if call == 2 and sys.argv[1] == "access":
            index[100] = 1 << 40
        result = loaded(index, -1e6 * scale if call == 2 and sys.argv[1] == "nan" else scale)
        print(call, flush=True)
torch.cuda.synchronize()
print("end")
"""


LIBRARY = SCRIPT.replace(
    'torch._inductor.aoti_compile_and_package(program, package_path="lookup.pt2")',
    "torch._inductor.aot_compile(program.module(), (index, scale))",
).replace("torch._inductor.aoti_load_package(path)", 'torch._export.aot_load(path, "cuda")')

CALL = "rows = lookup(table, index)"
LAUNCH = "wrap_triton(lookup_kernel)[(index.shape[0],)](table, index, rows, table.shape[1], BLOCK=64)"
DIRECT = SCRIPT.replace(CALL, f"rows = table.new_empty(index.shape[0], table.shape[1])\n        {LAUNCH}")


def triaged(folder: Path, *words: str, script: str = SCRIPT) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    (folder / "serve.py").write_text(script)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AOTI_DEBUG_")}
    done = subprocess.run(
        [sys.executable, "-m", "aoti_debug", "triage", "--json", *words],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    print(done.stderr)
    return json.loads(done.stdout), done


def line_of(words: str, script: str = SCRIPT) -> int:
    return next(number for number, line in enumerate(script.splitlines(), 1) if words in line)


@pytest.mark.parametrize(("script", "launch"), [(SCRIPT, CALL), (DIRECT, LAUNCH)], ids=["operator", "in forward"])
def test_an_illegal_access_in_one_call(tmp_path: Path, script: str, launch: str) -> None:
    """A kernel that the user wrote stands in the line that launches it, not in those that make its arguments."""
    finding, done = triaged(tmp_path, "serve.py", "access", script=script)
    assert (finding["kind"], finding["kernel"]) == ("fault", "lookup_kernel_0")
    assert finding["what"] == "invalid memory access on the GPU in lookup_kernel_0"
    assert any("an illegal memory access was encountered" in sentence for sentence in finding["evidence"])
    assert "call 2 of lookup-" in done.stderr
    assert "cubin: AcceleratorError: CUDA error: an illegal memory access was encountered" in finding["confirmed_by"]
    assert finding["origin"]["input"] == "index"
    place = (Path(finding["file"]).name, finding["line"], finding["text"])
    assert place == ("serve.py", line_of(launch, script), launch)


def test_results_of_one_call_that_are_not_finite(tmp_path: Path) -> None:
    finding, done = triaged(tmp_path, "--no-compare", "serve.py", "nan")
    assert "end\n" in done.stderr
    assert "call 2 of lookup-" in done.stderr
    assert finding["kind"] == "nonfinite"
    assert (Path(finding["file"]).name, finding["line"]) == ("serve.py", line_of("torch.sqrt"))


def test_a_bare_library(tmp_path: Path) -> None:
    """The library is replaced by an instrumented one, whose kernels' binaries lie in its folder."""
    assert "aot_compile(" in LIBRARY
    assert "aot_load(" in LIBRARY
    finding, done = triaged(tmp_path, "--no-compare", "serve.py", "nan", script=LIBRARY)
    assert "end\n" in done.stderr
    assert "exit code 0; call 2 of " in done.stderr
    assert finding["kind"] == "nonfinite"
    assert (Path(finding["file"]).name, finding["line"]) == ("serve.py", line_of("torch.sqrt", LIBRARY))
