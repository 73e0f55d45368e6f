"""The settings of Inductor that most often change what a model computes, each with a value that makes it harmless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

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

    def applied_to(self, configs: Mapping[str, Any]) -> dict[str, Any]:
        """The settings with this change."""
        kept = {key: value for key, value in configs.items() if key != self.key}
        return kept if self.value is None else {**kept, self.key: self.value}


def suspects(configs: Mapping[str, Any], device: str) -> Iterator[SettingChange]:
    """The changes to try for a model that is built with `configs`: what was asked for first, then what is on anyway."""
    for key in sorted(configs, key=lambda key: key not in _OFF_BY_DEFAULT):
        yield SettingChange(key, None, "asked for")
    for key, value, what in _ON_BY_DEFAULT:
        prefix = next((prefix for prefix in _OF_A_DEVICE if key.startswith(prefix)), "")
        if configs.get(key) != value and (not prefix or _OF_A_DEVICE[prefix] == device):
            yield SettingChange(key, value, what)
