"""Changes of how a program is built, each of which makes one part of Inductor harmless."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from typing import Any

from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.instrument.frontend.protocol.messages import LeftOut, TunedChoice

_DISABLED = "disabled_passes"
_MAX_NAMES = 3  # names in a line
_ON_BY_DEFAULT: tuple[tuple[str, Any, str], ...] = (  # setting, harmless value, what it is
    ("pattern_matcher", False, "the pattern matcher"),
    ("cpp.simdlen", 1, "the vector width"),
    ("epilogue_fusion", False, "fusion of what follows a matrix product"),
    ("max_fusion_size", 1, "fusion"),
    ("split_reductions", False, "splitting of reductions"),
    ("inplace_buffers", False, "results in the memory of inputs"),
    ("allow_buffer_reuse", False, "memory that is used again"),
    ("layout_optimization", False, "layouts of convolutions"),
    ("comprehensive_padding", False, "padding of strides"),
    ("fallback_random", True, "random numbers"),
    ("emulate_precision_casts", True, "rounding between fused operators"),
)
_OFF_BY_DEFAULT = (  # these matter only where they are asked for: then they are left out
    *("max_autotune", "max_autotune_gemm", "max_autotune_pointwise", "coordinate_descent_tuning", "freezing"),
    *("combo_kernels", "memory_planning"),
)
_OF_A_DEVICE = {"cpp.": "cpu", "triton.": "cuda", "cuda.": "cuda"}


@dataclass(frozen=True)
class Build:
    """The settings and omissions that a program is built with.

    Attributes:
        configs: settings of Inductor.
        left_out: the operators that are called as they are.
    """

    configs: Mapping[str, Any] = field(default_factory=dict)
    left_out: LeftOut = field(default_factory=LeftOut)


@dataclass(frozen=True)
class SettingChange:
    """A change of one setting.

    Attributes:
        key: "cpp.simdlen".
        value: its new value; None where the setting is left out.
        what: the part of Inductor that it concerns.
    """

    key: str
    value: Any
    what: str

    @property
    def option(self) -> str:
        """The change as a line to paste, "--inductor-config cpp.simdlen=1"."""
        return (
            f"without --inductor-config {self.key}"
            if self.value is None
            else f"--inductor-config {self.key}={self.value}"
        )

    @property
    def concern(self) -> str:
        """The part that is made harmless."""
        return f"{self.key}, which was asked for" if self.value is None else self.what

    def applied_to(self, build: Build) -> Build:
        """The build with this change."""
        kept = {key: value for key, value in build.configs.items() if key != self.key}
        return replace(build, configs=kept if self.value is None else {**kept, self.key: self.value})


class Part(str, Enum):
    """A part of Inductor whose applications can be left out one by one."""

    PASS = "pass"
    LOWERING = "lowering"
    DECOMPOSITION = "decomposition"

    @property
    def plural(self) -> str:
        """ "passes"."""
        return "passes" if self is Part.PASS else f"{self.value}s"


@dataclass(frozen=True)
class LeaveOut:
    """A pass that is not applied, or an operator that is not lowered or not decomposed.

    Attributes:
        name: of the pass, "remove_noop_ops", or of the operator, "aten.relu.default".
    """

    part: Part
    name: str

    @property
    def option(self) -> str:
        """The change as a line to paste: an option, or Python for a module that --import names."""
        match self.part:
            case Part.PASS:
                return f"--inductor-config {_DISABLED}={self.name}"
            case Part.LOWERING:
                return f"torch._inductor.lowering.make_fallback(torch.ops.{self.name}, override_decomp=True)"
            case Part.DECOMPOSITION:
                return f"torch._inductor.decomposition.decompositions.pop(torch.ops.{self.name})"

    @property
    def concern(self) -> str:
        """The part that is made harmless."""
        if self.part is Part.PASS:
            return f"the pass {self.name}"
        return f"the {self.part.value} of {self.name}; the line goes into a module for --import"

    def applied_to(self, build: Build) -> Build:
        """The build with this change."""
        left_out = build.left_out
        match self.part:
            case Part.PASS:
                names = [name for name in (build.configs.get(_DISABLED), self.name) if name]
                return replace(build, configs={**build.configs, _DISABLED: ",".join(names)})
            case Part.LOWERING:
                return replace(build, left_out=replace(left_out, lowerings=(*left_out.lowerings, self.name)))
            case Part.DECOMPOSITION:
                decompositions = (*left_out.decompositions, self.name)
                return replace(build, left_out=replace(left_out, decompositions=decompositions))


@dataclass(frozen=True)
class SkipCandidate:
    """A candidate of autotuning that is not tried."""

    candidate: TunedChoice

    def applied_to(self, build: Build) -> Build:
        """The build with this change."""
        left_out = build.left_out
        return replace(build, left_out=replace(left_out, candidates=(*left_out.candidates, self.candidate)))


Change = SettingChange | LeaveOut


def applied(changes: Iterable[Change | SkipCandidate], build: Build) -> Build:
    """The build with several changes."""
    for change in changes:
        build = change.applied_to(build)
    return build


def options_of(changes: Iterable[Change]) -> tuple[str, ...]:
    """The line to paste for each change: together they identify a set."""
    return tuple(change.option for change in changes)


def name_of(changes: Sequence[Change]) -> str:
    """ "--inductor-config cpp.simdlen=1", "without the lowerings of aten.relu.default, aten.add.Tensor and 7 more"."""
    settings = [change for change in changes if isinstance(change, SettingChange)]
    named = [_settings_name(settings)] if settings else []
    for part in Part:
        names = [change.name for change in changes if isinstance(change, LeaveOut) and change.part is part]
        if names:
            noun = part.value if len(names) == 1 else part.plural
            of = "" if part is Part.PASS else "of "
            named.append(f"without the {noun} {of}{wording.join_truncated(names, _MAX_NAMES)}")
    return ", ".join(named)


def _settings_name(settings: Sequence[SettingChange]) -> str:
    if len(settings) == 1:
        return settings[0].option
    return f"other settings: {wording.join_truncated([change.key for change in settings], _MAX_NAMES)}"


def lines_of(changes: Sequence[Change]) -> tuple[str, ...]:
    """The lines to paste; passes are left out by one of them."""
    passes = [change.name for change in changes if isinstance(change, LeaveOut) and change.part is Part.PASS]
    together = (LeaveOut(Part.PASS, ",".join(passes)).option,) if passes else ()
    others = (change.option for change in changes if not (isinstance(change, LeaveOut) and change.part is Part.PASS))
    return (*together, *others)


def asked_for(configs: Mapping[str, Any]) -> Iterator[SettingChange]:
    """The settings that a model is built with, each to be left out: those that are off otherwise come first."""
    for key in sorted(configs, key=lambda key: key not in _OFF_BY_DEFAULT):
        yield SettingChange(key, None, "asked for")


def suspects(configs: Mapping[str, Any], device: str) -> Iterator[SettingChange]:
    """The changes to try of what is on anyway, for a model that is built with `configs`."""
    for key, value, what in _ON_BY_DEFAULT:
        prefix = next((prefix for prefix in _OF_A_DEVICE if key.startswith(prefix)), "")
        if configs.get(key) != value and (not prefix or _OF_A_DEVICE[prefix] == device):
            yield SettingChange(key, value, what)
