"""Machine code of edited Triton kernels, for held_out.py."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from aoti_debug.package.manifest import Kernel
from aoti_debug.repro.templates.triton_kernel import TritonKernel, compile_kernel
from aoti_debug.repro.triton_source import TritonSource, specialisation, standalone_source


def compiled(kernel: Kernel, source: str, helpers: str, folder: Path) -> bytes:
    """Compiles another source of a kernel with the kernel's configuration, for the current CUDA device.

    Args:
        source: as Inductor writes it, with decorators.
        helpers: Inductor's helper functions.
        folder: for the module that the source is imported from.

    Raises:
        ValueError: the machine code has another name or needs another launch than that of the kernel.
        SystemExit: Triton refuses the source.
    """
    edited = replace(kernel, source=source)
    text = standalone_source(source, helpers)
    spec = specialisation(edited)
    module = _module(text, folder)
    names: dict[str, Any] = vars(module)
    made = compile_kernel(
        TritonKernel(
            getattr(module, text.function),
            signature=spec.signature,
            constants={name: eval(value, names) for name, value in spec.constants.items()},
            divisible=spec.divisible,
            grid=(1, 1, 1),
            num_warps=kernel.num_warps,
            num_stages=spec.num_stages or 0,
            options={name: eval(value, names) for name, value in spec.options.items()},
        ),
        capability=int("".join(map(str, torch.cuda.get_device_capability()))),
    )
    launch = (made.name, made.num_warps, made.scratch_bytes)
    recorded = (kernel.mangled, kernel.num_warps, (kernel.global_scratch, kernel.profile_scratch))
    if launch != recorded or made.shared_bytes > kernel.shared_bytes:
        raise ValueError(f"launched as {launch}, {made.shared_bytes} shared bytes: the kernel was as {recorded}")
    return made.code


def _module(source: TritonSource, folder: Path) -> ModuleType:
    name = f"edited_{len(sys.modules)}"
    moved = [f"from aoti_debug.repro.templates.compile_time import {n}" for n in source.compile_time]
    path = folder / f"{name}.py"
    path.write_text("\n".join([*source.imports, *moved, "", source.text, ""]))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
