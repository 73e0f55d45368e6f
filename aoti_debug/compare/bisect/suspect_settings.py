"""The settings of Inductor that most often change what a model computes, each with a value that makes it harmless."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from aoti_debug.compare.bisect.build_changes import SettingChange

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
