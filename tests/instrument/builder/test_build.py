"""Builds of one small model, instrumented and uninstrumented, run in hosts without aoti_debug."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aoti_debug
from aoti_debug.base.errors import AotiDebugError, ArtifactError, TargetError, UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder import options as build_options
from aoti_debug.instrument.builder.build import BuildOptions, BuildSummary
from aoti_debug.instrument.frontend import sources
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.manifest import Kind
from aoti_debug.package.pt2 import archive
from aoti_debug.package.weights_file import WeightsPlace
from tests import archives, cpp_host, wrapper_templates

INPUT = torch.linspace(-1, 1, 8).reshape(2, 4)
# A host of its own for each line of stdin: package, input, output, environment variables. It tells how each ended.
# What torch finds out about the processor when it loads a package is the same for all.
HOSTS = """
import json, os, sys
import torch, torch._inductor.package
from torch._inductor import cpu_vec_isa
cpu_vec_isa.pick_vec_isa()
for line in sys.stdin:
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    package, input, output, variables = json.loads(line)
    os.environ.update(variables)
    model = torch._inductor.aoti_load_package(package)
    torch.save(model(torch.load(input)), output)
    assert not any(name.startswith("aoti_debug") for name in sys.modules)
    break
"""


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(4, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("build")
    torch.export.save(torch.export.export(Model().eval(), (INPUT,)), path / "model.pt2")
    torch.save(INPUT, path / "input.pt")
    return path


@pytest.fixture(scope="module")
def stages() -> list[tuple[str, bool]]:
    """What the progress callback was told: the stage, and whether it had ended."""
    return []


@pytest.fixture(scope="module")
def summary(folder: Path, stages: list[tuple[str, bool]]) -> BuildSummary:
    options = BuildOptions(
        program=folder / "model.pt2",
        level=0,
        filters=("cpp_*,!nothing", "triton_*"),
        output=folder / "built.pt2",
        keep_sources=folder / "kept",
        plain=folder / "plain.pt2",
    )
    return builder.build_report(options, lambda stage, seconds: stages.append((stage, seconds is not None)))


def outside() -> dict[str, str]:
    """An environment that does not lead to this checkout and says nothing to the runtime."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH" and "AOTI_DEBUG" not in name}


@functools.cache
def hosts(folder: Path) -> subprocess.Popen[str]:
    """The process that the hosts are forked from. It ends with this one, which its stdin belongs to."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", HOSTS]
    return subprocess.Popen(command, env=outside(), cwd=folder, stdin=pipe, stdout=pipe, text=True)


@functools.cache
def output_of(folder: Path, package: str, level: int) -> torch.Tensor:
    target = folder / f"{package}.{level}.out.pt"
    variables = {"AOTI_DEBUG_LEVEL": str(level), "AOTI_DEBUG_DIR": str(folder / "runs")}
    forking = hosts(folder)
    assert forking.stdin is not None
    assert forking.stdout is not None
    request = [str(folder / package), str(folder / "input.pt"), str(target), variables]
    forking.stdin.write(json.dumps(request) + "\n")
    forking.stdin.flush()
    assert forking.stdout.readline() == "0\n"
    loaded = torch.load(target)
    return loaded if isinstance(loaded, torch.Tensor) else loaded[0]


@pytest.mark.slow
def test_summary_and_manifest(folder: Path, summary: BuildSummary, stages: list[tuple[str, bool]]) -> None:
    manifest = summary.manifest
    assert summary.package == folder / "built.pt2"
    assert summary.bytes == summary.package.stat().st_size
    assert list(summary.stages) == ["lower", "instrument", "compile", "link", "package"]
    assert stages == [(stage, ended) for stage in summary.stages for ended in (False, True)]
    assert summary.missing_inputs_reason == ""
    assert [missed.pattern for missed in summary.unmatched] == ["!nothing", "triton_*"]
    assert [site.kind for site in manifest.sites] == [Kind.SHIM_OUT, Kind.CPP]
    assert manifest.sites[0].kernel == "aoti_torch_cpu_addmm_out"
    assert re.fullmatch(r"cpp_fused_(addmm_)?relu_0", manifest.sites[1].kernel)
    assert manifest.unrecognised == ()
    assert (manifest.device, manifest.level) == ("cpu", 0)
    assert manifest.filters == ("cpp_*", "!nothing", "triton_*")
    assert manifest.torch_version == torch.__version__
    assert "-O3" in manifest.compiler.kernel_flags
    assert "-ltorch_cpu" in manifest.compiler.link_flags
    assert archive.inspect(summary.package).manifest() == manifest


@pytest.mark.slow
def test_inputs_are_embedded(summary: BuildSummary) -> None:
    package = archive.inspect(summary.package)
    inputs = input_files.read_embedded(package)
    assert inputs is not None
    assert torch.equal(inputs.args[0], INPUT)
    input_files.check(inputs, input_files.read_signature(package), "the embedded inputs")


@pytest.mark.slow
@pytest.mark.parametrize("level", [0, 3])
def test_the_package_computes_what_the_uninstrumented_one_computes(
    folder: Path, summary: BuildSummary, level: int
) -> None:
    assert torch.equal(output_of(folder, summary.package.name, level), output_of(folder, "plain.pt2", 0))


@pytest.mark.slow
def test_the_uninstrumented_package_is_what_torch_builds(folder: Path, summary: BuildSummary) -> None:
    wrapper_templates.share()
    torch._inductor.aoti_compile_and_package(
        torch.export.load(folder / "model.pt2"), package_path=str(folder / "torch.pt2")
    )
    assert torch.equal(output_of(folder, "torch.pt2", 0), output_of(folder, "plain.pt2", 0))


@pytest.mark.slow
def test_a_cpp_program_runs_the_package(folder: Path, summary: BuildSummary) -> None:
    variables = {"AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_DIR": str(folder / "host_runs")}
    ran = cpp_host.call(cpp_host.compiled_host(), summary.package, [INPUT], folder, variables)
    expected = torch.relu(Model().linear(INPUT)).double().sum().item()
    assert float(ran.stdout) == pytest.approx(expected, rel=1e-5)
    kernel = summary.manifest.sites[1].kernel  # the filter lets no other be printed
    assert ran.stderr == f"0.1 before {kernel}\n0.1 after  {kernel}\n"
    assert (folder / "host_runs" / "latest" / "journal.bin").stat().st_size > 0


@pytest.mark.slow
def test_sources_are_kept(folder: Path, summary: BuildSummary) -> None:
    kept = folder / "kept"
    original = sources.read(kept / "original", wrapper_opt="O1")
    assert "aoti_debug" not in original.wrapper
    assert sorted(path.name for path in (kept / "instrumented").iterdir()) == [
        "manifest.json",
        "sites.cpp",
        "wrapper.cpp",
    ]
    assert json.loads((kept / "instrumented" / "manifest.json").read_text())["level"] == 0
    assert (kept / "lower.log").exists()


@pytest.mark.slow
def test_a_program_in_memory_with_other_inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    input_files.write(Inputs((INPUT * 2,), {}), tmp_path / "in.pt")
    monkeypatch.chdir(tmp_path)
    built = aoti_debug.build(torch.export.export(Model().eval(), (INPUT,)), inputs=tmp_path / "in.pt")
    assert built == Path("model.instrumented.pt2")
    inputs = input_files.read_embedded(archive.inspect(built))
    assert inputs is not None
    assert torch.equal(inputs.args[0], INPUT * 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.pt", "model.instrumented.pt2"]


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"level": 5}, UsageError, "level 5 is not one of 0, 1, 2, 3, hash"),
        ({"filters": ("a,,b",)}, UsageError, "an empty filter"),
        ({"filters": ("!",)}, UsageError, "an empty filter"),
        ({"output": "{folder}/model.pt2"}, UsageError, "{folder}/model.pt2 is the model itself"),
        (
            {"output": "{folder}/none/x.pt2"},
            UsageError,
            "{folder}/none cannot be written to: No such file or directory",
        ),
        ({"inputs": "{folder}/none.pt"}, ArtifactError, "{folder}/none.pt does not exist"),
        ({"program": "{folder}/none.pt2"}, ArtifactError, "{folder}/none.pt2 does not exist"),
    ],
)
def test_wrong_arguments_are_found_before_the_work_begins(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object],
    error: type[AotiDebugError], message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    known = {
        name: value.format(folder=folder) if isinstance(value, str) else value for name, value in arguments.items()
    }
    program = known.pop("program", folder / "model.pt2")
    with pytest.raises(AotiDebugError) as caught:
        aoti_debug.build(program, **known)  # type: ignore[arg-type]
    assert (type(caught.value), str(caught.value)) == (error, message.format(folder=folder))
    assert caught.value.hint
    assert list(tmp_path.iterdir()) == []


# It has a child that compiles, as g++ has, and never ends.
COMPILER = """#!/bin/sh
case " $* " in
  *" -c "*) sleep 1000 & echo $! > "$COMPILING/$!"; wait ;;
  *) exec g++ "$@" ;;
esac
"""


def runs(pid: int) -> bool:
    """False if it has ended, also where nobody has waited for it yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_build_leaves_nothing(folder: Path, tmp_path: Path, number: signal.Signals, code: int) -> None:
    (tmp_path / "hangs.py").write_text(
        f"import os, time\nopen({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\ntime.sleep(1000)\n"
    )
    compiler = tmp_path / "compiler"
    compiler.write_text(COMPILER)
    compiler.chmod(0o700)
    command = [
        sys.executable,
        "-m",
        "aoti_debug",
        "build",
        str(folder / "model.pt2"),
        "--import",
        "hangs",
        "-o",
        "x.pt2",
    ]
    compiling, out = tmp_path / "compiling", tmp_path / "out"
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(aoti_debug.__file__).parents[1])]),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "CXX": str(compiler),
        "COMPILING": str(compiling),
    }
    compiling.mkdir()
    out.mkdir()
    building = subprocess.Popen(command, cwd=out, env=environment, stderr=subprocess.PIPE)
    pid = tmp_path / "pid"
    while not (pid.exists() and pid.read_text()):
        assert building.poll() is None
        time.sleep(0.1)
    building.send_signal(number)
    building.communicate(timeout=60)
    assert building.returncode == code
    assert list(out.iterdir()) == []
    assert list((tmp_path / "cache" / "aoti_debug" / "scratch").iterdir()) == []
    assert not Path(f"/proc/{pid.read_text()}").exists()
    assert torch.version.cuda or len(list(compiling.iterdir())) > 1  # the runtime, beside the import
    assert not any(runs(int(started.name)) for started in compiling.iterdir())


def test_a_build_that_has_no_room_says_so_before_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = archives.write(tmp_path / "m.pt2", archives.PROGRAM)
    monkeypatch.setattr(build_options, "bytes_of_weights", lambda _: 1 << 60)
    options = BuildOptions(program, output=tmp_path / "out.pt2", user_code=UserCode(trusted=True))
    with pytest.raises(TargetError, match=r"building m\.pt2 needs 2147483648\.0 GiB on the disk of ") as caught:
        builder.build_report(options)
    assert caught.value.hint.startswith("--weights by-reference copies no weights; free some space, or set XDG_")
    with pytest.raises(TargetError, match=r"building m\.pt2 needs 1073741824\.0 GiB of memory, and ") as caught:
        builder.build_report(replace(options, weights=WeightsPlace.BY_REFERENCE))
    assert caught.value.hint == "lower the model on a larger machine"
