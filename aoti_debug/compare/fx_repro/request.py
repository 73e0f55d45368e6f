"""The request to the process that saves the tensors of an FX repro, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.protocol.request import Region


@dataclass(frozen=True, kw_only=True)
class SaveRequest:
    """The request to save the tensors that a region begins and ends with, and to run the script once.

    Attributes:
        package: the instrumented package, which holds the graph.
        inputs: the names of the inputs of the region in the script, in their order.
        outputs: those of its outputs.
        folder: with the script; the tensors are written there.
    """

    package: str
    region: Region
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    device: str
    imports: tuple[str, ...]
    libraries: tuple[str, ...]
    folder: str


@dataclass(frozen=True, kw_only=True)
class InputTensor:
    """An input that was saved.

    Attributes:
        smallest, largest: of its elements, if they are integers.
        data: its elements in row-major order, base64; "" if it is too large for a text.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    smallest: int = 0
    largest: int = 0
    data: str = ""


@dataclass(frozen=True)
class Saved:
    """The answer.

    Attributes:
        refusal: why the tensors cannot be saved; "" if they were.
        inputs: what was saved, by name.
        versions: of what the script ran with: torch, Python, the device.
        lines: what the script printed.
        code: its exit code.
    """

    refusal: str = ""
    inputs: Mapping[str, InputTensor] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()
    code: int = 0
