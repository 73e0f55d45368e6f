"""Finite numbers in the place of NaN and infinities: in a model input, a weight, or what a launch has written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from aoti_debug.base.abi import Phase
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.what_if import substituted_run
from aoti_debug.compare.what_if.substituted_run import Replace
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.diagnosis.special_values import Occurrence, Special
from aoti_debug.runs.diagnosis.trace_roots import Root, RootKind
from aoti_debug.runs.run.saved_outputs import write_tensor
from aoti_debug.runs.rundir.load_tensors import saved_values
from aoti_debug.runs.rundir.run_directory import RunDir

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class RunFiles:
    """The files that a run is given in the place of its own; None for its own.

    Attributes:
        inputs: a file of inputs.
        weights: a file of weights and buffers, by their names in the model.
        results: a file of instructions that replace results of launches.
    """

    inputs: Path | None = None
    weights: Path | None = None
    results: Path | None = None


@dataclass(frozen=True)
class HeldValues:
    """A tensor with values that are not finite.

    Attributes:
        name: the user's name of the input or weight; of a launch's result, its name in the launch.
        values: the tensor, in its own dtype and shape.
        elements: the row-major indices of those values, in order.
        root: where the values came into the run.
        number: the finite number that takes their place.
    """

    name: str
    values: Tensor
    elements: tuple[int, ...]
    root: Root
    number: float = 1.0

    def special_of(self, element: int) -> Special:
        """The special value that an element is."""
        number = float(self.values.reshape(-1)[element])
        return next(special for special in Special if special.is_value(number))

    def without(self, elements: tuple[int, ...]) -> Tensor:
        """The tensor with the number at these elements."""
        import torch

        flat = self.values.clone(memory_format=torch.contiguous_format).reshape(-1)
        flat[list(elements)] = self.number
        return flat.reshape(self.values.shape)


def held_values(root: Root, run: RunDir, saved: RunDir) -> HeldValues | None:
    """The values of a root; None where they cannot be replaced: not saved, complex, or of a weight read in part.

    Args:
        run: the run that shows the root.
        saved: a run that saved the tensors of the launch of the root.

    Raises:
        ArtifactError: the inputs cannot be read.
        RunDirError: a saved tensor is missing or damaged.
    """
    if root.kind is RootKind.PRODUCED:
        name, values = root.occurrence.argument.name, _saved(root.occurrence, saved, Phase.AFTER)
    elif root.kind is RootKind.EXTERNAL and (position := _position(root, run)) is not None:
        name, values = root.input, _tensors(read_inputs(run))[position]
    elif root.kind is RootKind.EXTERNAL:
        name, values = root.input, _weight(root, saved)
    else:
        return None
    if values is None or not values.dtype.is_floating_point:
        return None
    elements = _elements(values, root.occurrence.special)
    return HeldValues(name, values, elements, root, _median(values)) if elements else None


@dataclass(frozen=True)
class Replacement:
    """Elements of a tensor that a run is given finite numbers for."""

    held: HeldValues
    elements: tuple[int, ...]

    @property
    def values(self) -> Tensor:
        """The tensor with the finite numbers."""
        return self.held.without(self.elements)


def write(replacements: Sequence[Replacement], run: RunDir, folder: Path) -> RunFiles:
    """Writes what a run is given so that these elements are finite.

    Args:
        run: whose own inputs are changed.
        folder: a new one.

    Raises:
        ArtifactError: the inputs cannot be read or written.
        OSError: a file cannot be written.
        TypeError: tensors of this dtype cannot be written.
    """
    import torch

    folder.mkdir(parents=True)
    inputs: Inputs | None = None
    weights: dict[str, Tensor] = {}
    results: list[Replace] = []
    for number, replacement in enumerate(replacements):
        held, occurrence = replacement.held, replacement.held.root.occurrence
        if held.root.kind is RootKind.PRODUCED:
            file = folder / f"result_{number}.safetensors"
            write_tensor(file, occurrence.argument.name, replacement.values)
            results.append(Replace(occurrence.launch.id, occurrence.argument.name, file))
        elif (position := _position(held.root, run)) is not None:
            inputs = _with_tensor(inputs or read_inputs(run), position, replacement.values)
        else:
            weights[held.name] = replacement.values
    files = RunFiles(
        inputs=None if inputs is None else folder / "inputs.pt",
        weights=folder / "weights.pt" if weights else None,
        results=folder / "instructions.txt" if results else None,
    )
    if inputs is not None and files.inputs is not None:
        input_files.write(inputs, files.inputs)
    if files.weights is not None:
        torch.save(weights, files.weights)
    if files.results is not None:
        substituted_run.write(files.results, results)
    return files


def read_inputs(run: RunDir) -> Inputs:
    """The inputs of a run.

    Raises:
        ArtifactError: they cannot be read, or its package is gone.
    """
    assert run.package is not None
    package = archive.inspect(run.package)
    if run.inputs is not None:
        return input_files.read(run.inputs, input_files.read_signature(package))
    embedded = input_files.read_embedded(package)
    assert embedded is not None, "a run without a file of inputs used the embedded ones"
    return embedded


def _position(root: Root, run: RunDir) -> int | None:
    """The position of a model input among the tensors of a call; None for a weight."""
    names = {root.occurrence.argument.name, root.occurrence.argument.spec.base}
    return next((number for number, variable in enumerate(run.manifest.inputs) if variable in names), None)


def _tensors(inputs: Inputs) -> list[Tensor]:
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_leaves((tuple(inputs.args), dict(inputs.kwargs)))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _with_tensor(inputs: Inputs, position: int, values: Tensor) -> Inputs:
    """The inputs with other values in one of their tensors, whose strides stay as they are."""
    import torch
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten((tuple(inputs.args), dict(inputs.kwargs)))
    where = [number for number, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)][position]
    changed = leaves[where].clone(memory_format=torch.preserve_format)
    leaves[where] = changed.copy_(values)
    args, kwargs = pytree.tree_unflatten(leaves, structure)
    return Inputs(tuple(args), kwargs)


def _saved(occurrence: Occurrence, saved: RunDir, phase: Phase) -> Tensor | None:
    launch = saved.find_launch(occurrence.launch.id)
    argument = None if launch is None else launch.argument(occurrence.argument.name)
    return None if argument is None else saved_values(saved, argument, phase)


def _weight(root: Root, saved: RunDir) -> Tensor | None:
    """A weight as it is in the model, from the view of all of it that a launch has read."""
    import torch

    argument = root.occurrence.argument
    names = {argument.name, argument.spec.base}
    constant = next((c for c in saved.manifest.constants if c.name in names and not c.folded), None)
    values, layout = _saved(root.occurrence, saved, Phase.BEFORE), argument.layout
    if constant is None or values is None or layout is None or layout.storage_offset or not constant.fqn:
        return None
    if values.numel() != math.prod(constant.shape) or layout.extent_bytes != values.numel() * values.element_size():
        return None
    whole = torch.empty(values.numel(), dtype=values.dtype)
    whole.as_strided(layout.shape, layout.strides).copy_(values)
    return whole.as_strided(constant.shape, constant.strides)


def _median(values: Tensor) -> float:
    """The median of the finite elements, which other code may expect rather than any number; 1 without any."""
    finite = values.double().reshape(-1)
    finite = finite[finite.isfinite()]
    return float(finite.median().to(values.dtype)) if finite.numel() else 1.0


def _elements(values: Tensor, special: Special) -> tuple[int, ...]:
    """The elements that are NaN; for an infinity, those of either sign."""
    flat = values.reshape(-1)
    which = flat.isnan() if special is Special.NAN else flat.isinf()
    return tuple(which.nonzero().reshape(-1).tolist())
