from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import save_file

from aoti_debug.base.abi import FaultDomain, Phase, SaveStatus
from aoti_debug.package.argument_values import Absent
from aoti_debug.package.manifest import Certainty, Form, ModelLine, Provenance, Role
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.show.detail import detail
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.runs.show.recorded import crashed, device_fault, hashes, level_2, replayed


def lines(run: RunDir, launch: str, *phases: Phase, unfolded: bool = False) -> list[str]:
    return detail(run, run.launch(launch), 100, phases or None, unfolded=unfolded)


def test_values_of_level_2(tmp_path: Path) -> None:
    assert lines(level_2(tmp_path), "0") == [
        "launch 0.0  aoti_torch_cpu_addmm_out",
        "  status     returned, 3.0 µs on the host",
        "  kind       shim_out, aten.addmm.out",
        "  called     call 0 of run_impl, thread 1",
        "  wrapper    line 100",
        "  model      /home/u/model.py:12 in forward (exact)",
        "               y = torch.relu(x)",
        "  arguments",
        "    out     buf0  float32[8,64]  cpu  strides [64,1]  0x3000",
        "      after   min -1.5 at 3  max 41.5 at 7  mean 0.125  std 0.5  NaN 3  +Inf 1  #deadbeef",
        "    in      x  float32[8,32]  cpu  strides [32,1]  0x1000",
        "      before  min -1.5 at 3  max 2.25 at 7  mean 0.125  std 0.5  zeros 4  #deadbeef",
        "    in      l_weight_view  float32[64,32]  cpu  strides [1,64]  0x2000  at element 16 of 16.0 KiB",
        "            of l_weight",
        "  numbers",
        "    beta  double  1.0",
    ]


def test_hashes_are_whole_where_there_is_nothing_else(tmp_path: Path) -> None:
    printed = lines(hashes(tmp_path), "0", Phase.BEFORE, Phase.AFTER)
    assert [line for line in printed if line.startswith(("      before", "      after"))] == [
        "      before  not initialised",
        "      after   #0123456789abcdef",
        "      before  #00000000000000ff",
    ]


def test_the_replay_that_was_measured(tmp_path: Path) -> None:
    run = replayed(tmp_path)
    first, second = lines(run, "0"), lines(run, "1")
    assert "  measured   statistics of replay 8 of the CUDA graph that captured call 0" in first
    assert "  measured   statistics of replay 8 of the CUDA graph that captured call 0" in second
    assert not any("of replay 7" in line or "of replay 8 " in line for line in first if "measured" not in line)
    assert [line.split()[0] for line in second if line.endswith("of replay 7")] == ["after"]


def test_phases(tmp_path: Path) -> None:
    run = level_2(tmp_path)
    assert "      before  not initialised" in lines(run, "0", Phase.BEFORE)
    both = lines(run, "1", Phase.BEFORE, Phase.AFTER)
    assert sum(line.startswith("      before") for line in both) == 1
    assert sum(line.startswith("      after") for line in both) == 2
    assert not any(line.startswith("      before") for line in lines(run, "1", Phase.AFTER))


def test_elements_of_a_small_tensor_and_what_was_not_read(tmp_path: Path) -> None:
    run = level_2(tmp_path)
    assert "              [1, -2.5, 0.1, nan]" in lines(run, "1")
    iteration = lines(run, "2")
    assert "  iteration  3" in iteration
    assert "      before  not read: too large" in iteration


def test_a_launch_that_never_returned(tmp_path: Path) -> None:
    printed = lines(crashed(tmp_path), "2")
    assert printed[1] == "  status     began and never returned"
    assert "  model      line unknown" in printed
    assert "    out     buf2  an undefined tensor" in printed


def test_the_grid_of_a_triton_kernel(tmp_path: Path) -> None:
    printed = lines(device_fault(tmp_path), "1")
    start = printed.index("  grid       (4, 1, 1), 4 warps, 128 B shared memory")
    assert printed[start : start + 5] == [
        "  grid       (4, 1, 1), 4 warps, 128 B shared memory",
        "  passed to triton_poi_fused_0",
        "    in_ptr0   CUdeviceptr  0x7f00",
        "    out_ptr0  CUdeviceptr  0x7f80",
        "    xnumel    int32_t         256",
    ]
    assert "  stream     slot 0, sequence 2" in printed


def test_the_error_of_a_launch(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 0, tensor(2))
    writer.launch_end(0, status=1)
    writer.fault(0, FaultDomain.SHIM, 1, "index 9 is out of bounds\nat::native::…")
    run = open_run(run_directory(tmp_path, make_manifest(site("k", arg("x"))), writer))
    assert lines(run, "0")[1] == "  status     failed: index 9 is out of bounds (code 1), 1.0 µs on the host"


NODES = ("var_mean", "add_1", "embedding", "permute_8", "view_10", "add_3", "mul_1", "mul")
STACK = (
    '  File "/home/u/model.py", line 3, in forward\n    h = self.norm(x)\n  File "/torch/nn.py", line 9, in f\n    f(x)'
)


def fused(base: Path) -> RunDir:
    provenance = Provenance(
        Certainty.EXACT,
        source=(ModelLine("/home/u/model.py", 3, "forward", "h = self.norm(x)"),),
        stacks=(STACK,),
        post_grad_nodes=NODES,
        pre_grad_nodes=("layer_norm",),
    )
    writer = JournalWriter()
    writer.launch(0, 0, tensor(2))
    return open_run(run_directory(base, make_manifest(site("k", arg("x"), provenance=provenance)), writer))


def test_model_lines_and_nodes_are_folded(tmp_path: Path) -> None:
    printed = lines(fused(tmp_path), "0")
    start = printed.index("  model      /home/u/model.py:3 in forward (exact)")
    assert printed[start : printed.index("  arguments")] == [
        "  model      /home/u/model.py:3 in forward (exact)",
        "               h = self.norm(x)",
        "  fx nodes   var_mean, add_1, embedding, permute_8, view_10, add_3 and 2 more (--all)",
        "  traced as  layer_norm",
        "  stack      /torch/nn.py",
        "                9  f(x)",
    ]


def test_all_nodes_and_stacks(tmp_path: Path) -> None:
    printed = lines(fused(tmp_path), "0", unfolded=True)
    start = printed.index("               h = self.norm(x)")
    assert printed[start + 1 : printed.index("  arguments")] == [
        f"  fx nodes   {', '.join(NODES)}",
        "  traced as  layer_norm",
        "  stack",
        *(f"    {line}" for line in STACK.splitlines()),
    ]


def test_saved_tensors(tmp_path: Path) -> None:
    import torch

    value = torch.tensor([[1.0, float("inf")], [0.0, -4.0]])
    writer = JournalWriter(level=1)
    writer.launch_begin(0, 0, tensor(2, 2), tensor(2, 2), Absent.NULL)
    writer.tensor_file(0, 0, Phase.BEFORE, "tensors/x.safetensors", size=16, content=1)
    writer.tensor_file(0, 1, Phase.BEFORE, "tensors/o.safetensors", size=16, content=1)
    writer.tensor_file(0, 1, Phase.AFTER, "", status=SaveStatus.SKIPPED, reason="the disk is full")
    writer.launch_end(0)
    package = make_manifest(site("k", arg("x"), arg("o", Role.OUT), arg("mask", form=Form.OPTIONAL)))
    run = run_directory(tmp_path, package, writer)
    (run / "tensors").mkdir()
    metadata = {
        "dtype": "torch.float32",
        "shape": json.dumps([2, 2]),
        "strides": json.dumps([2, 1]),
        "storage_offset": "0",
        "storage_bytes": "16",
    }
    save_file({"x": value}, run / "tensors/x.safetensors", metadata)
    printed = lines(open_run(run), "0", Phase.BEFORE, Phase.AFTER)
    assert printed[printed.index("  arguments") - 1 :] == [
        f"  files      {run / 'tensors'}/",
        "  arguments",
        "    in      x  float32[2,2]  cpu  strides [2,1]  0x1000",
        "      before  min -4 at 3  max 1 at 0  mean -1  std 2.16025  +Inf 1  zeros 1",
        "              x.safetensors",
        "    out     o  float32[2,2]  cpu  strides [2,1]  0x1000",
        "      before  not initialised",
        "              o.safetensors",
        "      after   the disk is full",
        "    in      mask  None",
    ]


def test_a_tensor_that_is_passed_twice(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch(0, 0, tensor(2), tensor(2))
    run = open_run(run_directory(tmp_path, make_manifest(site("k", arg("x"), arg("x"))), writer))
    assert lines(run, "0")[-1] == "    in      x  the same tensor again"
