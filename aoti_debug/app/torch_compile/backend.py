"""The backend of `torch.compile(model, backend="aoti_debug")`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.app.torch_compile import options as compile_options
from aoti_debug.app.torch_compile.compiled_graph import CompiledGraph
from aoti_debug.app.torch_compile.directory import CompilationDirectory

if TYPE_CHECKING:
    import torch


def aoti_debug(
    graph: torch.fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None
) -> Callable[..., Any]:
    """Compiles a graph of Dynamo into instrumented AOTInductor packages, which run in this process.

    AOT autograd makes functional graphs of ATen operators of it: one for inference, or one forward and one backward.
    Each becomes a package when it is first called. All that this process compiles with the same `out` lies in one
    directory.

    Args:
        options: see CompileOptions.

    Raises:
        UsageError: an option is not known, or has a wrong value.
    """
    from torch._dynamo.backends.common import aot_autograd

    chosen = compile_options.from_mapping(options)
    directory = functools.partial(_current_directory, chosen.out.absolute())

    def compiler(kind: str) -> Callable[..., Callable[..., Any]]:
        return lambda traced, _: _boxed(CompiledGraph(traced, kind, chosen, directory))

    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler("forward"), bw_compiler=compiler("backward"), inference_compiler=compiler("inference")
    )(graph, example_inputs)
    return compiled


def _boxed(compiled: CompiledGraph) -> Callable[[list[Any]], list[Any]]:
    """A function that AOT autograd calls with the inputs in a list."""

    def call(inputs: list[Any]) -> list[Any]:
        return compiled(inputs)

    call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _current_directory(base: Path) -> CompilationDirectory:
    return _directory(base, os.getpid())  # a forked process has one of its own


@functools.cache
def _directory(base: Path, _: int) -> CompilationDirectory:
    return CompilationDirectory.create(base)
