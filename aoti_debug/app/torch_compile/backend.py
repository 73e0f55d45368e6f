"""The backend of `torch.compile(model, backend="aoti_debug")`, and the graphs that run as instrumented packages."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.app.torch_compile import cached_build, graph_program
from aoti_debug.app.torch_compile.cached_build import PACKAGE, PROGRAM, CompilationDirectory, GraphEntry
from aoti_debug.base.abi import Variable
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.processes.child_process import changed_environment
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.wording import first_line
from aoti_debug.package import recording_settings
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run import load_model

if TYPE_CHECKING:
    import torch

LOGGER = logging.getLogger("aoti_debug")
_CUDA_GRAPHS = "triton.cudagraph"  # begins the names of settings: no package has any
_OF_SCRIPTS = "operators"  # the option that the process of a script gives
_ALIGNMENT = 16  # bytes; GPU_ALIGN_BYTES in torch/_inductor/utils.py
_MAX_REASON = 300
_MAX_PACKAGES = 16  # of one graph
_LOCK = threading.RLock()  # environment variables belong to the whole process
Model = Callable[[Sequence[Any]], list[Any]]


@dataclass(frozen=True)
class CompileOptions:
    """The settings of the packages that graphs become.

    Attributes:
        level: 0 off, 1 save, 2 print values, 3 kernel names, 4 (hash) hashes only.
        filter: patterns of kernel names, with commas between them; "!" excludes.
        phase: "before", "after" or "both"; "" for the level's own choice.
        inductor_configs: settings of torch._inductor.config.
        out: where the directory of a compilation is made.
        operators: is asked, when a graph is built, for what registers operators in other processes.
    """

    level: int = 3
    filter: str = ""
    phase: str = ""
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)
    out: Path = field(default_factory=ResultKind.COMPILED.place)
    operators: Callable[[], AbstractContextManager[UserCode]] = lambda: contextlib.nullcontext(UserCode())


def from_mapping(values: Mapping[str, Any] | None) -> CompileOptions:
    """The options that a user gave.

    Raises:
        UsageError: one is not known, or has a wrong value.
    """
    known = {member.name: member for member in dataclasses.fields(CompileOptions)}
    given = dict(values or {})
    if unknown := sorted(set(given) - set(known)):
        raise UsageError(
            f'the backend "aoti_debug" has no option {", ".join(map(repr, unknown))}',
            hint=f"it has {', '.join(name for name in known if name != _OF_SCRIPTS)}",
        )
    if "level" in given:
        given["level"] = recording_settings.level_number(given["level"])
    chosen = CompileOptions(**given)
    if chosen.phase not in ("", "before", "after", "both"):
        raise UsageError(f"phase is {chosen.phase!r}", hint='"before", "after" or "both"')
    if not isinstance(chosen.filter, str):
        raise UsageError(f"filter is {chosen.filter!r}", hint="patterns in one text: 'triton_*,!*softmax*'")
    if not isinstance(chosen.inductor_configs, Mapping):
        raise UsageError(f"inductor_configs is {chosen.inductor_configs!r}", hint="{'max_autotune': True}")
    if not isinstance(chosen.out, str | os.PathLike):
        raise UsageError(f"out is {chosen.out!r}", hint="the path of a directory")
    return dataclasses.replace(chosen, out=Path(chosen.out))


def options_of_environment(
    folder: Path, configs: Mapping[str, Any], operators: Callable[[], AbstractContextManager[UserCode]]
) -> dict[str, Any]:
    """The options of graphs in the process of a script, which record what its environment says."""
    chosen = {Variable.LEVEL: "level", Variable.FILTER: "filter", Variable.PHASE: "phase"}
    given = {name: os.environ[variable.value] for variable, name in chosen.items() if variable.value in os.environ}
    return {**given, "inductor_configs": configs, "out": folder, "operators": operators}


def inductor_configs(mode: str | None, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """The settings of Inductor that `torch.compile(mode=…, options=…)` stands for, but for CUDA graphs.

    Raises:
        RuntimeError: there is no such mode.
    """
    from torch._inductor import list_mode_options

    chosen = {**(list_mode_options(mode) if mode else {}), **(options or {})}
    return {name: value for name, value in chosen.items() if not name.startswith(_CUDA_GRAPHS)}


class CompiledGraph:
    """A callable that takes the graph's inputs in a list, which it empties, and returns a list of its outputs.

    The graph is exported and built when it is first called. One that cannot be runs in eager; a warning says why.

    Args:
        graph: of ATen operators, functional but for copies into inputs at its end.
        kind: "inference", "forward" or "backward".
        directory: returns where its packages lie.
    """

    def __init__(
        self,
        graph: torch.fx.GraphModule,
        kind: str,
        options: CompileOptions,
        directory: Callable[[], CompilationDirectory],
    ) -> None:
        self._graph = graph
        self._kind = kind
        self._options = options
        self._directory = directory
        self._line = graph_program.model_line(graph)
        self._inputs = graph_program.inputs_of(graph)
        self._outputs = graph_program.outputs_of(graph)
        self._is_dynamic = bool(self._inputs.symbolic)
        self._models: dict[tuple[Any, ...], Model] = {}
        self._runs_in_eager = False

    def __call__(self, boxed: list[Any]) -> list[Any]:
        inputs = list(boxed)
        boxed.clear()
        if not self._outputs.computed and not self._inputs.overwritten:
            return self._outputs.joined(inputs, ())
        model = self._models.get(self._variant(inputs)) or self._built(inputs)
        if model is None:
            return list(self._graph(*inputs))
        return self._outputs.joined(inputs, self._results(model, inputs))

    def _results(self, model: Model, inputs: Sequence[Any]) -> list[Any]:
        """Calls a package, which writes to inputs.

        On CUDA, torch's code works on a copy of an input that is not aligned, and does not copy back what it writes
        there (codegen_inputs in torch/_inductor/codegen/cpp_wrapper_gpu.py; the code of torch.compile does).
        """
        import torch
        from torch._inductor.utils import clone_preserve_strides

        unaligned = [position for position in self._inputs.overwritten if inputs[position].data_ptr() % _ALIGNMENT]
        aligned = {position: clone_preserve_strides(inputs[position].detach()) for position in unaligned}
        results = model([aligned.get(position, inputs[position]) for position in self._inputs.tensors])
        with torch.no_grad():
            for position, tensor in aligned.items():
                inputs[position].copy_(tensor)
        return results

    def _variant(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The properties of the inputs that a package is built for."""
        constants = self._inputs.constants(inputs)
        return constants if self._is_dynamic else (*constants, *self._sizes(inputs))

    def _sizes(self, inputs: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(inputs[position].shape) for position in self._inputs.symbolic)

    def _built(self, inputs: Sequence[Any]) -> Model | None:
        """The package for these inputs, built if there is none; None where the graph runs in eager."""
        with _LOCK:
            if self._runs_in_eager or (found := self._models.get(self._variant(inputs))) is not None:
                return None if self._runs_in_eager else found
            folder = None
            try:
                if len(self._models) == _MAX_PACKAGES:
                    raise UsageError(f"{_MAX_PACKAGES} packages were built for other sizes or numbers")
                folder = self._directory().new_folder()
                return self._build(inputs, folder)
            except Exception as error:  # of any kind, from export and from the builder
                LOGGER.debug("a graph cannot be built", exc_info=True)
                self._runs_in_eager = True
                reason = first_line(str(error))[:_MAX_REASON] or type(error).__name__
            LOGGER.warning("a graph (%s, %s) runs in eager: %s", self._kind, self._line, reason)
            with contextlib.suppress(OSError, UsageError):  # the warning has said it
                name = folder.name if folder is not None and (folder / PROGRAM).exists() else ""
                self._directory().add(GraphEntry(name, self._kind, self._line, eager=reason))
            return None

    def _build(self, inputs: Sequence[Any], folder: Path) -> Model:
        is_cached = self._write_package(inputs, folder)
        model = self._loaded(folder)
        sizes = "" if self._is_dynamic or not self._inputs.symbolic else str(self._sizes(inputs))
        self._directory().add(GraphEntry(folder.name, self._kind, self._line, sizes, is_cached))
        LOGGER.info("%s (%s, %s): %s", folder.name, self._kind, self._line, folder)
        self._models[self._variant(inputs)] = model
        return model

    def _write_package(self, inputs: Sequence[Any], folder: Path) -> bool:
        """Exports and builds, for sizes that may change where that can be; True if an equal graph was built before."""
        from torch.utils._python_dispatch import _disable_current_modes

        with _disable_current_modes():  # AOT autograd observes the first call with one, and users have their own
            return self._write_package_of(inputs, folder)

    def _write_package_of(self, inputs: Sequence[Any], folder: Path) -> bool:
        configs = self._options.inductor_configs
        with self._options.operators() as user_code:
            if self._is_dynamic:
                try:
                    program = graph_program.exported(self._graph, inputs, dynamic=True)
                    return cached_build.write_package(program, folder, configs, user_code)
                except Exception:  # of any kind; the next attempt reports its own
                    LOGGER.debug("a graph cannot be built for sizes that change", exc_info=True)
                    self._is_dynamic = False
            program = graph_program.exported(self._graph, inputs, dynamic=False)
            return cached_build.write_package(program, folder, configs, user_code)

    def _loaded(self, folder: Path) -> Model:
        """The package, whose first call makes its run directory."""
        artifact = archive.inspect(folder / PACKAGE)
        manifest = artifact.manifest()
        variables = {
            Variable.LEVEL: str(recording_settings.written_level(self._options.level)),
            Variable.FILTER: self._options.filter,
            Variable.PHASE: self._options.phase,
            Variable.DIR: str(folder),
        }
        environment = {variable.value: value for variable, value in variables.items()}
        with changed_environment(environment):
            loaded = load_model.load(artifact, manifest.model, manifest.device)
        is_called = False

        def call(tensors: Sequence[Any]) -> list[Any]:
            nonlocal is_called
            import torch

            with torch.no_grad():
                if is_called:
                    return list(loaded(*tensors))
                with _LOCK, changed_environment(environment):  # the runtime reads them in its first call
                    is_called = True
                    return list(loaded(*tensors))

        return call


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

    chosen = from_mapping(options)
    directory = functools.partial(_current_directory, chosen.out.absolute())

    def compiler(kind: str) -> Callable[..., Callable[..., Any]]:
        return lambda traced, _: _boxed(CompiledGraph(traced, kind, chosen, directory))

    compiled: Callable[..., Any] = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        keep_inference_input_mutations=True,
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
