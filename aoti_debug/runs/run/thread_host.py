"""Calls a model from several threads: the library that does it, and its side in the process of the run.

Python's binding of torch's loader holds the lock of the interpreter while the model runs, so that no two calls of it
overlap. runtime_shims/threads/thread_host.cpp is a host in C++, as servers are; it is compiled once for each torch.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.base.machine.compiler import find_compiler, find_torch
from aoti_debug.instrument.builder.compiling.runtime_objects import THREADS
from aoti_debug.instrument.builder.compiling.toolchain import RUNTIME, Toolchain
from aoti_debug.runs.rundir import threads_json
from aoti_debug.runs.rundir.threads_json import (
    CallState,
    OutputElement,
    ThreadCall,
    ThreadPlan,
    ThreadsRecord,
    WeightUpdates,
)

if TYPE_CHECKING:
    import torch

_SOURCE = RUNTIME / THREADS / "thread_host.cpp"
_FLAGS = ("-std=c++20", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-pthread", "-w")
_LIBRARY = "thread_host.so"
_STATES = tuple(CallState)
_SCALED = frozenset({"float16", "bfloat16", "float32", "float64"})


def library() -> Path:
    """The compiled host; compiled on the first call, which takes seconds.

    Raises:
        ToolchainError: torch or the compiler are missing, or it does not compile.
    """
    toolchain = Toolchain(find_compiler(), find_torch())
    directory = toolchain.torch.directory
    words = [*_FLAGS, f"-I{directory}/include", f"-I{directory}/include/torch/csrc/api/include"]
    links = [f"-L{directory}/lib", "-ltorch_cpu", "-lc10", "-ltorch"]

    def fill(folder: Path) -> None:
        command = [toolchain.compiler.path, str(_SOURCE), *words, *links, "-o", str(folder / _LIBRARY)]
        toolchain.run(command, f"{_SOURCE.name} does not compile")

    texts = [path.read_text() for path in sorted(_SOURCE.parent.iterdir())]
    return cache.entry("thread-host", toolchain.key(*texts, *words, *links), fill) / _LIBRARY


class _Call(ctypes.Structure):
    """AotiDebugThreadCall."""

    _fields_ = (
        ("thread", ctypes.c_uint32),
        ("inputs", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("output", ctypes.c_uint32),
        ("tensor", ctypes.c_void_p),
    )


class _Plan(ctypes.Structure):
    """AotiDebugThreadPlan."""

    _fields_ = tuple((name, ctypes.c_uint32) for name in ("threads", "calls", "updates", "perturbs_memory", "seed"))


class _Update(ctypes.Structure):
    """AotiDebugWeightsUpdate."""

    _fields_ = tuple((name, ctypes.c_uint32) for name in ("loads", "inactive", "whole", "user_managed"))


class ThreadHost:
    """A loader of torch's in the library, with the methods of `torch._C._aoti.AOTIModelPackageLoader` that are used."""

    def __init__(self, path: Path, runners: int, package: str, model: str, device: int) -> None:
        """Loads a package.

        Args:
            path: of the library.
            model: the name of a model in the package.
            device: the index of a GPU; -1: the current one, or the CPU.

        Raises:
            RuntimeError: it cannot be loaded.
        """
        self._library = ctypes.CDLL(str(path))
        for name in ("load", "expected"):
            getattr(self._library, f"aoti_debug_threads_{name}").restype = ctypes.c_void_p
        for name in ("error", "spec"):
            getattr(self._library, f"aoti_debug_threads_{name}").restype = ctypes.c_char_p
        made = self._function("load")(package.encode(), model.encode(), ctypes.c_uint64(runners), device)
        if made is None:
            raise self._error()
        self._host = ctypes.c_void_p(made)

    def close(self) -> None:
        """Unloads the package."""
        self._function("unload")(self._host)

    def get_call_spec(self) -> list[str]:
        """The structure of the inputs and of the outputs, as text."""
        texts = [self._function("spec")(self._host, which) for which in (0, 1)]
        if None in texts:
            raise self._error()
        return [text.decode() for text in texts]

    def load_constants(
        self,
        constants_map: Mapping[str, torch.Tensor],
        use_inactive: Any,
        check_full_update: Any,
        user_managed: Any = 0,
    ) -> None:
        """Gives the model weights, by their names in it, as torch's loader does."""
        self._give(constants_map, _Update(1, use_inactive, check_full_update, user_managed))

    def update_constant_buffer(
        self,
        tensor_map: Mapping[str, torch.Tensor],
        use_inactive: Any,
        validate_full_updates: Any,
        user_managed: Any = 0,
    ) -> None:
        """Gives the model weights, by the names of its constants, as torch's loader does."""
        self._give(tensor_map, _Update(0, use_inactive, validate_full_updates, user_managed))

    def _give(self, weights: Mapping[str, torch.Tensor], how: _Update) -> None:
        names = (ctypes.c_char_p * len(weights))(*(name.encode() for name in weights))
        handles, count = _handles(list(weights.values()))
        if self._function("weights")(self._host, names, handles, count, ctypes.byref(how)) != 0:
            raise self._error()

    def add_inputs(self, tensors: Sequence[torch.Tensor]) -> None:
        """Adds a set of inputs."""
        self._function("inputs")(self._host, *_handles(tensors))

    def expect(self, tensors: Sequence[torch.Tensor]) -> None:
        """Says what the model returns for the next set of inputs."""
        self._function("expect")(self._host, *_handles(tensors))

    def expected(self, inputs: int) -> list[torch.Tensor]:
        """The outputs that are expected of a set of inputs."""
        found: list[torch.Tensor] = []
        while handle := self._function("expected")(self._host, inputs, ctypes.c_uint64(len(found))):
            found.append(_stolen(handle))
        return found

    def make_threads(self, plan: ThreadPlan, calls: Sequence[ThreadCall]) -> ThreadCalls:
        """Makes threads that wait for their calls.

        Raises:
            RuntimeError: they cannot be made.
        """
        records = (_Call * len(calls))(*(_Call(call.thread, call.inputs, 0, 0, None) for call in calls))
        ids = (ctypes.c_uint32 * plan.threads)()
        perturbs_memory, seed = (False, 0) if plan.jitter is None else (plan.jitter.memory, plan.jitter.seed)
        how = _Plan(plan.threads, len(calls), plan.updates is WeightUpdates.EQUAL, perturbs_memory, seed)
        if self._function("make")(self._host, ctypes.byref(how), records, ids) != 0:
            raise self._error()
        return ThreadCalls(self, tuple(ids), tuple(calls), records)

    def run_threads(self) -> int:
        """Lets the threads make their calls; returns how often the weights were updated.

        Raises:
            RuntimeError: a call, or an update, has raised an exception.
        """
        updates: int = self._function("run")(self._host)
        if updates < 0:
            raise self._error()
        return updates

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"aoti_debug_threads_{name}")

    def _error(self) -> RuntimeError:
        """Why the last function failed."""
        return RuntimeError(self._function("error")().decode(errors="replace"))


@dataclass(frozen=True)
class ThreadCalls:
    """Threads that wait, with their calls.

    Attributes:
        ids: of the threads, in the operating system.
        records: of the library.
    """

    host: ThreadHost
    ids: tuple[int, ...]
    calls: tuple[ThreadCall, ...]
    records: Any

    def outcomes(self) -> tuple[ThreadCall, ...]:
        """The calls with what became of them. To be asked once."""
        return tuple(map(self._outcome, self.calls, self.records))

    def _outcome(self, call: ThreadCall, record: _Call) -> ThreadCall:
        state = _STATES[record.state]
        element = None
        if state.is_wrong:
            expected, actual = self.host.expected(call.inputs), _stolen(record.tensor)
            element = first_difference(record.output, expected[record.output], actual)
        return replace(call, state=state, element=element)


def first_difference(output: int, expected: torch.Tensor, actual: torch.Tensor) -> OutputElement:
    """The first element, row-major, whose bits differ.

    Args:
        output: the number of the output that both are.
        expected, actual: on the CPU; their bits differ somewhere, or their sizes, dtypes or layouts do.
    """
    import torch

    kinds = (_kind(expected), _kind(actual))
    if kinds[0] != kinds[1]:
        return OutputElement(output=output, index=(), values=kinds, different=0, elements=0)
    dense = [side if side.layout is torch.strided else side.to_dense() for side in (expected, actual)]
    sides = [side.detach().contiguous().reshape(-1) for side in dense]
    a, b = (side.view(torch.uint8).reshape(side.numel(), -1) for side in sides)
    differing = (a != b).any(1).nonzero().reshape(-1)
    first = int(differing[0])
    index, rest = [], first
    for size in reversed(expected.shape):
        index.append(rest % size)
        rest //= size
    return OutputElement(
        output=output,
        index=tuple(reversed(index)),
        values=(_text(sides[0][first]), _text(sides[1][first])),
        different=len(differing),
        elements=expected.numel(),
    )


def _kind(tensor: torch.Tensor) -> str:
    """ "torch.float32 (2, 3)", "torch.float32 (2, 3), torch.sparse_coo"."""
    import torch

    layout = "" if tensor.layout is torch.strided else f", {tensor.layout}"
    return f"{tensor.dtype} {tuple(tensor.shape)}{layout}"


def _text(element: torch.Tensor) -> str:
    value = element.item()
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def input_sets(tensors: Sequence[torch.Tensor], count: int) -> Iterator[list[torch.Tensor]]:
    """Yields `count` sets of inputs: the given one, then copies of it with other floating values.

    The elements are moved along and made smaller, so that they stay in their range. Without floating tensors, those of
    integers are moved along.
    """
    yield list(tensors)
    floating = [tensor for tensor in tensors if _is_scaled(tensor)]
    for number in range(1, count):
        if floating:
            factor = 1 - number / (2 * count)
            yield [_moved(tensor, number, factor) if _is_scaled(tensor) else tensor for tensor in tensors]
        else:
            yield [_moved(tensor, number, None) for tensor in tensors]


def _is_scaled(tensor: torch.Tensor) -> bool:
    return str(tensor.dtype).removeprefix("torch.") in _SCALED


def _moved(tensor: torch.Tensor, places: int, factor: float | None) -> torch.Tensor:
    """A copy with the strides of the tensor."""
    import torch

    if any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)):
        return tensor
    values = tensor.reshape(-1).roll(places).reshape(tensor.shape)
    values = values if factor is None else values * factor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device).copy_(values)


@contextlib.contextmanager
def loaders(path: Path, runners: int) -> Iterator[Sequence[ThreadHost]]:
    """Inside the `with`, what loads a package with torch's loader loads it with that of the library.

    Args:
        path: of the library.

    Yields:
        The loaders that were made.
    """
    import torch

    torchs = torch._C._aoti.AOTIModelPackageLoader
    made: list[ThreadHost] = []

    class Loader(ThreadHost):
        load_metadata_from_package = torchs.load_metadata_from_package

        def __init__(self, package: str, model: str, *further: Any) -> None:
            super().__init__(path, runners, package, model, int(further[-1]))
            made.append(self)

    torch._C._aoti.AOTIModelPackageLoader = Loader
    try:
        yield made
    finally:
        torch._C._aoti.AOTIModelPackageLoader = torchs


def call_from_threads(
    host: ThreadHost, tensors: Sequence[torch.Tensor], plan: ThreadPlan, calls: int, run: Path
) -> None:
    """Makes the calls, and writes threads.json.

    Args:
        tensors: the inputs that were given.
        run: the run directory.

    Raises:
        RuntimeError: a call has raised an exception; its message is that of the first one.
        OSError: a file cannot be written.
    """
    import torch

    for inputs in input_sets(tensors, plan.sets):
        host.add_inputs(inputs)
    file = Path(plan.expected)
    is_known = file.exists()
    if is_known:
        for outputs in torch.load(file, weights_only=True):
            host.expect(outputs)
    if any(tensor.is_cuda for tensor in tensors):
        torch.cuda.synchronize()  # the threads have streams of their own
    waiting = host.make_threads(plan, threads_json.deal(calls, plan.threads, plan.sets))
    record = ThreadsRecord(threads=waiting.ids, runners=plan.runners, sets=plan.sets, calls=waiting.calls)
    threads_json.write(record, run)
    updates = 0
    try:
        updates = host.run_threads()
    finally:
        threads_json.write(replace(record, calls=waiting.outcomes(), updates=updates), run)
    if not is_known:
        torch.save([host.expected(number) for number in range(plan.sets)], file)


def _handles(tensors: Sequence[torch.Tensor]) -> tuple[Any, ctypes.c_uint64]:
    """The tensors as AtenTensorHandles, which the library deletes."""
    import torch

    capsules = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return (ctypes.c_void_p * len(capsules))(*(pointer(capsule, None) for capsule in capsules)), ctypes.c_uint64(
        len(capsules)
    )


def _stolen(handle: int) -> torch.Tensor:
    """The tensor of an AtenTensorHandle, which is deleted."""
    import torch

    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    tensor: torch.Tensor = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(make(handle, None, None))
    return tensor
