"""Build, run, save, diagnose and replay real models on a CUDA device.

A model that faults runs in child processes only. Plain twins are compiled from the same sources.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import Phase
from aoti_debug.package.manifest import Certainty, Kind
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import load_tensors, run_directory
from aoti_debug.runs.rundir.launch import Argument, Launch, LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built
from tests.gpu.queued import BURST, QUEUED

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BURST_NS = 20_000  # LaunchRate::kBurstNs
MODELS = ("mixed", "dynamic", "multi_kernel", "loop", "two_specialisations", "dtypes")
CALL = """
import sys, torch
from tests.gpu import cuda_models
args, kwargs = torch.export.load(sys.argv[1]).example_inputs
device = int(sys.argv[4])
model = torch._inductor.aoti_load_package(sys.argv[2], device_index=device)
outputs = None
for _ in range(2):
    torch.manual_seed(0)
    torch.cuda.set_device(0)
    outputs = model(*[a.to(torch.device("cuda", device), copy=True) for a in args], **kwargs)
torch.cuda.synchronize(device)
outputs = outputs if isinstance(outputs, (list, tuple)) else [outputs]
torch.save([o.cpu() for o in outputs], sys.argv[3])
"""


def hosted(folder: Path, level: str = "3") -> dict[str, str]:
    """The environment of a host without our parent, whose runs go to `folder`."""
    return {**os.environ, "AOTI_DEBUG_LEVEL": level, "AOTI_DEBUG_DIR": str(folder)}


def outputs_of(built: Built, package: Path, folder: Path, level: str = "3", device: int = 0) -> list[torch.Tensor]:
    """The outputs of a package that was loaded on a device while device 0 is the current one."""
    out = folder / "outputs.pt"
    command = [sys.executable, "-c", CALL, str(built.program), str(package), str(out), str(device)]
    env = hosted(folder / "runs", level)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded: list[torch.Tensor] = torch.load(out)
    return loaded


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().flatten().view(torch.uint8)


@pytest.mark.parametrize("name", MODELS)
def test_every_site_is_recognised(build: Callable[[str], Built], name: str) -> None:
    manifest = build(name).summary.manifest
    assert manifest.unrecognised == ()
    assert {site.provenance.certainty for site in manifest.sites if site.kind is Kind.TRITON} <= {Certainty.EXACT}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("level", ["0", "1", "2", "3"])
def test_outputs_equal_the_plain_twin(build: Callable[[str], Built], tmp_path: Path, name: str, level: str) -> None:
    built = build(name)
    plain = outputs_of(built, built.plain, tmp_path)
    instrumented = outputs_of(built, built.package, tmp_path, level)
    assert len(plain) == len(instrumented)
    assert [torch.equal(as_bytes(a), as_bytes(b)) for a, b in zip(plain, instrumented, strict=True)] == [True] * len(
        plain
    )


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("level", ["1", "2", "3"])
def test_a_package_on_another_device_than_the_current_one(
    build: Callable[[str], Built], tmp_path: Path, level: str
) -> None:
    built = build("mixed")
    plain = outputs_of(built, built.plain, tmp_path, device=1)
    instrumented = outputs_of(built, built.package, tmp_path, level, device=1)
    assert [torch.equal(as_bytes(a), as_bytes(b)) for a, b in zip(plain, instrumented, strict=True)] == [True] * len(
        plain
    )
    run = run_directory.open_run(base=tmp_path / "runs")
    assert [call.ended for call in run.timeline.calls] == [True, True]
    arguments = [argument for launch in run.launches for argument in launch.args if argument.layout is not None]
    assert {argument.layout.device for argument in arguments if argument.layout} == {"cuda:1"}
    assert all(saved.path for argument in arguments for saved in argument.files.values())
    reasons = {measured.reason for argument in arguments for measured in argument.stats.values()}
    assert [reason for reason in reasons if "another device" in reason] == []
    assert any(argument.files for argument in arguments) == (level == "1")
    assert any(argument.stats for argument in arguments) == (level == "2")


@pytest.mark.parametrize("name", MODELS)
def test_every_tensor_argument_is_saved(saved: Callable[[str], RunDir], name: str) -> None:
    run = saved(name)
    assert run.launches
    for launch in run.launches:
        if launch.status is LaunchStatus.NOT_STARTED:
            continue
        for argument in launch.args:
            if argument.tensor is not None:
                assert Phase.AFTER in argument.files, (launch.id, launch.kernel, argument.name)
                run.tensor_path(argument.files[Phase.AFTER])


def triton_launch(run: RunDir, kernel: str) -> Launch:
    return next(launch for launch in run.launches if launch.kernel.startswith(kernel))


def test_a_user_triton_launch_is_recorded_whole(saved: Callable[[str], RunDir]) -> None:
    launch = triton_launch(saved("mixed"), "scaled_add_kernel")
    assert launch.grid is not None
    assert launch.grid.grid == (16, 1, 1)
    assert launch.grid.num_warps == 4
    by_name = {a.name: a.value for a in launch.grid.arguments}
    assert by_name["n"].value == 4096
    assert by_name["alpha"].value == 0.25
    assert [a.role.name for a in launch.args if a.tensor is not None] == ["UNKNOWN"] * 3
    assert launch.site.provenance.source[0].file.endswith("cuda_models.py")


def test_saved_values_are_what_the_kernel_computed(saved: Callable[[str], RunDir]) -> None:
    run = saved("mixed")
    launch = triton_launch(run, "scaled_add_kernel")
    x, y, out = (a for a in launch.args if a.tensor is not None)

    def load(argument: Argument, phase: Phase) -> torch.Tensor:
        return load_tensors.load_file(run.tensor_path(argument.files[phase]))

    expected = (load(x, Phase.BEFORE) + load(y, Phase.BEFORE) * 0.25) * 2
    torch.testing.assert_close(load(out, Phase.AFTER).cpu(), expected.cpu())


def test_two_specialisations_of_one_kernel_run_their_own_machine_code(
    build: Callable[[str], Built], tmp_path: Path
) -> None:
    built = build("two_specialisations")
    (x,), _ = torch.export.load(built.program).example_inputs
    (got,) = outputs_of(built, built.package, tmp_path)
    first = (x + x.sin() * 0.25) * 2
    torch.testing.assert_close(got, (first + x.cos() * 0.25).cpu())


def test_a_while_loop_numbers_its_iterations(saved: Callable[[str], RunDir]) -> None:
    run = saved("loop")
    inside = [launch for launch in run.launches if launch.site.subgraph.startswith("while_loop_body")]
    per_site: dict[int, list[tuple[int, ...]]] = {}
    for launch in inside:
        per_site.setdefault(launch.site.id, []).append(launch.loops)
    assert per_site
    assert set(map(tuple, per_site.values())) == {((0,), (1,), (2,))}


# ---- faults

BAD_INDEX = 1 << 40


@pytest.fixture(scope="session")
def bad_inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    index = torch.randint(0, 500, (256,), device="cuda")
    index[100] = BAD_INDEX
    path = tmp_path_factory.mktemp("inputs") / "bad.pt"
    torch.save((index,), path)
    return path


def gather_faults(built: Built, out: Path, inputs: Path, **options: Any) -> runner.RunResult:
    return runner.run(RunOptions(built.package, inputs=inputs, out=out, **options))


@pytest.mark.parametrize("level", [3, 2, 1])
def test_the_guilty_launch_is_named(
    build: Callable[[str], Built], tmp_path: Path, bad_inputs: Path, level: int
) -> None:
    result = gather_faults(build("gather"), tmp_path, bad_inputs, level=level)
    assert result.verdict is not None
    assert result.verdict.proof is Proof.CERTAIN
    assert result.verdict.launch is not None
    assert result.verdict.launch.kernel.startswith("gather_kernel")


def test_sparse_crumbs_narrow_the_fault_to_a_range(
    build: Callable[[str], Built], tmp_path: Path, bad_inputs: Path
) -> None:
    result = gather_faults(build("gather"), tmp_path, bad_inputs, level=3, crumb_every=16)
    assert result.verdict is not None
    suspects = [launch.kernel for launch in result.verdict.suspects]
    assert 1 <= len(suspects) <= 16
    assert any(kernel.startswith("gather_kernel") for kernel in suspects)


@pytest.mark.parametrize("every", [None, "1"])
def test_a_fault_in_a_burst_is_narrowed_to_16_launches_and_to_one_on_request(
    build: Callable[[str], Built], tmp_path: Path, bad_inputs: Path, every: str | None
) -> None:
    built = build("gather")
    command = [sys.executable, "-c", BURST, *(str(path) for path in (built.program, built.package, bad_inputs))]
    env = {**hosted(tmp_path), "AOTI_DEBUG_PRINT": "none"}
    if every is not None:
        env["AOTI_DEBUG_CRUMB_EVERY"] = every
    done = subprocess.run(command, env=env, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.returncode < 0, done.stderr
    run = run_directory.open_run(base=tmp_path)
    verdict = diagnose(run)
    assert verdict is not None
    guilty = [launch for launch in verdict.suspects if launch.kernel.startswith("gather_kernel")]
    assert [launch.key.call for launch in guilty] == [1000]
    assert len(verdict.suspects) <= (16 if every is None else 1)
    late = [launch for launch in run.launches if 500 <= launch.key.call < 1000]
    between_launches_ns = (late[-1].begin_ns - late[0].begin_ns) / len(late)
    if every is not None:
        assert all(launch.breadcrumb for launch in late)
    elif between_launches_ns < BURST_NS / 2:  # a GPU that other processes use may be too slow for a burst
        assert sum(launch.breadcrumb for launch in late) < len(late) / 8


def test_a_host_without_our_parent_blames_the_right_one_of_forty_queued_launches(
    build: Callable[[str], Built], tmp_path: Path, bad_inputs: Path
) -> None:
    built = build("gather")
    env = hosted(tmp_path)
    log = tmp_path / "log"
    command = [sys.executable, "-c", QUEUED]
    command += [str(path) for path in (built.program, built.package, bad_inputs)]
    with log.open("wb") as stream:
        done = subprocess.run(command, env=env, stdout=stream, stderr=stream, check=False)
    assert done.returncode < 0, log.read_text()
    assert "1.2 before gather_kernel" in log.read_text()
    run = run_directory.open_run(base=tmp_path)
    verdict = diagnose(run)
    assert verdict is not None
    assert verdict.proof in (Proof.CERTAIN, Proof.LIKELY)  # nobody was left to record the driver's error
    assert verdict.launch is not None
    assert verdict.launch.kernel.startswith("gather_kernel")
    assert len([launch for launch in run.launches if launch.key.call == 1]) > verdict.launch.key.launch + 38


def test_the_command_line_names_the_launch_and_exits_with_1(
    build: Callable[[str], Built], tmp_path: Path, bad_inputs: Path
) -> None:
    command = ["-m", "aoti_debug", "run", str(build("gather").package), "--inputs", str(bad_inputs)]
    done = subprocess.run([sys.executable, *command, "--out", str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    print(done.stdout[-3000:], done.stderr[-3000:])
    assert done.returncode == 1
    assert "gather_kernel" in done.stdout + done.stderr
    assert "models.py" in done.stdout + done.stderr


# ---- streams, threads, graphs

# Two runners: the Python API of some versions offers one only.
SIDE_STREAMS = """
import sys, threading, torch
args, kwargs = torch.export.load(sys.argv[1]).example_inputs
loader = torch._C._aoti.AOTIModelPackageLoader(sys.argv[2], "model", False, 2, -1)
model = lambda *inputs: loader.boxed_run(list(inputs))
model(*args)
def work():
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(20): model(*args)
threads = [threading.Thread(target=work) for _ in range(2)]
[t.start() for t in threads]; [t.join() for t in threads]
torch.cuda.synchronize()
"""


def test_two_streams_are_kept_apart(build: Callable[[str], Built], tmp_path: Path) -> None:
    built = build("gather")
    code = "from tests.gpu import cuda_models\n" + SIDE_STREAMS
    done = subprocess.run(
        [sys.executable, "-c", code, str(built.program), str(built.package)],
        env=hosted(tmp_path),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    run = run_directory.open_run(base=tmp_path)
    calls = run.timeline.calls
    assert len(calls) == 41
    assert all(call.ended for call in calls)
    streams = {call.stream for call in calls}
    assert len(streams) == 3
    per_call = {len([launch for launch in run.launches if launch.key.call == call.call]) for call in calls}
    assert len(per_call) == 1


GRAPH = """
import sys, torch
args, kwargs = torch.export.load(sys.argv[1]).example_inputs
model = torch._inductor.aoti_load_package(sys.argv[2], True)  # plain packages, too, capture only so
expected = model(*args)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    captured = model(*args)
for _ in range(3):
    graph.replay()
torch.cuda.synchronize()
print(torch.equal(expected, captured))
"""


@pytest.mark.parametrize("level", ["1", "2", "3"])
def test_graph_capture_is_left_alone_and_noted(build: Callable[[str], Built], tmp_path: Path, level: str) -> None:
    built = build("gather")
    code = "from tests.gpu import cuda_models\n" + GRAPH
    done = subprocess.run(
        [sys.executable, "-c", code, str(built.program), str(built.package)],
        env=hosted(tmp_path, level),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "True"
    run = run_directory.open_run(base=tmp_path)
    assert [call.capturing for call in run.timeline.calls] == [False, True]
    if level != "3":
        assert any("captur" in note.text.lower() for note in run.timeline.notes)


# ---- repro

REPLAYED = frozenset({Kind.SHIM_OUT, Kind.SHIM_ALLOC})


def test_every_aten_launch_replays_bit_for_bit(saved: Callable[[str], RunDir], tmp_path: Path) -> None:
    run = saved("mixed")
    launches = [launch for launch in run.launches if launch.site.kind in REPLAYED]
    assert launches
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    codes = {}
    for launch in launches:
        folder = tmp_path / launch.id
        command = ["-m", "aoti_debug", "repro", launch.kernel, "--launch", launch.id]
        command += ["--run", str(run.path), "-o", str(folder)]
        made = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)
        assert made.returncode == 0, made.stderr
        replayed = subprocess.run([sys.executable, str(folder / "repro.py")], env=env, capture_output=True, text=True)
        codes[launch.id, launch.kernel] = replayed.returncode
        print(replayed.stdout[-400:], replayed.stderr[-400:])
    assert set(codes.values()) == {0}, codes


def test_show_prints_json_of_a_cuda_run(saved: Callable[[str], RunDir]) -> None:
    command = ["-m", "aoti_debug", "show", str(saved("mixed").path), "--json"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    launches = json.loads(done.stdout)["launches"]
    assert {launch["kind"] for launch in launches} >= {"triton", "shim_out", "proxy", "item"}
