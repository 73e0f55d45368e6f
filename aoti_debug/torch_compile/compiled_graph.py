"""A graph that runs as an instrumented package, in this process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug import levels
from aoti_debug.abi import Variable
from aoti_debug.machine.changed_environment import changed_environment
from aoti_debug.pt2 import archive
from aoti_debug.run import load_model
from aoti_debug.torch_compile import cached_build, graph_program
from aoti_debug.torch_compile.directory import PACKAGE, CompilationDirectory, GraphEntry
from aoti_debug.torch_compile.options import CompileOptions
from aoti_debug.wording import first_line

if TYPE_CHECKING:
    import torch

LOGGER = logging.getLogger("aoti_debug.torch_compile")
_MAX_REASON = 300

Model = Callable[[Sequence[Any]], list[Any]]


class CompiledGraph:
    """A callable that takes the graph's inputs in a list, which it empties, and returns a list of its outputs.

    The graph is exported and built when it is first called. One that cannot be runs in eager; a warning says why.

    Args:
        graph: of ATen operators, functional.
        kind: "inference", "forward" or "backward".
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
        self._inputs = graph_program.inputs_of(graph)
        self._outputs = graph_program.outputs_of(graph)
        self._is_dynamic = bool(self._inputs.symbolic)
        self._models: dict[tuple[Any, ...], Model] = {}

    def __call__(self, boxed: list[Any]) -> list[Any]:
        inputs = list(boxed)
        boxed.clear()
        if not self._outputs.computed:
            return self._outputs.joined(inputs, ())
        tensors = [inputs[position] for position in self._inputs.tensors]
        model = self._models.get(self._variant(inputs)) or self._build(inputs)
        return self._outputs.joined(inputs, model(tensors))

    def _variant(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """What a package is built for, of the inputs."""
        constants = self._inputs.constants(inputs)
        return constants if self._is_dynamic else (*constants, *self._sizes(inputs))

    def _sizes(self, inputs: Sequence[Any]) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(inputs[position].shape) for position in self._inputs.symbolic)

    def _build(self, inputs: Sequence[Any]) -> Model:
        directory, line = self._directory(), graph_program.first_line(self._graph)
        folder = directory.new_folder()
        reason = ""
        for is_dynamic in (True, False) if self._is_dynamic else (False,):
            self._is_dynamic = is_dynamic
            try:
                program = graph_program.exported(self._graph, inputs, dynamic=is_dynamic)
                is_cached = cached_build.write_package(program, folder, self._options.inductor_configs)
            except Exception as error:  # of any kind, from export and from the builder
                reason = f"{first_line(str(error))[:_MAX_REASON] or type(error).__name__}"
                LOGGER.debug("%s cannot be built", folder.name, exc_info=True)
                continue
            sizes = "" if is_dynamic or not self._inputs.symbolic else str(self._sizes(inputs))
            directory.add(GraphEntry(folder.name, self._kind, line, sizes, is_cached))
            LOGGER.info("%s (%s, %s): %s", folder.name, self._kind, line, folder)
            model = self._loaded(folder)
            self._models[self._variant(inputs)] = model
            return model
        directory.add(GraphEntry(folder.name, self._kind, line, eager=reason))
        LOGGER.warning("%s (%s, %s) runs in eager: %s", folder.name, self._kind, line, reason)
        model = self._in_eager(inputs)
        self._models[self._variant(inputs)] = model
        return model

    def _loaded(self, folder: Path) -> Model:
        """The package, whose first call makes its run directory."""
        artifact = archive.inspect(folder / PACKAGE)
        manifest = artifact.manifest()
        variables = {
            Variable.LEVEL: str(levels.written(self._options.level)),
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
                is_called = True
                with changed_environment(environment):
                    return list(loaded(*tensors))

        return call

    def _in_eager(self, inputs: Sequence[Any]) -> Model:
        graph, known, outputs = self._graph, self._inputs, self._outputs
        constants = dict(zip(known.numbers, known.constants(inputs), strict=True))

        def call(tensors: Sequence[Any]) -> list[Any]:
            values: dict[int, Any] = {**constants, **dict(zip(known.tensors, tensors, strict=True))}
            values |= {position: values[size.position].shape[size.dim] for position, size in known.sizes.items()}
            results = graph(*(values[position] for position in range(len(values))))
            return [results[number] for number in outputs.computed]

        return call
