"""The expressions of the inputs of a script."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path

from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.fx_repro.module_text import ModuleText
from aoti_debug.compare.fx_repro.request import InputTensor
from aoti_debug.compare.fx_repro.script_text import input_text
from aoti_debug.repro import literals
from aoti_debug.triage.minify.start.request import EagerValue
from aoti_debug.triage.minify.start.start import Start

SMALL = 2  # the size of a dimension that is made smaller


class InputMode(str, Enum):
    """The form of the elements of inputs in a script."""

    SEED = "random"
    LITERAL = "as literals where they are small, else random"
    FILE = "as literals where they are small, else as files"


@dataclass(frozen=True)
class InputTexts:
    """The inputs of a script.

    Attributes:
        expressions: by their names in the module.
        files: those beside the script, by their names.
    """

    expressions: Mapping[str, str]
    files: Mapping[str, Path]


@dataclass(frozen=True)
class InputForm:
    """The form of the inputs of a script.

    Attributes:
        sizes: other sizes of dimensions, by the recorded ones: of random inputs.
    """

    given: InputMode = InputMode.FILE
    sizes: Mapping[int, int] = field(default_factory=dict)


def input_texts(start: Start, module: ModuleText, form: InputForm) -> InputTexts:
    """The inputs of a module in a form."""
    expressions, files, device = {}, {}, start.device
    for name, key in module.inputs.items():
        value = start.values[key]
        assert value.tensor is not None
        if form.given is InputMode.SEED:
            expressions[name] = input_text(_resized(replace(value.tensor, data=""), form.sizes), device)
        elif small := _small(value, device):
            expressions[name] = small
        elif form.given is InputMode.LITERAL:
            expressions[name] = input_text(value.tensor, device)
        else:
            file = f"{name}.pt"
            files[file] = start.folder / value.file
            expressions[name] = f"torch.load(Path(__file__).with_name({literals.text(file)})){_to(device)}"
    return InputTexts(expressions, files)


def sizes_of(start: Start, module: ModuleText) -> Iterator[int]:
    """The sizes of dimensions of the inputs that could be smaller, the largest first."""
    tensors = (start.values[key].tensor for key in module.inputs.values())
    yield from sorted({size for t in tensors if t is not None for size in t.shape if size > SMALL}, reverse=True)


def _small(value: EagerValue, device: str) -> str:
    """An expression of the elements; "" if they are too many."""
    if value.literal:
        return value.literal + _to(device)
    assert value.tensor is not None
    return input_text(value.tensor, device) if value.tensor.data else ""


def _to(device: str) -> str:
    return "" if device == "cpu" else f".to({literals.text(device)})"


def _resized(tensor: InputTensor, sizes: Mapping[int, int]) -> InputTensor:
    """The tensor with other sizes, then row-major; integers may be indices, and become as small as the sizes."""
    if not sizes:
        return tensor
    shape = tuple(sizes.get(size, size) for size in tensor.shape)
    smallest, largest = (min(number, SMALL - 1) for number in (tensor.smallest, tensor.largest))
    return replace(
        tensor,
        smallest=smallest,
        largest=largest,
        shape=shape,
        strides=tuple(math.prod(shape[n + 1 :]) for n in range(len(shape))),
    )
