"""Completes the description of Triton kernels with what the wrapper's text does not say."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from aoti_debug import wrapper
from aoti_debug.frontend.worker.protocol import TritonConfig
from aoti_debug.manifest import Kernel
from aoti_debug.pt2 import kernel_hashes
from aoti_debug.triton_config.infer import infer_config

HELPERS = "_inductor/runtime/triton_helpers.py"  # below torch's directory


def with_configs(kernels: Iterable[Kernel], configs: Mapping[str, TritonConfig], directory: Path) -> tuple[Kernel, ...]:
    """The kernels with the configuration that each was compiled with, and the hashes of its binary.

    Of a kernel without a record the configuration is inferred, as far as that can be done.

    Args:
        directory: where the binaries lie.
    """
    return tuple(_complete(k, configs, directory) if k.language == "triton" else k for k in kernels)


def triton_helpers(kernels: Iterable[Kernel], torch_directory: Path) -> str:
    """Source of Inductor's functions that the Triton kernels call, from the torch that compiled them."""
    sources = [k.source for k in kernels if k.language == "triton" and k.source]
    path = torch_directory / HELPERS
    return wrapper.helpers_of(sources, path.read_text()) if sources and path.is_file() else ""


def _complete(kernel: Kernel, configs: Mapping[str, TritonConfig], directory: Path) -> Kernel:
    binary = directory / kernel.cubin
    if kernel.cubin and binary.is_file():
        sha256 = hashlib.sha256(binary.read_bytes()).hexdigest()
        kernel = replace(kernel, cubin_sha256=sha256, code_sha256=kernel_hashes.hash_binary(binary))
    found = configs.get(kernel.name)
    if found is None:
        return infer_config(kernel)
    return replace(
        kernel, config=found.values, global_scratch=found.global_scratch, profile_scratch=found.profile_scratch
    )
