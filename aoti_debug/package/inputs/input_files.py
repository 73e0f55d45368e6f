"""Inputs of a model: read from a file, checked against its signature, embedded in a package.

A `.pt` file holds a tuple or list of arguments, `{"args": …, "kwargs": …}`, `(args, kwargs)`, or a dictionary by the
inputs' names; it is loaded with `weights_only=True`. A `.safetensors` file holds tensors by the inputs' names, or by
their positions "0", "1", …; arguments that are not tensors keep their value from export, and tensors move to the device
of export.
"""

from __future__ import annotations

import ast
import io
import pickle
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aoti_debug.base import wording
from aoti_debug.base.errors import ArtifactError, InputMismatch
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.exhaustion import exhausted
from aoti_debug.base.machine.files import untrusted_files
from aoti_debug.package.inputs import signature as signatures
from aoti_debug.package.inputs import validate
from aoti_debug.package.inputs.signature import Leaf, ModelSignature
from aoti_debug.package.pt2.archive import INPUTS_MEMBER, SIGNATURE_MEMBER, Artifact

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Inputs:
    """The arguments of one call: `model(*args, **kwargs)`."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]


def read(path: str | Path, signature: ModelSignature) -> Inputs:
    """Reads an inputs file and checks it.

    Raises:
        ArtifactError: the file cannot be read; as InputMismatch, its content does not fit the signature.
    """
    return arrange(Path(path), load(Path(path)), signature)


def load(path: Path) -> Any:
    """Loads the content of an inputs file.

    Raises:
        ArtifactError: the file cannot be read.
    """
    check_is_file(path)
    return _read_safetensors(path) if path.suffix == ".safetensors" else _load(path, path)


def check_is_file(path: Path) -> None:
    """Checks that there is an inputs file that can be opened.

    Raises:
        ArtifactError: there is none, or it is a directory, a FIFO or a device.
    """
    try:
        untrusted_files.open_named(path).close()
    except (OSError, ValueError) as error:  # ValueError: a null character in its name
        reason = "does not exist"
        if isinstance(error, untrusted_files.NotAFileError):
            reason = f"is not a file: it is {error.kind}"
        elif isinstance(error, PermissionError):
            reason = "cannot be read: permission denied"
        raise ArtifactError(f"{path} {reason}", hint="--inputs takes a .pt or .safetensors file") from error


def arrange(path: Path, data: Any, signature: ModelSignature) -> Inputs:
    """Arranges the content of an inputs file as the arguments of a call, and checks them.

    Raises:
        ArtifactError: the file holds no inputs; as InputMismatch, they do not fit the signature.
    """
    inputs = (
        _from_names(path, data, signature) if path.suffix == ".safetensors" else _from_arguments(path, data, signature)
    )
    check(inputs, signature, str(path))
    return inputs


def device_index(data: Any) -> int:
    """Returns the index of the GPU of the first GPU tensor in nested containers; -1 if there is none."""
    import torch
    from torch.utils import _pytree as pytree

    devices = (value.device for value in pytree.tree_leaves(data) if isinstance(value, torch.Tensor))
    return next((device.index for device in devices if device.type == "cuda"), -1)


def missing_inputs_error(where: str, signature: ModelSignature, making: Sequence[str]) -> ArtifactError:
    """Returns the error for a model that has no embedded inputs when they are needed.

    Args:
        making: the words of the command that makes some.
    """
    return ArtifactError(
        f"{where} has no inputs in it",
        hint=f"pass some with --inputs FILE.pt; for a first look, {shlex.join(making)} makes some; the model takes:"
        + signature.indented_lines(),
    )


def read_embedded(package: Artifact) -> Inputs | None:
    """Reads the inputs inside an instrumented package; None if it was built without any.

    Raises:
        ArtifactError: the member is damaged.
    """
    if INPUTS_MEMBER not in package.members:
        return None
    data = _load(package.path, io.BytesIO(package.read(INPUTS_MEMBER)))
    return Inputs(tuple(data["args"]), data["kwargs"])


def given_or_embedded(package: Artifact, given: str | None) -> Inputs:
    """The inputs in a file, or without one those inside an instrumented package, which fit its signature.

    Raises:
        ArtifactError: there are none, or they cannot be read.
        InputMismatch: they do not fit, or a generated kernel reads the memory of one that torch negates or conjugates.
    """
    signature = read_signature(package)
    if given:
        inputs, where = read(given, signature), given
    else:
        embedded = read_embedded(package)
        if embedded is None:
            path = str(package.path)
            raise missing_inputs_error(path, signature, ("aoti-debug", "run", path, "--random-inputs", "0"))
        inputs, where = embedded, "the package"
        check(inputs, signature, where)
    return _without_marks(inputs, package, signature, where)


def read_signature(package: Artifact) -> ModelSignature:
    """Reads the signature inside an instrumented package.

    Raises:
        ArtifactError: the signature is missing or damaged.
    """
    return signatures.from_json(package.read(SIGNATURE_MEMBER).decode("utf-8", errors="replace"))


def write(inputs: Inputs, path: Path) -> None:
    """Writes inputs to a file that torch.load reads with `weights_only=True`.

    Raises:
        ArtifactError: the inputs hold objects that are neither tensors nor plain Python values.
    """
    import torch

    torch.save({"args": tuple(inputs.args), "kwargs": dict(inputs.kwargs)}, path)
    try:
        torch.load(path, weights_only=True)
    except pickle.UnpicklingError as error:
        path.unlink()
        raise ArtifactError(
            "the inputs hold objects that are neither tensors nor plain Python values, so they cannot be saved",
            hint="pass inputs with --inputs when you run the package",
        ) from error


def check(inputs: Inputs, signature: ModelSignature, where: str) -> None:
    """Checks inputs against a signature.

    Args:
        where: the source of the inputs, for the message.

    Raises:
        InputMismatch: wrong count, or arguments of wrong kind, dtype, shape, strides or device.
    """
    mismatches = validate.mismatches(_flatten(inputs), signature, where)
    if mismatches:
        raise InputMismatch(mismatches)


def _without_marks(inputs: Inputs, package: Artifact, signature: ModelSignature, where: str) -> Inputs:
    """Inputs in which the numbers that torch negates or conjugates when it reads them are written out.

    The operators of torch compute the same of them, and what is recorded are the numbers that they read.

    Raises:
        InputMismatch: a generated kernel reads the memory of such an input.
    """
    import torch
    from torch.utils import _pytree as pytree

    values = _flatten(inputs)
    if not any(isinstance(value, torch.Tensor) and (value.is_neg() or value.is_conj()) for value in values):
        return inputs
    if mismatches := validate.marked_mismatches(values, signature, package.manifest(), where):
        raise InputMismatch(mismatches)

    def written_out(value: Any) -> Any:
        return value.resolve_conj().resolve_neg() if isinstance(value, torch.Tensor) else value

    return Inputs(*pytree.tree_map(written_out, (tuple(inputs.args), dict(inputs.kwargs))))


def _flatten(inputs: Inputs) -> list[Any]:
    from torch.utils import _pytree as pytree

    return list(pytree.tree_flatten((tuple(inputs.args), dict(inputs.kwargs)))[0])


def _from_arguments(path: Path, data: Any, signature: ModelSignature) -> Inputs:
    """Interprets the content of a `.pt` file; if ambiguous, takes the reading with the exported structure."""
    import torch

    readings: list[Inputs] = []
    if isinstance(data, torch.Tensor):
        readings.append(Inputs((data,), {}))
    elif isinstance(data, Mapping) and set(data) <= {"args", "kwargs"} and data:
        readings.append(Inputs(tuple(data.get("args", ())), data.get("kwargs", {})))
    elif isinstance(data, Mapping):
        return _from_names(path, data, signature)
    elif isinstance(data, (tuple, list)):
        if len(data) == 2 and isinstance(data[0], (tuple, list)) and isinstance(data[1], Mapping):
            readings.append(Inputs(tuple(data[0]), data[1]))
        readings.append(Inputs(tuple(data), {}))
    else:
        raise ArtifactError(f"{path} holds a {type(data).__name__}, not a model's inputs", hint=_FORMS)
    ordered = [_ordered(reading, signature) for reading in readings]
    return next((reading for reading in ordered if _has_exported_structure(reading, signature)), ordered[0])


def _has_exported_structure(reading: Inputs, signature: ModelSignature) -> bool:
    from torch.utils import _pytree as pytree

    if not signature.in_spec:
        return False
    structure = pytree.tree_structure((tuple(reading.args), dict(reading.kwargs)))
    return bool(structure == pytree.treespec_loads(signature.in_spec))


def _ordered(inputs: Inputs, signature: ModelSignature) -> Inputs:
    """Sorts the keyword arguments by the signature's leaves."""
    from torch.utils import _pytree as pytree

    if not signature.in_spec:
        return inputs
    _, kwargs = pytree.tree_unflatten(range(signature.count), pytree.treespec_loads(signature.in_spec))
    if set(kwargs) != set(inputs.kwargs):
        return inputs
    return Inputs(inputs.args, {name: inputs.kwargs[name] for name in kwargs})


def _from_names(path: Path, tensors: Mapping[Any, Any], signature: ModelSignature) -> Inputs:
    positions = [str(position) for position, leaf in enumerate(signature.leaves) if leaf.is_tensor]
    names = [signature.leaves[int(position)].name or position for position in positions]
    tensors_by_name = {str(name): value for name, value in tensors.items()}
    keys = next((keys for keys in (names, positions) if set(keys) == set(tensors_by_name)), None)
    if keys is None:
        raise ArtifactError(
            f"{path} has the tensors {', '.join(sorted(tensors_by_name))}; the model takes {', '.join(names)}",
            hint="name the tensors as the model's inputs, or by position: 0, 1, …",
        )
    if not signature.in_spec:
        raise ArtifactError(f"the inputs of this model have no names in {path}", hint="pass a .pt file instead")
    remaining = iter(keys)
    values = [
        _to_exported_device(tensors_by_name[next(remaining)], leaf)
        if leaf.is_tensor
        else constant_value(signature, position)
        for position, leaf in enumerate(signature.leaves)
    ]
    return unflatten(values, signature)


def _to_exported_device(tensor: Tensor, leaf: Leaf) -> Tensor:
    """Moves a tensor to the device of export; one on a device of the same type stays there."""
    return tensor if tensor.device.type == leaf.device else tensor.to(leaf.device)


def unflatten(values: Sequence[Any], signature: ModelSignature) -> Inputs:
    """Builds inputs from the values of a signature's leaves.

    Arguments that are not leaves become None, at the end: the model depends on the order of the tensors, not on which
    argument holds which. The signature must have a structure (`in_spec`).
    """
    from torch.utils import _pytree as pytree

    spec = pytree.treespec_loads(signature.in_spec)
    args, kwargs = pytree.tree_unflatten([*values, *[None] * signature.others], spec)
    return Inputs(tuple(args), kwargs)


def constant_value(signature: ModelSignature, position: int) -> Any:
    """Returns the value of a leaf that is not a tensor.

    Raises:
        ArtifactError: the value is unknown, or is not a Python literal.
    """
    leaf = signature.leaves[position]
    try:
        return ast.literal_eval(leaf.constant)
    except (ValueError, SyntaxError) as error:
        what = f"is {leaf.constant}, which is not a tensor" if leaf.constant else "has a value that is not recorded"
        raise ArtifactError(
            f"input {leaf.name or position} {what}", hint="pass a .pt file with --inputs instead"
        ) from error


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise ArtifactError(f"{path} is no safetensors file: {error}", hint=_FORMS) from error


def _load(path: Path, file: Path | io.BytesIO) -> Any:
    import torch

    try:
        return torch.load(file, weights_only=True)
    except pickle.UnpicklingError as error:
        raise ArtifactError(
            f"{path} holds objects that are neither tensors nor plain Python values", hint=_FORMS
        ) from error
    except Exception as error:
        if exhausted(error) is not None:
            raise
        raise ArtifactError(
            f"{path} cannot be read as inputs: {wording.first_line(str(error))}", hint=_FORMS
        ) from error


_FORMS = 'write it with torch.save((x, y), path) or torch.save({"args": (x,), "kwargs": {"y": y}}, path)'
