"""The process that calls a program in eager: `python -m aoti_debug.views.call_text.eager_worker REQUEST ANSWER`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from aoti_debug.base import dtypes
from aoti_debug.base.machine import user_code
from aoti_debug.base.machine.files import json_data
from aoti_debug.base.machine.processes.messages import ErrorData
from aoti_debug.instrument.frontend.worker.graph_nodes import module_path
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.pt2 import archive, load_program
from aoti_debug.runs.rundir.formats.statistics import Statistics, tensor_statistics
from aoti_debug.runs.rundir.formats.stored_tensor import StoredTensor
from aoti_debug.runs.rundir.formats.tensor_file_format import content_hashes
from aoti_debug.views.call_text.calls import Call, CallTensor, EagerAnswer, EagerCall, EagerRequest, list_text

_HIDDEN = ("profiler::", "debug_mode_ops::")


class CallRecorder(TorchDispatchMode):  # type: ignore[misc]
    """Records every call of an operator; `module` and `stack` are those of the node that is run.

    Args:
        hashes, values: record the hashes and the statistics of tensors.
    """

    supports_higher_order_operators = True

    def __init__(self, *, hashes: bool, values: bool) -> None:
        super().__init__()
        self.calls: list[EagerCall] = []
        self.module = ""
        self.stack = -1
        self._hashes = hashes
        self._values = values
        self._numbers: Any = WeakIdKeyDictionary()
        self._next = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Calls the operator and records it with its arguments as they were before."""
        found: list[CallTensor] = []
        arguments = [self._text(value, found) for value in args]
        arguments += [f"{name}={self._text(value, found)}" for name, value in (kwargs or {}).items()]
        result = func(*args, **(kwargs or {}))
        results = result if isinstance(result, list | tuple) else () if result is None else (result,)
        outputs = tuple(self._text(value, found) for value in results)
        name = func.__qualname__ if isinstance(func, torch._ops.OpOverload) else f"torch.{func}"
        if not name.startswith(_HIDDEN):
            call = Call(name, tuple(arguments), outputs, self.module, tuple(found))
            self.calls.append(EagerCall(call, self.stack))
        return result

    def _text(self, value: Any, found: list[CallTensor]) -> str:
        if isinstance(value, torch.Tensor):
            found.append(self._tensor(value))
            return str(found[-1])
        if isinstance(value, list | tuple):
            return list_text([self._text(item, found) for item in value])
        if isinstance(value, torch.fx.GraphModule):
            return str(getattr(value, "_name", None) or type(value).__name__)
        return repr(value) if isinstance(value, str | float | int | bool | None) else str(value)

    def _tensor(self, tensor: torch.Tensor) -> CallTensor:
        if tensor not in self._numbers:
            self._numbers[tensor] = self._next
            self._next += 1
        dtype = dtypes.bare_name(tensor.dtype)
        hash_ = f"{content_hashes(memoryview(_bytes(tensor)))[0]:016x}" if self._hashes and _is_readable(tensor) else ""
        statistics = _statistics(tensor) if self._values and _is_readable(tensor) else None
        return CallTensor(f"${self._numbers[tensor]}", dtype, tuple(map(str, tensor.shape)), hash_, statistics)


class _Interpreter(torch.fx.Interpreter):  # type: ignore[misc]
    """Runs a program's nodes one by one, and tells the recorder the origin of each."""

    def __init__(self, module: torch.fx.GraphModule, recorder: CallRecorder) -> None:
        super().__init__(module)
        self.stacks: dict[str, int] = {}
        self._recorder = recorder

    def run_node(self, n: torch.fx.Node) -> Any:
        stack = n.meta.get("stack_trace") or ""
        self._recorder.stack = self.stacks.setdefault(stack, len(self.stacks)) if stack else -1
        self._recorder.module = module_path(n.meta.get("nn_module_stack"))
        return super().run_node(n)


def run(request: EagerRequest) -> EagerAnswer:
    """Calls the program of a request once."""
    recorder = CallRecorder(hashes=request.hashes, values=request.values)
    stacks: Mapping[str, int] = {}
    try:
        user_code.load(request.imports, request.libraries)
        program = load_program.load(request.program)
        inputs = _inputs(request, program)
        interpreter = _Interpreter(program.module(), recorder)
        stacks = interpreter.stacks
        with torch.no_grad(), recorder:
            interpreter.run(*_flat(inputs), enable_io_processing=False)
    except Exception as error:  # noqa: BLE001 - the user's program may raise anything in eager
        return EagerAnswer(tuple(recorder.calls), tuple(stacks), ErrorData.from_exception(error))
    return EagerAnswer(tuple(recorder.calls), tuple(stacks))


def _inputs(request: EagerRequest, program: Any) -> Inputs:
    """The inputs of the run; the example inputs of the program if the package embeds none."""
    package = archive.inspect(request.package)
    if request.inputs:
        return input_files.read(request.inputs, input_files.read_signature(package))
    embedded = input_files.read_embedded(package)
    if embedded is not None:
        return embedded
    args, kwargs = program.example_inputs
    return Inputs(tuple(args), dict(kwargs))


def _flat(inputs: Inputs) -> Iterator[Any]:
    """The leaves of the inputs, in the order of the program's graph."""
    from torch.utils import _pytree

    yield from _pytree.tree_leaves((tuple(inputs.args), dict(inputs.kwargs)))


def _is_readable(tensor: torch.Tensor) -> bool:
    is_real = type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return is_real and tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_meta


def _bytes(tensor: torch.Tensor) -> bytes:
    """The elements, row-major."""
    flat = tensor.detach().resolve_conj().resolve_neg().contiguous().cpu().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


def _statistics(tensor: torch.Tensor) -> Statistics | None:
    """The statistics of a tensor; None if its elements are no numbers."""
    data = np.frombuffer(_bytes(tensor), np.uint8)
    try:
        measured = tensor_statistics(StoredTensor(data, dtypes.bare_name(tensor.dtype), tensor.numel()))
    except TypeError:
        return None
    return measured if measured.n_finite else measured._replace(mean=0.0, std=0.0)  # the answer is JSON: no NaN


def main() -> None:
    """Answers the request named on the command line."""
    question, answer = map(Path, sys.argv[1:])
    answer.write_text(json_data.to_text(run(json_data.parse(EagerRequest, question.read_bytes())), indent=None))


if __name__ == "__main__":
    main()
