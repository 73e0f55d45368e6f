"""A model in memory as the files that commands take: its exported program, or its package, and the inputs of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.app.torch_compile import cached_build
from aoti_debug.app.torch_compile.cached_build import PACKAGE, PROGRAM, CompilationDirectory, GraphEntry
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.base.wording import first_line
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.input_files import Inputs

if TYPE_CHECKING:
    from torch.export import ExportedProgram

_INPUTS = "inputs.pt"


@dataclass(frozen=True)
class GivenModel:
    """A model and the arguments of one call of it.

    Attributes:
        model: a `torch.nn.Module`, an `ExportedProgram`, or the path of a `.pt2` file.
        dynamic_shapes: of the export of a module, as `torch.export.export` takes them.
        inductor_configs: settings of torch._inductor.config.
    """

    model: Any
    inputs: Inputs
    dynamic_shapes: Any = None
    inductor_configs: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_inputs(self) -> bool:
        """True if there are arguments."""
        return bool(self.inputs.args or self.inputs.kwargs)

    @property
    def is_file(self) -> bool:
        """True if the model is a path."""
        return isinstance(self.model, str | Path)

    def with_example_inputs(self, program: ExportedProgram) -> GivenModel:
        """The call with the example inputs of its program, if it has no arguments and the program has some."""
        if self.has_inputs or program.example_inputs is None:
            return self
        return replace(self, inputs=Inputs(*program.example_inputs))

    def exported(self) -> ExportedProgram:
        """The exported program: a module is exported, which does not change it.

        Raises:
            UsageError: the model is neither a module nor a program, or cannot be exported.
        """
        import torch

        if isinstance(self.model, torch.export.ExportedProgram):
            return self.model
        if not isinstance(self.model, torch.nn.Module):
            raise UsageError(
                f"{type(self.model).__name__} is no model",
                hint="pass a torch.nn.Module and its inputs, an ExportedProgram, or the path of a .pt2 file",
            )
        args, kwargs = self.inputs.args, dict(self.inputs.kwargs)
        try:
            with torch.no_grad():
                return torch.export.export(self.model, args, kwargs or None, dynamic_shapes=self.dynamic_shapes)
        except Exception as error:
            raise UsageError(
                f"the model cannot be exported: {type(error).__name__}: {first_line(str(error))}",
                hint="torch.export.export(model, inputs) says more; a graph that Dynamo can split runs with "
                'torch.compile(model, backend="aoti_debug")',
            ) from error


@dataclass(frozen=True)
class ModelFiles:
    """The files of a model.

    Attributes:
        model: the exported program; or the instrumented package, where torch cannot save the program.
        inputs: None where the model is called with its own example inputs.
    """

    model: Path
    inputs: Path | None

    def words(self, command: str) -> tuple[str, ...]:
        """A command line on these files."""
        inputs = () if self.inputs is None else ("--inputs", str(self.inputs))
        return ("aoti-debug", command, str(self.model), *inputs)


@dataclass(frozen=True)
class ModelFolder:
    """A new folder for the files of a model; its directory is one that `aoti-debug list` shows."""

    path: Path
    directory: CompilationDirectory


def new_folder(out: Path | None = None) -> ModelFolder:
    """Makes a folder for the files of a model.

    Args:
        out: where its directory is made; None for `aoti-debug/compiled`.

    Raises:
        UsageError: it cannot be made.
    """
    directory = CompilationDirectory.create((out or ResultKind.COMPILED.place()).absolute())
    return ModelFolder(directory.new_folder(), directory)


def written(call: GivenModel) -> ModelFiles:
    """Writes a model and its inputs into a new folder; a file is left where it is.

    Raises:
        UsageError: the model cannot be exported, or a file cannot be written.
        ArtifactError: the inputs cannot be saved.
        ToolchainError: torch cannot save the program, and its package cannot be built.
    """
    if call.is_file and not call.has_inputs:
        return ModelFiles(Path(call.model), None)
    program = None if call.is_file else call.exported()
    folder = new_folder()
    inputs = write_inputs(call, folder.path)
    if program is None:
        return ModelFiles(Path(call.model), inputs)
    if cached_build.save_program(program, folder.path):
        return ModelFiles(folder.path / PROGRAM, inputs)
    return ModelFiles(write_package(call, program, folder), inputs)


def write_inputs(call: GivenModel, folder: Path) -> Path | None:
    """Writes the arguments of the call as a file for `--inputs`; None if there are none.

    Raises:
        ArtifactError: they are neither tensors nor plain values of Python.
    """
    if not call.has_inputs:
        return None
    input_files.write(call.inputs, folder / _INPUTS)
    return folder / _INPUTS


def write_package(call: GivenModel, program: ExportedProgram, folder: ModelFolder) -> Path:
    """Writes the program, if torch can save it, and its instrumented package, whose path is returned.

    Raises:
        UsageError: a setting of Inductor is not known.
        ToolchainError: torch or the compiler failed.
    """
    is_cached = cached_build.write_package(program, folder.path, call.inductor_configs, UserCode())
    folder.directory.add(GraphEntry(folder.path.name, "inference", "", cached=is_cached))
    return folder.path / PACKAGE


def batched(call: GivenModel, sizes: Sequence[int]) -> GivenModel:
    """The call with a dynamic batch: the first dimension of each tensor in which it is as long as in the first tensor.

    A model that is exported already is left as it is.

    Args:
        sizes: that the batch may have.

    Raises:
        UsageError: there are keyword arguments, whose order torch.export has to be told.
    """
    import torch
    from torch.utils import _pytree as pytree

    if not isinstance(call.model, torch.nn.Module):
        return call
    if call.inputs.kwargs:
        raise UsageError("it is not known which sizes of keyword arguments vary", hint="pass dynamic_shapes={...}")
    tensors = [leaf for leaf in pytree.tree_leaves(call.inputs.args) if isinstance(leaf, torch.Tensor) and leaf.ndim]
    size = tensors[0].shape[0] if tensors else 0
    batch = torch.export.Dim("batch", min=min(sizes, default=1), max=max(*sizes, size, 2))

    def dims(leaf: Any) -> Any:
        is_batch = isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and leaf.shape[0] == size
        return {0: batch} if is_batch else None

    return replace(call, dynamic_shapes=pytree.tree_map(dims, call.inputs.args))


def of_size(inputs: Inputs, row: int, size: int) -> Inputs:
    """Inputs of a batch of another size, which begins with a row of these; the others follow, again from the first one.

    Args:
        inputs: tensors that are as long as the first one have a row for each sample.

    Raises:
        UsageError: there is no tensor with rows, or no such row.
    """
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves(inputs.args)
    lengths = [leaf.shape[0] for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.ndim]
    length = lengths[0] if lengths else 0
    if not 0 <= row < length:
        raise UsageError(f"the inputs have {length} rows: there is no row {row}", hint="row=0")
    order = [row, *(other for other in range(length) if other != row)]
    rows = [order[index % length] for index in range(size)]

    def chosen(leaf: Any) -> Any:
        is_batch = isinstance(leaf, torch.Tensor) and leaf.ndim > 0 and leaf.shape[0] == length
        return leaf[rows].clone() if is_batch else leaf

    return Inputs(pytree.tree_map(chosen, inputs.args), {})
