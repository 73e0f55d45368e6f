"""Recorded launches made from live tensors, with their tensor files, as a run directory would hold them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from aoti_debug.base import dtypes
from aoti_debug.package.argument_values import Absent, Layout, Number, Tensor, Value
from aoti_debug.package.manifest import (
    Arg,
    Certainty,
    CType,
    Form,
    Kernel,
    KernelCompilation,
    Kind,
    Manifest,
    ModelLine,
    OperatorSchema,
    Provenance,
    Role,
    Site,
)
from aoti_debug.repro.arguments import arguments_of
from aoti_debug.repro.generate_texts import generate
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedRun, RecordedSlot
from aoti_debug.repro.repro_files import TEMPLATES, write_folder
from tests.operator_schemas import registered

RUN = RecordedRun(Path("aoti-debug/runs/20261120-231501-4711"), "2026-11-20T23:15:01", "2.13.0", "cpu", "0.1.0")
PROVENANCE = Provenance(
    Certainty.EXACT,
    source=(ModelLine("/models/mixed.py", 22, "forward", "    h = F.gelu(self.l1(x))"),),
    post_grad_nodes=("addmm",),
    pre_grad_nodes=("linear", "gelu"),
)
COMPILER = KernelCompilation(
    command="g++",
    kernel_flags=(
        "-DSTANDALONE_TORCH_HEADER",
        "-DC10_USING_CUSTOM_GENERATED_MACROS",
        "-DCPU_CAPABILITY_DEFAULT",
        "-O1",
        "-std=c++20",
        "-fopenmp",
    ),
    include_dirs=(
        "/opt/python/include/python3.12",
        "/opt/venv/lib/python3.12/site-packages/torch/include",
        "/opt/venv/lib/python3.12/site-packages/torch/include/torch/csrc/api/include",
    ),
    link_flags=("-L/opt/venv/lib/python3.12/site-packages/torch/lib", "-ltorch", "-ltorch_cpu", "-lgomp"),
)


def manifest(
    *kernels: Kernel, compiler: KernelCompilation = COMPILER, operators: Sequence[OperatorSchema] = ()
) -> Manifest:
    return Manifest(
        format=1,
        tool_version="0.1.0",
        torch_version="2.13.0",
        device="cpu",
        level=1,
        filters=(),
        sites=(),
        kernels=kernels,
        compiler=compiler,
        operators=tuple(operators),
    )


def layout_of(tensor: torch.Tensor) -> Layout:
    return Layout(
        dtype=dtypes.bare_name(tensor.dtype),
        device=str(tensor.device),
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        storage_offset=tensor.storage_offset(),
        storage_bytes=tensor.untyped_storage().nbytes(),
        item_bytes=tensor.element_size(),
    )


def save(tensor: torch.Tensor, path: Path) -> Path:
    stored = torch.view_as_real(tensor) if tensor.dtype == torch.complex128 else tensor
    save_file({"x": stored.contiguous().clone()}, path)
    return path


@dataclass
class LaunchBuilder:
    """Collects the arguments of a launch in the order of the call."""

    folder: Path
    kernel: str
    kind: Kind
    op: str = ""
    slots: list[RecordedSlot] = field(default_factory=list)
    position: int = 0
    details: dict[str, Any] = field(default_factory=dict)  # further fields of the site
    kept: list[torch.Tensor] = field(default_factory=list)  # so that no two share an address by chance

    def tensor(
        self,
        name: str,
        tensor: torch.Tensor,
        role: Role = Role.IN,
        *,
        after: torch.Tensor | None = None,
        param: str = "",
        ctype: str = "AtenTensorHandle",
        form: Form = Form.TENSOR,
        element: int = -1,
        at: int | None = None,
    ) -> LaunchBuilder:
        """Saves `tensor` as it is now; `after` (same memory, or what the launch made) is saved by `finish`."""
        self.kept.append(tensor)
        before = None
        if form is not Form.OUTPUT_SLOT:
            before = save(tensor, self.folder / f"{len(self.slots)}.before")
        saved = None if after is None else save(after, self.folder / f"{len(self.slots)}.after")
        arg = Arg(name, param, form, role, ctype, name, self._position(at), element)
        self.slots.append(RecordedSlot(arg, Tensor(tensor.data_ptr(), layout_of(tensor)), before, saved))
        return self

    def result(self, name: str, tensor: torch.Tensor, param: str = "ret0") -> LaunchBuilder:
        return self.tensor(
            name, tensor, Role.OUT, after=tensor, param=param, ctype="AtenTensorHandle*", form=Form.OUTPUT_SLOT
        )

    def made(self, name: str, tensor: torch.Tensor, param: str) -> LaunchBuilder:
        """What an operator behind the proxy executor put into a handle that was passed."""
        self.tensor(name, tensor, Role.OUT, after=tensor, param=param, form=Form.LIST, at=5)
        self.slots[-1] = replace(self.slots[-1], before=None, made=True)
        return self

    def number(
        self,
        name: str,
        value: int | float | bool,
        type: CType = CType.I64,
        *,
        ctype: str = "int64_t",
        form: Form = Form.SCALAR,
        element: int = -1,
        at: int | None = None,
    ) -> LaunchBuilder:
        arg = Arg(name, name, form, Role.NONE, ctype, str(value), self._position(at), element)
        self.slots.append(RecordedSlot(arg, Number(value, type)))
        return self

    def ints(self, name: str, values: tuple[int, ...]) -> LaunchBuilder:
        """An int list: its elements, and the length that follows it."""
        at = self._position(None)
        for i, value in enumerate(values):
            self.number(f"{name}[{i}]", value, ctype="const int64_t*", form=Form.INTS, element=i, at=at)
        return self.number(f"{name}_len_", len(values))

    def absent(
        self, name: str, form: Form, *, value: Value = Absent.NULL, text: str = "nullptr", element: int = -1
    ) -> LaunchBuilder:
        arg = Arg(name, name, form, Role.NONE, "", text, self._position(None), element)
        self.slots.append(RecordedSlot(arg, value))
        return self

    def string(self, name: str, text: str) -> LaunchBuilder:
        return self.absent(name, Form.STRING, value=Absent.TEXT, text=text)

    def skip(self) -> LaunchBuilder:
        """An opaque expression: it has no slot."""
        self.position += 1
        return self

    def build(self, fault: str = "") -> RecordedLaunch:
        site = Site(
            id=3,
            kernel=self.kernel,
            kind=self.kind,
            function="run_impl",
            callee=self.kernel,
            line=100,
            args=tuple(s.arg for s in self.slots),
            provenance=PROVENANCE,
            op=self.op,
            **self.details,
        )
        return RecordedLaunch("0.3", site, tuple(self.slots), RUN, fault)

    def _position(self, at: int | None) -> int:
        if at is None:
            at, self.position = self.position, self.position + 1
        return at


def write(launch: RecordedLaunch, folder: Path, *kernels: Kernel, force: bool = False) -> Path:
    arguments = arguments_of(launch)
    known = manifest(*kernels, operators=registered(launch.site.op))
    write_folder(folder, generate(launch, known, arguments), arguments, force=force)
    return folder


# In front of a kernel that needs nothing of torch's header, which takes seconds to compile.
PLAIN = "// not torch/csrc/inductor/cpp_prefix.h\n#include <cstdint>\n#include <stdexcept>\n"


def cpp_repro(
    folder: Path,
    body: str,
    *,
    n: int = 64,
    role: Role = Role.OUT,
    after: torch.Tensor | None = None,
    fault: str = "",
    declared: str = "",
) -> Path:
    """The repro of `cpp_fused_planted_0(const float* in_ptr0, float* out_ptr0, const int64_t ks0)` with this body:
    in_ptr0 has 0, 1, 2, …, n - 1, out_ptr0 n times 7, ks0 is n."""
    saved = folder / "run"
    saved.mkdir()
    launch = LaunchBuilder(saved, "cpp_fused_planted_0", Kind.CPP)
    source, out = torch.arange(float(n)), torch.full((n,), 7.0)
    written = source + 1 if after is None else after
    launch.tensor("arg0_1", source, param="in_ptr0", ctype="const float*", form=Form.POINTER)
    launch.tensor("buf0", out, role, after=None if fault else written, ctype="float*", form=Form.POINTER)
    launch.number("s0", n, ctype="const int64_t")
    text = (
        f"{PLAIN}{declared}\n"
        'extern "C" void cpp_fused_planted_0(const float* in_ptr0, float* out_ptr0, const int64_t ks0)\n'
        f"{{\n    {body}\n}}\n"
    )
    return write(launch.build(fault), folder / "repro", Kernel("cpp_fused_planted_0", "cpp", text, ""))


ADD_ONE = "for (int64_t i = 0; i < ks0; ++i) out_ptr0[i] = in_ptr0[i] + 1;"


# Forks for each request: a fresh process that has imported torch and Triton already, and cannot import aoti_debug.
FORKING = """
import _imp, contextlib, gc, json, os, runpy, sys, traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
import numpy, safetensors.torch, torch, torch._dynamo
with contextlib.suppress(ImportError):
    import triton
sys.modules["aoti_debug"] = None  # importing it raises ImportError
sources = {path: path.read_bytes() for path in Path(sys.argv[1]).glob("*.py")}
compiled = {data: compile(data, path, "exec", dont_inherit=True) for path, data in sources.items()}
source_to_code = SourceFileLoader.source_to_code

def code_of(loader, data, path, **settings):
    # Every repro holds a copy of the same modules.
    code = compiled.get(bytes(data))
    if code is None:
        return source_to_code(loader, data, path, **settings)
    _imp._fix_co_filename(code, os.fspath(path))
    return code

SourceFileLoader.source_to_code = code_of
gc.freeze()
for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child:
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    for name, descriptor in (("out", 1), ("err", 2)):
        os.dup2(os.open(request[name], os.O_WRONLY), descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.argv = request["command"]
    code = 0
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        code = 1
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
"""


@cache
def _forking() -> subprocess.Popen[str]:
    command = [sys.executable, "-I", "-c", FORKING, str(TEMPLATES)]
    return subprocess.Popen(command, cwd="/", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def replay(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Runs a repro in a fresh process that cannot import aoti_debug, from another directory."""
    return run_script(folder / "repro.py", *options, directory=Path("/"))


def run_script(script: Path, *options: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Runs a script as `replay` does, from a directory."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "AOTI_DEBUG"))}
    command = [str(script), *options]
    forking = _forking()
    assert forking.stdin is not None
    assert forking.stdout is not None
    with tempfile.NamedTemporaryFile("r") as out, tempfile.NamedTemporaryFile("r") as err:
        request = {"command": command, "environment": environment, "directory": str(directory)}
        forking.stdin.write(json.dumps({**request, "out": out.name, "err": err.name}) + "\n")
        forking.stdin.flush()
        code = int(forking.stdout.readline())
        return subprocess.CompletedProcess(command, code, out.read(), err.read())
