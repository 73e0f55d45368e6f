"""The differences of two runs: in their settings, inputs and launches, and whether rounding explains them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from pathlib import Path

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.diff.element_difference import ElementDifference
from aoti_debug.compare.diff.pairs import LaunchPair, PairedBy, PairRelation, TensorPair
from aoti_debug.compare.modules import ModelPart, PartedBy, parts_of
from aoti_debug.package.manifest import Kernel, Manifest
from aoti_debug.runs.rundir.launch import Launch
from aoti_debug.runs.rundir.run_directory import RunDir

_MAX_NAMES = 4


class DiffCause(str, Enum):
    """The reason why a launch wrote different results than its counterpart."""

    ROUNDING = "rounding"  # from the same inputs, both sides are within what rounding explains
    TIES = "ties"  # integers or booleans that rounding, or the order of equal elements, decides
    ILL_CONDITIONED = "ill-conditioned"  # both are within it, because a change of the inputs by one ULP changes a lot
    CONSEQUENCE = "consequence"  # they read what differs, and each is within what rounding explains from that
    PROGRAM = "another program"  # from the same inputs, they differ by more than the errors of both sides together
    WRONG = "wrong"  # a side is farther from float64 than rounding explains
    UNKNOWN = "not known"


@dataclass(frozen=True)
class SideError:
    """The error of what one side wrote, against the program in float64 from what that side itself had read.

    Attributes:
        relative: root mean square, divided by that of the expected values.
        absolute: the largest.
        share: the largest, as a multiple of what rounding explains there.
    """

    relative: float
    absolute: float
    share: float


@dataclass(frozen=True)
class DiffExplanation:
    """The explanation of what a launch wrote.

    Attributes:
        wrong: the sides that are wrong, of "a" and "b".
        reason: of a wrong side, where; why it is not known; what else there is to say.
    """

    cause: DiffCause
    wrong: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_explained(self) -> bool:
        """True if no more than rounding is needed for the difference, or differences that were there before."""
        return self.cause not in (DiffCause.PROGRAM, DiffCause.WRONG, DiffCause.UNKNOWN)


@dataclass(frozen=True)
class TensorDifference:
    """A pair of tensors whose bytes differ.

    Attributes:
        elements: where and how much; None if it is not known.
        reason: why it is not; "" if it is.
        errors: of the first and of the second side, against the program in float64; None where it is not known.
    """

    pair: TensorPair
    elements: ElementDifference | None
    reason: str = ""
    errors: tuple[SideError | None, SideError | None] = (None, None)

    @property
    def nearer(self) -> str:
        """The side that is nearer to the program in float64, "a" or "b"; "" if neither is, or it is not known."""
        first, second = self.errors
        if first is None or second is None or first.relative == second.relative:
            return ""
        return "a" if first.relative < second.relative else "b"

    @property
    def name(self) -> str:
        """The name of the argument in the second run."""
        return self.pair.b.argument.name


@dataclass(frozen=True)
class InputDifference:
    """A model input or a weight that is not the same in both runs.

    Attributes:
        name: the user's name of it.
    """

    name: str
    tensor: TensorDifference


@dataclass(frozen=True)
class LaunchDifference:
    """A launch that wrote different results than its counterpart.

    Attributes:
        tensors: those that differ.
        notes: sentences that may explain it.
        explanation: whether rounding explains it; None if that was not looked at.
    """

    pair: LaunchPair
    outcome: PairRelation
    tensors: tuple[TensorDifference, ...]
    notes: tuple[str, ...] = ()
    explanation: DiffExplanation | None = None

    @property
    def launch(self) -> Launch:
        """The launch of the second run."""
        return self.pair.launch


@dataclass(frozen=True)
class WrongAlone:
    """A launch without a counterpart that is wrong, compared with the program.

    Attributes:
        side: "a" or "b".
        reason: where.
    """

    side: str
    launch: Launch
    reason: str


@dataclass(frozen=True, kw_only=True)
class Diff:
    """The differences of two runs.

    Attributes:
        by: how their launches are paired.
        pairs: in the order of the second run.
        same, not_recorded: how many of them wrote the same bytes, or bytes not all of which were recorded or have a
            counterpart.
        launches: those that wrote different results, in the order of the second run.
        only_a, only_b: launches that have no counterpart.
        unpaired_outputs: outputs of the model in the second run that have no counterpart.
        unfinished: sentences about runs that did not end well.
        notes: what else limits the comparison.
        wrong_alone: launches without a counterpart that are wrong.
        unexplained_reason: why it was not looked at whether rounding explains the differences; "" if it was, or if
            there are none.
        directory: that was made for the comparison; None if both runs were there.
    """

    a: RunDir
    b: RunDir
    by: PairedBy
    pairs: tuple[LaunchPair, ...]
    same: int
    not_recorded: int
    settings: tuple[RunSetting, ...]
    inputs: tuple[InputDifference, ...]
    launches: tuple[LaunchDifference, ...]
    only_a: tuple[Launch, ...]
    only_b: tuple[Launch, ...]
    unpaired_outputs: tuple[str, ...] = ()
    unfinished: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wrong_alone: tuple[WrongAlone, ...] = ()
    unexplained_reason: str = ""
    directory: Path | None = None

    @property
    def paired(self) -> int:
        """The number of pairs."""
        return len(self.pairs)

    @property
    def parted(self) -> tuple[LaunchDifference, ...]:
        """The launches that read the same inputs, and wrote different results."""
        return tuple(item for item in self.launches if item.outcome is PairRelation.PARTS)

    @property
    def first(self) -> LaunchDifference | None:
        """The first launch that parts; without any, the first that differs."""
        return next(iter((*self.parted, *self.launches)), None)

    @property
    def is_explained(self) -> bool:
        """True if it was looked at whether rounding explains the differences."""
        return bool(self.launches) and all(item.explanation is not None for item in self.launches)

    @property
    def unexplained(self) -> tuple[LaunchDifference, ...]:
        """The launches that differ by more than rounding explains, or of which that is not known."""
        found = ((item, item.explanation) for item in self.launches)
        return tuple(item for item, explanation in found if explanation is not None and not explanation.is_explained)

    @property
    def is_rounding(self) -> bool | None:
        """True if nothing but rounding is needed for the differences; None if that was not looked at.

        Inputs that differ are not rounding.
        """
        if not self.is_explained:
            return None
        return not (self.unexplained or self.inputs or self.unfinished or self.wrong_alone)

    @property
    def is_compared(self) -> bool:
        """True if the results of at least one launch are recorded in both runs."""
        return bool(self.same or self.launches)

    @property
    def is_same(self) -> bool:
        """True if nothing that was recorded differs, both runs ended well, and what had to be paired was.

        Of launches that are paired by value, only the outputs of the model need a counterpart.
        """
        if self.inputs or self.launches or self.unfinished or self.unpaired_outputs:
            return False
        return self.by is PairedBy.VALUE or not (self.only_a or self.only_b)


@dataclass(frozen=True)
class RunSetting:
    """Something that two runs do not have in common.

    Attributes:
        name: "torch", "kernel cpp_fused_add_0".
        a, b: its text in the first and the second run; "" where it is missing.
    """

    name: str
    a: str
    b: str


@dataclass(frozen=True, kw_only=True)
class ModuleDifference:
    """The differences of a module.

    Attributes:
        part: the module in the second run, with its launches that have counterparts.
        items: those of its launches that wrote other results.
        errors: the largest relative errors of the two sides in what differs, against the program in float64, from what
            each side itself had read; None where they are not known.
    """

    part: ModelPart
    items: tuple[LaunchDifference, ...]
    errors: tuple[float | None, float | None]

    @property
    def worst(self) -> tuple[LaunchDifference, TensorDifference] | None:
        """The tensor with the largest relative difference, and its launch; None without any that is known."""
        found = [(item, tensor) for item in self.items for tensor in item.tensors if _relative(tensor) is not None]
        return max(found, key=lambda pair: _relative(pair[1]) or 0.0, default=None)


def _relative(tensor: TensorDifference) -> float | None:
    return None if tensor.elements is None else tensor.elements.max_relative


def modules_of(diff: Diff, depth: int | None = None) -> tuple[ModuleDifference, ...]:
    """The differences of the modules, in the order of the second run.

    Args:
        depth: the number of names in the path of a module; None for as many as there are.
    """
    items = {item.launch: item for item in diff.launches}
    parts = parts_of((pair.launch for pair in diff.pairs), PartedBy.MODULE, depth)
    return tuple(_module(part, tuple(items[of] for of in part.launches if of in items)) for part in parts)


def _module(part: ModelPart, items: tuple[LaunchDifference, ...]) -> ModuleDifference:
    known = [tensor.errors for item in items for tensor in item.tensors]
    first, second = (
        max((error.relative for error in side if error is not None), default=None)
        for side in ([errors[0] for errors in known], [errors[1] for errors in known])
    )
    return ModuleDifference(part=part, items=items, errors=(first, second))


def differing_settings(a: RunDir, b: RunDir) -> tuple[RunSetting, ...]:
    """All of them, the most general first."""
    return tuple(setting for setting in _settings(a, b) if setting.a != setting.b)


def _settings(a: RunDir, b: RunDir) -> Iterator[RunSetting]:
    first, second = a.manifest, b.manifest
    yield RunSetting("torch that runs it", a.info.torch_version or "", b.info.torch_version or "")
    yield RunSetting("torch that compiled it", first.torch_version, second.torch_version)
    yield RunSetting("aoti-debug", first.tool_version, second.tool_version)
    yield RunSetting("device", first.device, second.device)
    yield RunSetting("compiler", first.compiler.command, second.compiler.command)
    flags = [set(manifest.compiler.kernel_flags) for manifest in (first, second)]
    yield RunSetting("compiler flags", " ".join(sorted(flags[0] - flags[1])), " ".join(sorted(flags[1] - flags[0])))
    yield RunSetting("calls", str(len(a.timeline.calls)), str(len(b.timeline.calls)))
    yield RunSetting("guards", *("yes" if run.info.guards else "no" for run in (a, b)))
    yield from _kernels(first, second)


def _kernels(a: Manifest, b: Manifest) -> Iterator[RunSetting]:
    first, second = ({kernel.name: kernel for kernel in manifest.kernels} for manifest in (a, b))
    missing = [[name for name in own if name not in other] for own, other in ((first, second), (second, first))]
    yield RunSetting(
        "kernels of one only", *(wording.join_truncated(names, _MAX_NAMES) if names else "" for names in missing)
    )
    for name, kernel in first.items():
        other = second.get(name)
        if other is not None:
            yield RunSetting(f"kernel {name}", *_versions(kernel, other))


def _versions(a: Kernel, b: Kernel) -> tuple[str, str]:
    """The parts in which two kernels of one name differ, of each."""
    parts: list[tuple[str, str]] = []
    if a.sha256 != b.sha256:
        parts.append((f"source {a.sha256[:8]}", f"source {b.sha256[:8]}"))
    if a.config != b.config:
        parts.append((_config(a), _config(b)))
    if a.num_warps != b.num_warps:
        parts.append((f"{a.num_warps} warps", f"{b.num_warps} warps"))
    first, second = (", ".join(side) for side in zip(*parts, strict=True)) if parts else ("", "")
    return first, second


def _config(kernel: Kernel) -> str:
    return " ".join(f"{name}={value}" for name, value in kernel.config)
