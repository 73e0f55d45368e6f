"""Details of kernels: the launch configuration and the hashes of Triton kernels, and normalised source to compare."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from aoti_debug.instrument.frontend.protocol.messages import TritonConfig
from aoti_debug.instrument.wrapper.callees.triton_helpers import helpers_of
from aoti_debug.package.manifest import Kernel
from aoti_debug.package.pt2 import kernel_hashes
from aoti_debug.package.triton_config.infer import infer_config

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_PYTHON_COMMENT = re.compile(r"#[^\n]*")
_INCLUDE = re.compile(r"^\s*#\s*include[^\n]*$", re.MULTILINE)
_SPACE = re.compile(r"\s+")
_NAME = "kernel"
HELPERS = "_inductor/runtime/triton_helpers.py"  # below torch's directory


def normalised_source(kernel: Kernel) -> str:
    """The kernel's source without comments, includes and decorators, with a fixed name and single spaces.

    It is equal for kernels that differ only in names, comments and spaces.
    """
    if kernel.language == "triton":
        definition = re.search(rf"^[ \t]*def {re.escape(kernel.name)}\(", kernel.source, re.MULTILINE)
        text = _PYTHON_COMMENT.sub("", kernel.source[definition.start() :] if definition else kernel.source)
    else:
        text = _COMMENT.sub("", _INCLUDE.sub("", kernel.source))
    return _SPACE.sub(" ", re.sub(rf"\b{re.escape(kernel.name)}\b", _NAME, text)).strip()


def complete_kernels(
    kernels: Iterable[Kernel], configs: Mapping[str, TritonConfig], directory: Path
) -> tuple[Kernel, ...]:
    """Adds the configuration that each Triton kernel was compiled with, and the hashes of its binary.

    The configuration of a kernel that is not in `configs` is inferred as far as possible.

    Args:
        configs: kernel name -> configuration that Inductor recorded.
        directory: the folder of the kernel binaries.
    """
    return tuple(_complete(k, configs, directory) if k.language == "triton" else k for k in kernels)


def triton_helpers(kernels: Iterable[Kernel], torch_directory: Path) -> str:
    """The source of Inductor's helper functions that the Triton kernels call, from the torch that compiled them."""
    sources = [k.source for k in kernels if k.language == "triton" and k.source]
    path = torch_directory / HELPERS
    return helpers_of(sources, path.read_text()) if sources and path.is_file() else ""


def _complete(kernel: Kernel, configs: Mapping[str, TritonConfig], directory: Path) -> Kernel:
    binary = directory / kernel.cubin
    if kernel.cubin and binary.is_file():
        whole, code = kernel_hashes.hash_binary(binary)
        kernel = replace(kernel, cubin_sha256=whole, code_sha256=code)
    config = configs.get(kernel.name)
    if config is None:
        return infer_config(kernel)
    return replace(
        kernel, config=config.values, global_scratch=config.global_scratch, profile_scratch=config.profile_scratch
    )
