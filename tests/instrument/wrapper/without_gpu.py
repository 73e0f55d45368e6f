"""What AOTInductor generates for CUDA, on a machine without a GPU: of torch and Triton all is real but the device.

Programs are exported on the CPU, and their tensors are then said to be on a GPU. Triton compiles its kernels, the first
configuration of each, with its own ptxas; nothing is launched. Needs a torch that was built for CUDA.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from unittest import mock

import torch
import torch._inductor.config
import torch.utils._triton
import triton
from torch._dynamo.device_interface import CudaInterface
from torch._inductor.codecache import AotCodeCompiler
from torch._inductor.codegen.wrapper import PythonWrapperCodegen
from torch._inductor.fx_passes import joint_graph, post_grad
from torch._inductor.graph import GraphLowering
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._subclasses import fake_tensor
from triton.backends.compiler import GPUTarget

CUDA = torch.device("cuda:0")
H100 = types.SimpleNamespace(
    type="cuda",
    name="NVIDIA H100",
    gcnArchName="",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 << 30,
    warp_size=32,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    max_threads_per_block=1024,
    shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448,
    shared_memory_per_multiprocessor=233472,
    L2_cache_size=50 << 20,
)
SETTINGS = {
    "compile_threads": 1,
    "use_static_triton_launcher": False,
    "use_static_cuda_launcher": False,
    "aot_inductor.package": True,
    "aot_inductor.package_cpp_only": True,
}


class _Driver:
    """Triton's driver of a GPU that is not there."""

    launcher_cls = None
    utils = types.SimpleNamespace(
        get_device_properties=lambda _: {"max_shared_mem": 232448, "warpSize": 32},
        unload_module=lambda _: None,
    )

    def get_current_target(self) -> Any:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _: object = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return CUDA


class _GeneratedError(Exception):
    """Ends a compilation whose code has been generated."""


def _handles(kernel: Any) -> None:
    kernel.module = kernel.function = object()
    kernel.n_regs = kernel.n_spills = 0
    kernel.n_max_threads = H100.max_threads_per_block


def _run(tuner: Any, *_: object, stream: object = None, **__: object) -> None:
    """Compiles the first configuration of a kernel, and notes it for the package, as the first run of one does."""
    launcher = tuner._precompile_config(tuner.configs[0]).make_launcher()
    launcher.store_cubin = True
    tuner.save_gpu_kernel(stream, launcher)
    tuner.launchers = [launcher]


def _first_pass(graph: Any, wrapper: object, kernels: object, inputs: object, names: list[str]) -> None:
    """Compiles the kernels of a model whose C++ runs once to compile them (triton.autotune_at_compile_time=False)."""
    from torch._inductor.runtime import triton_lazy_compile

    sources = {w.kernel_name: w.kernel_name_to_body for w in graph.wrapper_code._triton_call_wrappers.values()}
    pending: dict[str, Any] = {}
    for name in names:
        triton_lazy_compile.start_kernel_compile(pending, name, sources[name][name])
        tuner = getattr(pending[name], "result", lambda name=name: pending[name])()
        tuner.inductor_meta["store_cubin"] = True
        _run(tuner)


def _autotune(code: Any) -> None:
    with fake_tensor.FakeTensorMode(allow_non_fake_inputs=True):
        _GENERATE(code)


_GENERATE = PythonWrapperCodegen.generate_and_run_autotune_block


def _patches() -> Iterator[Any]:
    def nothing() -> Callable[..., None]:
        return lambda *_, **__: None

    def zero() -> Callable[..., int]:  # a new one each time: Dynamo notes what each function is
        return lambda *_, **__: 0

    places: list[tuple[Any, dict[str, Any]]] = [
        (
            torch.cuda,
            {
                "is_available": lambda: True,
                "is_initialized": lambda: True,
                "is_current_stream_capturing": lambda: False,
                "device_count": lambda: 1,
                "current_device": zero(),
                "get_device_properties": lambda *_, **__: H100,
                "_get_device_properties": lambda *_, **__: H100,
                "get_device_capability": lambda *_, **__: (9, 0),
                "get_device_name": lambda *_, **__: H100.name,
                "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8),
                **{n: nothing() for n in ("_lazy_init", "synchronize", "empty_cache", "set_rng_state", "set_device")},
                **{n: zero() for n in ("_exchange_device", "_maybe_exchange_device")},
            },
        ),
        (
            torch._C,
            {
                "_cuda_getDeviceCount": lambda: 1,
                "_cuda_getCurrentStream": lambda _: (0, 0, 1),
                **{n: zero() for n in ("_cuda_getDevice", "_cuda_exchangeDevice", "_cuda_maybeExchangeDevice")},
                "_cuda_getCurrentRawStream": zero(),
                "_cuda_setDevice": nothing(),
            },
        ),
        (CudaInterface, {"get_raw_stream": staticmethod(zero())}),
        (fake_tensor, {"init_gpu_context": nothing()}),
        (type(triton.runtime.driver), {"active": _Driver()}),
        (triton.compiler.CompiledKernel, {"_init_handles": _handles, "run": property(lambda _: None)}),
        (triton_helpers, {"set_driver_to_gpu": nothing()}),
        (triton_heuristics.CachingAutotuner, {"run": _run, "precompile": nothing()}),
        (joint_graph, {"lazy_init": nothing()}),  # its patterns are traced on a device
        (post_grad, {"lazy_init": nothing()}),
        (PythonWrapperCodegen, {"generate_and_run_autotune_block": _autotune}),
        (GraphLowering, {"_run_jit_variant_for_autotune": _first_pass}),
    ]
    for place, attributes in places:
        for name, value in attributes.items():
            yield mock.patch.object(place, name, value, create=True)


@contextlib.contextmanager
def _pretended_gpu() -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for patch in _patches():
            stack.enter_context(patch)
        for name in ("has_triton", "has_triton_experimental_host_tma", "has_triton_tensor_descriptor_host_tma"):
            getattr(torch.utils._triton, name)()  # it keeps the answer
        if "include_cpu" in torch.utils._triton.has_triton.__wrapped__.__annotations__:
            torch.utils._triton.has_triton(include_cpu=True)
        yield


def _move(exported: Any) -> None:
    """Says of every tensor of an exported program that it is on the GPU."""

    def moved(value: object) -> object:
        if isinstance(value, fake_tensor.FakeTensor):
            value.fake_device = CUDA
        return value

    for module in exported.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                torch.utils._pytree.tree_map(moved, node.meta.get("val"))
                if "device" in node.kwargs:
                    node.kwargs = {**node.kwargs, "device": CUDA}
            module.recompile()


def generated(
    model: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    *,
    settings: Mapping[str, object],
    strict: bool = False,
    change: Callable[[Any], None] | None = None,
) -> dict[str, str]:
    """Returns the files that AOTInductor generates for a model without weights, by name.

    Args:
        strict: export it with Dynamo, which kernels of the model's own need.
        change: changes the exported program.
    """
    files: dict[str, str] = {}

    def stop(graph: object, wrapper: Any, kernels: Any, operators: str | None, **_: object) -> None:
        files["model.wrapper.cpp"] = str(getattr(wrapper, "value", wrapper))
        if operators:
            files["model.wrapper.json"] = operators
        raise _GeneratedError

    with _pretended_gpu():
        with mock.patch.object(torch.cuda, "is_available", return_value=False):
            exported = torch.export.export(model, inputs, strict=strict)
        _move(exported)
        if change is not None:
            change(exported)
        passed = tuple(node.meta["val"] for node in exported.graph.nodes if node.op == "placeholder")
        known = torch._inductor.config.get_config_copy()
        chosen = {name: value for name, value in {**SETTINGS, **settings}.items() if name in known}
        with mock.patch.object(AotCodeCompiler, "compile", stop):
            try:
                torch._inductor.aot_compile(exported.module(), passed, options=chosen)
            except Exception:
                if not files:
                    raise
    return files
