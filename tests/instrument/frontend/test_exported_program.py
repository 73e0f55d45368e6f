"""Lowerings in child processes; a few seconds each, so most of them fail on purpose before Inductor begins."""

from __future__ import annotations

import json
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._inductor import config

from aoti_debug.base.errors import AotiDebugError, ArtifactError, ToolchainError, UsageError
from aoti_debug.base.machine import cache, compiler
from aoti_debug.base.machine.compiler import Torch
from aoti_debug.instrument.frontend import exported_program, sources
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.instrument.frontend.protocol.build_failure import BuildFailureError, BuildStage, Ending
from aoti_debug.instrument.frontend.protocol.caller_settings import MULTI_ARCH
from aoti_debug.instrument.frontend.protocol.messages import Answer, Request, TritonConfig
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import Artifact
from tests import archives
from tests.torch_features import LINEAR_CROSS_ENTROPY
from tests.unpacked_archive import COMMANDS, KERNELS, WRAPPER, unpacked

OPERATOR = """
import torch

@torch.library.custom_op("aoti_debug_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)
"""


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.linear(x))


class CallsOperator(torch.nn.Module):
    def __init__(self, operator: Any) -> None:
        super().__init__()
        self.operator = operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.operator(x) + 1


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    torch.export.save(torch.export.export(Model().eval(), (torch.ones(2, 4),)), path)
    return path


@pytest.fixture
def folder() -> Iterator[Path]:
    """On the file system of the caches, as in a build."""
    with cache.scratch() as work:
        yield work


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # where children look for modules first
    return tmp_path


def request(program: Path | str, folder: Path, **fields: Any) -> Request:
    return Request(program=str(program), folder=str(folder), **fields)


def fails(asked: Request, timeout: float = 120.0) -> AotiDebugError:
    with pytest.raises(AotiDebugError) as caught:
        exported_program.lower(asked, compiler.find_torch(), timeout=timeout)
    return caught.value


@pytest.mark.slow
def test_a_program_becomes_sources(program: Path, folder: Path) -> None:
    lowered = exported_program.lower(
        request(program, folder, configs={"aot_inductor.compile_wrapper_opt_level": "O2", MULTI_ARCH: True}),
        compiler.find_torch(),
        timeout=600,
    )
    sources = lowered.sources
    assert sources.device == "cpu"
    assert sources.wrapper_opt == "O2"
    assert "aoti_torch_cpu_addmm_out(" in sources.wrapper
    assert "aoti_torch_print_tensor_handle" not in sources.wrapper
    assert re.findall(r"void\s+(cpp_fused_\w+)\(", sources.kernels) == ["cpp_fused_relu_0"]
    assert [path.name.partition(".")[2] for path in sources.objects] == ["weights.o"]
    assert "linear" in json.dumps(json.loads(sources.provenance))
    assert lowered.answer.torch_version == torch.__version__
    assert lowered.answer.schemas["aten.addmm.out"].text.startswith("aten::addmm.out(Tensor self, Tensor mat1,")
    assert "aten.addmm.out" in lowered.answer.shim_operators
    assert lowered.inputs.file is not None
    assert lowered.inputs.missing_reason == ""
    assert torch.equal(torch.load(lowered.inputs.file, weights_only=True)["args"][0], torch.ones(2, 4))
    assert [str(leaf) for leaf in lowered.signature.leaves] == ["float32[2, 4] on cpu"]


@pytest.mark.slow
def test_other_inputs_are_embedded(program: Path, folder: Path, tmp_path: Path) -> None:
    input_files.write(Inputs((torch.full((2, 4), 7.0),), {}), tmp_path / "in.pt")
    asked = request(program, folder, inputs=str(tmp_path / "in.pt"), configs={"aot_inductor.metadata": {"a": 1}})
    failure = fails(asked)  # after the inputs, so that nothing has to be lowered
    assert isinstance(failure, ToolchainError)
    first, log, *lines = str(failure).splitlines()
    assert first.startswith("Inductor cannot lower the model: ")
    assert first.endswith("AssertionError: Metadata must only contain strings")
    assert lines[-1].endswith("AssertionError: Metadata must only contain strings")
    assert Path(log.removeprefix("log: ")).read_text().endswith(f"{lines[-1].removeprefix('  | ')}\n")
    assert torch.load(folder / "inputs.pt", weights_only=True)["args"][0][0, 0] == 7


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "(SIGSEGV)"),
        ("raise SystemExit(3)", "(exit code 3)"),
    ],
)
def test_a_crash_is_reported_with_its_log(program: Path, folder: Path, modules: Path, code: str, message: str) -> None:
    (modules / "crashes.py").write_text(f"print('about to crash', flush=True)\n{code}\n")
    failure = fails(request(program, folder, imports=("crashes",)))
    assert isinstance(failure, ToolchainError)
    first, log, *lines = str(failure).splitlines()
    assert first == f"the process that lowered the model ended without an answer {message}"
    assert Path(log.removeprefix("log: ")).read_text().startswith("about to crash\n")
    assert lines[0] == "  | about to crash"


def test_a_hang_is_stopped(program: Path, folder: Path, modules: Path) -> None:
    (modules / "hangs.py").write_text(
        "import subprocess, time\n"
        "child = subprocess.Popen(['sleep', '1000'])\n"
        f"open({str(modules / 'pid')!r}, 'w').write(str(child.pid))\n"
        "time.sleep(1000)\n"
    )
    began = time.monotonic()
    failure = fails(request(program, folder, imports=("hangs",)), timeout=8)
    assert str(failure).startswith("lowering gave no answer for 8 s and was stopped\nlog: ")
    assert time.monotonic() - began < 60
    state = Path(f"/proc/{(modules / 'pid').read_text()}/status")
    assert not state.exists() or "\nState:\tZ" in state.read_text()


BROKEN = """
import os, signal, time
import torch
from torch._inductor.lowering import lowerings

def broken(*arguments):
    {body}

lowerings[torch.ops.aten.relu.default] = broken
"""


@pytest.mark.parametrize(
    ("body", "timeout", "ending", "what"),
    [
        ("raise RuntimeError('no such layout')", 120, Ending.EXCEPTION, "RuntimeError: no such layout"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", 120, Ending.DEATH, "SIGSEGV"),
        ("time.sleep(1000)", 15, Ending.TIMEOUT, "no end within 15 s"),
    ],
)
def test_a_lowering_that_fails_is_named(
    program: Path, folder: Path, modules: Path, body: str, timeout: float, ending: Ending, what: str
) -> None:
    (modules / "breaks_relu.py").write_text(BROKEN.format(body=body))
    error = fails(request(program, folder, imports=("breaks_relu",)), timeout)
    assert isinstance(error, BuildFailureError)
    how = "it came out of" if ending is Ending.EXCEPTION else "at work was"
    assert error.hint.startswith(f"{how} the lowering of aten.relu.default, ")
    assert "; aoti-debug triage MODEL.pt2 names what is to blame" in error.hint
    failure = error.failure
    assert (failure.position.stage, failure.position.name) == (BuildStage.LOWERING, "aten.relu.default")
    assert (failure.ending, failure.what) == (ending, what)
    assert failure.stack[0] == f"{modules / 'breaks_relu.py'}:7 in broken"
    assert failure.reference is not None
    (graph,) = failure.reference.graphs
    assert graph.by_name[failure.position.node].target == "aten.relu.default"


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (
            {"imports": ("no_such_module",)},
            UsageError,
            "--import no_such_module fails: ModuleNotFoundError: No module named 'no_such_module'",
        ),
        (
            {"libraries": ("/no/such.so",)},
            UsageError,
            "--load-library /no/such.so fails: Could not load this library: /no/such.so",
        ),
        (
            {"configs": {"no.such": 1}},
            UsageError,
            f"--inductor-config no.such: torch {torch.__version__} has no such setting",
        ),
        (
            {"configs": {"aot_inductor.custom_ops_to_c_shims": {"no_such::op": [], "aten::sin.out": []}}},
            UsageError,
            "--inductor-config aot_inductor.custom_ops_to_c_shims: these operators are not registered: no_such::op",
        ),
        ({"inputs": "/no/such.pt"}, ArtifactError, "/no/such.pt does not exist"),
        (
            {"configs": {"aot_inductor.use_minimal_arrayref_interface": True}},
            UsageError,
            "a package with aot_inductor.use_minimal_arrayref_interface=True cannot be instrumented",
        ),
    ],
)
def test_wrong_requests(
    program: Path, folder: Path, fields: dict[str, Any], error: type[AotiDebugError], message: str
) -> None:
    failure = fails(request(program, folder, **fields))
    assert (type(failure), str(failure)) == (error, message)
    assert failure.hint


def test_an_operator_that_is_not_registered(folder: Path, modules: Path) -> None:
    (modules / "operator_module.py").write_text(OPERATOR.replace("aoti_debug_test", "aoti_debug_elsewhere"))
    scope: dict[str, Any] = {}
    exec(compile(OPERATOR.replace("aoti_debug_test", "aoti_debug_elsewhere"), "operator_module", "exec"), scope)
    path = modules / "model.pt2"
    torch.export.save(torch.export.export(CallsOperator(scope["twice"]), (torch.ones(2),)), path)
    failure = fails(request(path, folder))
    assert isinstance(failure, ArtifactError)
    assert failure.hint == (
        "these operators are not registered: aoti_debug_elsewhere::twice; pass --import MODULE or --load-library PATH"
    )


def test_an_operator_that_torch_registers_when_it_is_used(folder: Path, tmp_path: Path) -> None:
    if not LINEAR_CROSS_ENTROPY:
        pytest.skip("this torch has no such operator")

    class Chunked(torch.nn.Module):
        def forward(self, x: torch.Tensor, weight: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=2)
            return torch.nn.functional.linear_cross_entropy(x, weight, target, reduction="none", options=options)

    path = tmp_path / "model.pt2"
    inputs = (torch.rand(6, 4), torch.rand(10, 4), torch.zeros(6, dtype=torch.long))
    torch.export.save(torch.export.export(Chunked(), inputs), path)
    failure = fails(request(path, folder))
    assert isinstance(failure, ArtifactError)
    assert failure.hint == (
        "these operators are not registered: torch_nn::_linear_cross_entropy_batch_chunked_no_reduction; torch "
        "registers them in torch.nn.modules.linear_cross_entropy: pass --import torch.nn.modules.linear_cross_entropy"
    )


@pytest.mark.slow
def test_operators_without_a_meta_kernel(folder: Path, tmp_path: Path) -> None:
    class Histograms(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            (factors, _), (counts, edges) = torch.geqrf(x), torch.histogram(x, 5)
            return factors, counts, edges, torch.histogramdd(x, [2, 3])[0]

    path = tmp_path / "model.pt2"
    torch.export.save(torch.export.export(Histograms(), (torch.rand(6, 2),)), path)
    lowered = exported_program.lower(request(path, folder), compiler.find_torch(), timeout=600)
    assert "aoti_torch_cpu_geqrf(" in lowered.sources.wrapper
    assert "histogram" in lowered.sources.wrapper


def test_a_program_of_another_version(program: Path, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "newer.pt2"
    with zipfile.ZipFile(program) as source, zipfile.ZipFile(path, "w") as target:
        for info in source.infolist():
            content = source.read(info)
            if info.filename.endswith("models/model.json"):
                graph = json.loads(content)
                graph["schema_version"]["major"] = 999
                graph["torch_version"] = "9.9.0"
                content = json.dumps(graph).encode()
            target.writestr(info.filename, content)
    failure = fails(request(path, folder))
    assert isinstance(failure, ArtifactError)
    first, log = str(failure).splitlines()
    assert first.startswith("the exported program cannot be loaded: RuntimeError: ")
    assert "999" in Path(log.removeprefix("log: ")).read_text()
    assert failure.hint == f"torch 9.9.0 wrote it; this is torch {torch.__version__}"


def test_a_program_without_example_inputs(folder: Path, tmp_path: Path) -> None:
    exported = torch.export.export(Model().eval(), (torch.ones(2, 4),))
    exported.example_inputs = None
    path = tmp_path / "bare.pt2"
    torch.export.save(exported, path)
    failure = fails(request(path, folder))
    assert isinstance(failure, ArtifactError)
    assert failure.hint == "export it again and leave the example inputs in, or pass --inputs FILE"


def test_kernels_and_configurations_come_from_the_second_lowering(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model whose kernel binaries have to be named by their content."""

    def run_worker(_: str, asked: Request, *__: object) -> Answer:
        archive = messages.HASHED_ARCHIVE if asked.hashed_kernels else messages.ARCHIVE
        files = unpacked(tmp_path / archive.removesuffix(".pt2"), WRAPPER + KERNELS)
        (files / "c6.kernel.cpp").write_text(KERNELS)
        if asked.hashed_kernels:
            (files / "hashed.cubin").write_bytes(b"code")
        members = {f"{archives.MODEL}{path.name}": path.read_bytes() for path in files.iterdir()}
        archives.write(tmp_path / archive, members)
        configs = {"triton_poi_fused_0": TritonConfig((("XBLOCK", "2" if asked.hashed_kernels else "1"),))}
        return Answer("2.13.0", (), {}, "O1", f"of {archive}", {}, triton_configs=configs)

    monkeypatch.setattr(exported_program, "run_worker", run_worker)
    monkeypatch.setattr(exported_program, "shared_cubins", lambda _: ("/tmp/triton_poi_fused_0.cubin",))
    lowered = exported_program.lower(request("m.pt2", tmp_path), Torch("2.13.0", tmp_path, ""), timeout=1)
    assert "hashed.cubin" in [path.name for path in lowered.sources.shipped]
    assert lowered.triton_configs["triton_poi_fused_0"].values == (("XBLOCK", "2"),)
    assert lowered.archive.path == tmp_path / messages.ARCHIVE
    assert lowered.inputs.missing_reason == f"of {messages.ARCHIVE}"


@pytest.mark.slow
def test_a_program_that_only_this_process_can_load(folder: Path) -> None:
    scope: dict[str, Any] = {}
    exec(compile(OPERATOR, "operator_module", "exec"), scope)
    exported = torch.export.export(CallsOperator(scope["twice"]), (torch.ones(2),))
    lowered = exported_program.lower_program(exported, request("", folder), compiler.find_torch(), timeout=120)
    assert [node["node"]["target"] for node in json.loads(lowered.sources.extern_nodes)["nodes"]] == [
        "aoti_debug_test::twice"
    ]
    assert lowered.answer.schemas["aoti_debug_test.twice.default"].text == "aoti_debug_test::twice(Tensor x) -> Tensor"
    assert not lowered.log.exists()  # there was no child


class Pointwise(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, x).sin().cos()


@pytest.mark.slow
def test_settings_of_this_process_reach_the_child(folder: Path) -> None:
    exported = torch.export.export(Pointwise(), (torch.ones(4, 4),))
    with torch.autocast("cpu", dtype=torch.bfloat16), config.patch({"cpp.descriptive_names": False}):
        lowered = exported_program.lower_program(exported, request("", folder), compiler.find_torch(), timeout=120)
    assert lowered.log.exists()
    assert "cached_torch_dtype_bfloat16" in lowered.sources.wrapper  # of the matrix product
    assert "cpp_fused_cos" not in lowered.sources.kernels
    assert re.search(r"\bcpp_\w*\d\(", lowered.sources.kernels)


@pytest.mark.slow
def test_weights_of_a_file_are_frozen_where_that_is_asked_for(program: Path, folder: Path) -> None:
    asked = request(program, folder, configs={"freezing": True})
    lowered = exported_program.lower(asked, compiler.find_torch(), timeout=600)
    assert "_frozen_param" in lowered.sources.wrapper


def test_a_program_is_lowered_here_where_a_setting_cannot_be_sent(
    folder: Path, monkeypatch: pytest.MonkeyPatch, program: Path
) -> None:
    lowered = object()
    monkeypatch.setattr(exported_program, "lower_in_process", lambda *_: lowered)
    exported = torch.export.load(program)
    with config.patch(post_grad_custom_pre_pass=len):
        made = exported_program.lower_program(exported, request("", folder), compiler.find_torch(), timeout=120)
    assert made is lowered


def test_what_is_lowered_here_has_a_time_limit(folder: Path, monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    def spin(*_: object) -> None:
        while True:
            time.sleep(0.01)

    monkeypatch.setattr(exported_program, "lower_in_process", spin)
    exported = torch.export.load(program)
    with (
        config.patch(post_grad_custom_pre_pass=len),
        pytest.raises(ToolchainError, match=r"lowering in this process gave no answer for 0\.2 s") as raised,
    ):
        exported_program.lower_program(exported, request("", folder), compiler.find_torch(), timeout=0.2)
    assert "--build-timeout" in raised.value.hint


class Broadcasts(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


@pytest.mark.slow
def test_a_program_whose_saved_form_cannot_be_lowered(folder: Path) -> None:
    """torch saves no range of a symbol that no constraint names: lowering what it loads again raises an exception."""
    inputs = (torch.ones(3, 2), torch.ones(1, 2))
    torch._dynamo.mark_dynamic(inputs[0], 0)
    exported = torch.export.export(Broadcasts(), inputs)
    torch.export.save(exported, folder / "saved.pt2")
    with pytest.raises(BuildFailureError, match="vr must not be None"):
        exported_program.lower(request(folder / "saved.pt2", folder), compiler.find_torch(), timeout=120)
    lowered = exported_program.lower_program(exported, request("", folder), compiler.find_torch(), timeout=120)
    assert "cpp_fused_add" in lowered.sources.kernels
    assert not lowered.log.exists()  # it was lowered here


WEIGHTS = 'constants_info_[0].name = "w";\n'
FIRST = WEIGHTS + WRAPPER + COMMANDS
SECOND = "// loads c9.cubin and c8.cubin\n" + WEIGHTS + WRAPPER


def default_package(path: Path, wrapper: str) -> Artifact:
    members = {
        "c5.wrapper.cpp": (wrapper + COMMANDS).encode(),
        "c6.kernel.cpp": (KERNELS + COMMANDS).encode(),
        "c5.wrapper.so": b"\x7fELF",
        "c8.cubin": b"eight",
        "c9.cubin": b"nine",
        "c7.fatbin": b"seven",
    }
    archives.write(path, {f"{archives.MODEL}{name}": content for name, content in members.items()})
    return archive.inspect(path)


def test_text_and_binaries_come_from_the_default_package(tmp_path: Path) -> None:
    first = sources.read(unpacked(tmp_path / "first", FIRST), wrapper_opt="O2")
    replaced = exported_program.use_hashed_binaries(first, default_package(tmp_path / "p.pt2", SECOND))
    assert (replaced.wrapper, replaced.kernels) == (SECOND, f"\n{KERNELS}\n")
    assert [path.name for path in replaced.shipped] == [
        "c1.wrapper.json",
        "c1.wrapper_metadata.json",
        "c7.fatbin",
        "c8.cubin",
        "c9.cubin",
    ]
    assert replaced.shipped[-1].read_bytes() == b"nine"
    assert (replaced.stem, replaced.wrapper_opt) == ("c1.wrapper", "O2")
    assert (replaced.compile_flags, replaced.objects) == (first.compile_flags, first.objects)


def test_weights_must_lie_where_they_lay(tmp_path: Path) -> None:
    first = sources.read(unpacked(tmp_path / "first", FIRST), wrapper_opt="O1")
    other = default_package(tmp_path / "p.pt2", SECOND.replace('"w"', '"v"'))
    with pytest.raises(ToolchainError, match="laid its weights out differently"):
        exported_program.use_hashed_binaries(first, other)
    assert (tmp_path / "first" / "triton_poi_fused_0.cubin").exists()
