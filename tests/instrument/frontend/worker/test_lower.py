from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.app.cli.options import parse_configs
from aoti_debug.base.abi import Phase
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import compiler
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.frontend.protocol.messages import OPERATOR_KEYS, name_operators
from aoti_debug.instrument.frontend.worker.called_operators import find_overload
from aoti_debug.instrument.frontend.worker.lower import require_kernels
from aoti_debug.instrument.wrapper.launches.c_functions import declared_shims
from aoti_debug.package.manifest import Kind
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import load_tensors
from tests import models
from tests.paths import CPP
from tests.repro.repro_launches import replay

SHIM = CPP / "shimmed.cpp"


@pytest.mark.parametrize(
    ("operator", "name"),
    [
        ("mylib::op", "mylib::op"),
        ("mylib::op.out", "mylib::op.out"),
        ("mylib.op.default", "mylib.op.default"),
        (torch.ops.aotidebugtest.shimmed, "aotidebugtest.shimmed"),
        (torch.ops.aotidebugtest.shimmed.default, "aotidebugtest.shimmed.default"),
    ],
)
def test_operators_are_named(operator: Any, name: str) -> None:
    given = {"max_autotune": True, OPERATOR_KEYS: {operator: ("declaration",)}}
    assert name_operators(given) == {"max_autotune": True, OPERATOR_KEYS: {name: ["declaration"]}}


def test_a_saved_program_without_the_kernel_that_it_launches_is_refused() -> None:
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table, triton_kernel_wrapper_mutation

    graph = torch.fx.Graph()
    kernel: Any = object()
    graph.call_function(triton_kernel_wrapper_mutation, (), {"kernel_idx": kernel_side_table.add_kernel(kernel)})
    program = SimpleNamespace(graph_module=torch.fx.GraphModule(torch.nn.Module(), graph))
    require_kernels(program)
    kernel_side_table.reset_table()
    with pytest.raises(LookupError, match="launches a Triton kernel directly in forward"):
        require_kernels(program)


@pytest.mark.parametrize(("value", "shown"), [({"op": []}, "op"), ({7: []}, "7"), ("mylib::op", "mylib::op")])
def test_what_is_no_operator_is_refused(value: object, shown: str) -> None:
    with pytest.raises(UsageError, match=f"{OPERATOR_KEYS}: {shown} is not an operator") as caught:
        name_operators({OPERATOR_KEYS: value})
    assert caught.value.hint.startswith('{"mylib::op": [')


@pytest.mark.parametrize("operator", ["aotidebugtest::shimmed", torch.ops.aotidebugtest.shimmed.default])
def test_a_declared_operator_is_found_by_its_name(operator: Any) -> None:
    given = {OPERATOR_KEYS: {operator: [models.SHIM_DECLARATION]}}
    declarations = name_operators(given)[OPERATOR_KEYS]
    assert [find_overload(name) for name in declarations] == [torch.ops.aotidebugtest.shimmed.default]
    assert declared_shims(declarations) == {"aoti_torch_cpu_shimmed": "aotidebugtest.shimmed.default"}


def test_settings_without_operators_stay() -> None:
    assert name_operators({"max_autotune": True}) == {"max_autotune": True}


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that makes the shim of aotidebugtest::shimmed known to a process."""
    library = tmp_path / "libshimmed.so"
    root = Path(torch.__file__).parent
    command = [compiler.find_compiler().path, "-shared", "-fPIC", str(SHIM), "-o", str(library)]
    command += [f"-I{root}/include", f"-L{root}/lib", f"-Wl,-rpath,{root}/lib", "-ltorch_cpu"]
    subprocess.run(command, check=True)
    text = f"import ctypes\nfrom tests import models\nctypes.CDLL({str(library)!r}, ctypes.RTLD_GLOBAL)\n"
    (tmp_path / "shim_of_shimmed.py").write_text(text)
    monkeypatch.chdir(tmp_path)  # where children look for modules first
    return "shim_of_shimmed"


@pytest.mark.slow
def test_a_shim_of_the_users_own_is_called_and_recorded(tmp_path: Path, shim: str) -> None:
    torch.export.save(models.program("shimmed"), tmp_path / "model.pt2")
    options = builder.BuildOptions(
        program=tmp_path / "model.pt2",
        output=tmp_path / "built.pt2",
        inductor_configs=parse_configs(
            [f'{OPERATOR_KEYS}={{"aotidebugtest::shimmed": ["{models.SHIM_DECLARATION}"]}}']
        ),
        user_code=UserCode((shim,)),
    )
    sites = builder.build_report(options).manifest.sites
    assert [site.kernel for site in sites if site.kind is Kind.CUSTOM_SHIM] == ["aoti_torch_cpu_shimmed"]
    result = runner.run(RunOptions(tmp_path / "built.pt2", level=1, out=tmp_path / "runs"))
    assert result.verdict is None
    launch = next(launch for launch in result.run.launches if launch.site.kind is Kind.CUSTOM_SHIM)
    before, after = (
        load_tensors.load_file(result.run.tensor_path(argument.files[phase]))
        for argument, phase in zip((launch.args[0], launch.args[-1]), (Phase.BEFORE, Phase.AFTER), strict=True)
    )
    assert torch.equal(after, before * 3)
    repro = write_repro(ReproOptions(launch.kernel, run=result.run.path, output=tmp_path / "repro")).path
    replayed = replay(repro, "--import", models.__file__)
    assert (replayed.returncode, "equal bit for bit" in replayed.stdout) == (0, True), replayed
    alone = replay(repro)
    assert f"the operator comes from module {shim}: No module named '{shim}'" in alone.stderr
