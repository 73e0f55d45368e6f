"""Compares a tensor's layout with the layout that the graph promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.wrapper.promised_layouts import UNKNOWN
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.manifest import Promise
from aoti_debug.package.recording.values import Layout
from aoti_debug.runs.rundir.run_directory import RunDir


@dataclass(frozen=True)
class Promised:
    """A promise with the sizes that its symbols have in one call; None for unknown sizes and strides.

    Attributes:
        device: "cpu", "cuda:0", "cuda" for any CUDA device, "" for any device.
    """

    device: str
    dtype: str
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{_numbers(self.sizes)}]"

    @property
    def full(self) -> str:
        """ "float32[4, 8], strides [8, 1], on cpu"."""
        return f"{self}, strides [{_numbers(self.strides)}]" + (f", on {self.device}" if self.device else "")


def resolve(promise: Promise, symbols: Symbols, device: str) -> Promised:
    """The promise with its symbols replaced by their sizes.

    Args:
        device: the device on which the tensor has to be in this run.
    """
    return Promised(
        device,
        promise.dtype,
        tuple(symbols.value(size) for size in promise.sizes),
        tuple(symbols.value(stride) for stride in promise.strides),
    )


def differs(promised: Promised, real: Layout) -> bool:
    """True if the dtype, device, sizes or strides differ from the promise."""
    return (
        promised.dtype != real.dtype
        or _other_device(promised, real)
        or other_sizes(promised, real)
        or _other_strides(promised, real)
    )


def contrast(promised: Promised, real: Layout) -> tuple[str, str]:
    """(promised, real) as texts that include strides and devices only if they differ."""
    promised_text, real_text = str(promised), describe(real)
    if _other_strides(promised, real):
        promised_text += f" with strides [{_numbers(promised.strides)}]"
        real_text += f" with strides [{_numbers(real.strides)}]"
    if _other_device(promised, real):
        promised_text += f" on {promised.device}"
        real_text += f" on {real.device}"
    return promised_text, real_text


def other_sizes(promised: Promised, real: Layout) -> bool:
    """True if the number of dimensions or a known size differs from the promise."""
    if len(promised.sizes) != len(real.shape):
        return True
    return any(a is not None and a != b for a, b in zip(promised.sizes, real.shape, strict=True))


def describe(layout: Layout) -> str:
    """ "float32[4, 8]"."""
    return f"{layout.dtype}[{_numbers(layout.shape)}]"


def full(layout: Layout) -> str:
    """ "float32[4, 8], strides [8, 1], on cpu, in a storage of 128 bytes"."""
    strides = f"strides [{_numbers(layout.strides)}]"
    return f"{describe(layout)}, {strides}, on {layout.device}, in a storage of {layout.storage_bytes} bytes"


def _other_strides(promised: Promised, real: Layout) -> bool:
    """True if a stride differs in a dimension with more than one element; False if the sizes differ already."""
    if real.numel == 0 or other_sizes(promised, real) or len(promised.strides) != len(real.strides):
        return False
    return any(
        size > 1 and a is not None and a != b
        for size, a, b in zip(real.shape, promised.strides, real.strides, strict=True)
    )


def _other_device(promised: Promised, real: Layout) -> bool:
    if not promised.device:
        return False
    device = real.device if ":" in promised.device else real.device.partition(":")[0]
    return device != promised.device


def _numbers(numbers: Sequence[int | None]) -> str:
    return ", ".join("?" if number is None else str(number) for number in numbers)


class Devices:
    """Maps promised devices to those of a run: a package that was compiled for cuda:0 may run on cuda:1.

    Attributes:
        model: the model's device: "cpu", "cuda:0"; "cuda" if no launch shows the index.
    """

    def __init__(self, run: RunDir) -> None:
        self._compiled_for = _most_common(promise.device for promise in run.manifest.promises)
        self.model = _model_device(run)

    def real(self, promised: str) -> str:
        """The device that a promise means in this run."""
        if promised != UNKNOWN and promised == self._compiled_for and not promised.startswith(self.model):
            return self.model
        return promised if ":" in self.model else promised.partition(":")[0]


def _model_device(run: RunDir) -> str:
    """The device of most buffers that launches write; most of them are the model's own."""
    kind = run.manifest.device
    if kind == "cpu":
        return kind
    device = _most_common(
        argument.tensor.layout.device
        for launch in run.launches
        for argument in launch.args
        if argument.tensor is not None and argument.written and argument.name not in run.manifest.inputs
    )
    return device or kind


def _most_common(devices: Iterable[str]) -> str:
    """The most common device other than the CPU; "" if there is none."""
    counts = Counter(device for device in devices if device.partition(":")[0] not in ("", "cpu"))
    return max(counts, key=lambda device: counts[device], default="")
