"""Reads Inductor's record of Triton kernel configurations, in the process that lowered the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aoti_debug.instrument.frontend.protocol.messages import TritonConfig


def triton_configs() -> dict[str, TritonConfig]:
    """Kernel name -> configuration, of every Triton kernel that this process compiled for a GPU package."""
    from torch._inductor.codecache import CudaKernelParamCache

    return {str(name): _config(params) for name, params in CudaKernelParamCache.cache.items()}


def _config(params: Mapping[str, Any]) -> TritonConfig:
    return TritonConfig(
        tuple((str(name), repr(value)) for name, value in params["config"].items()),
        int(params.get("global_scratch") or 0),
        int(params.get("profile_scratch") or 0),
    )
