"""Remembers which vector instruction sets work with this compiler, torch and CPU.

torch finds that out by compiling a test library for each and loading it in a process of its own, in every lowering
anew; torch 2.11 even imports torch in each of these processes. The answers are kept in Inductor's cache.
"""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aoti_debug.base.machine.compiler import this_processor


@contextmanager
def remembered(folder: Path) -> Iterator[None]:
    """Within it, an instruction set that has worked is not tried again.

    Args:
        folder: Inductor's cache; the answers are files in folders with names of two letters, as Inductor's own are.
    """
    from torch._inductor import cpu_vec_isa

    tries = getattr(cpu_vec_isa.VecISA, "check_build", None)
    if tries is None:  # another torch finds it out in another way
        yield
        return
    cpu_vec_isa.VecISA.check_build = _remembering(tries, folder)
    try:
        yield
    finally:
        cpu_vec_isa.VecISA.check_build = tries


def _remembering(tries: Callable[[Any, str], bool], folder: Path) -> Callable[[Any, str], bool]:
    def check_build(isa: Any, code: str) -> bool:
        answer = _answer(folder, str(isa), isa.build_arch_flags(), code)
        if answer.exists():
            return True
        works = tries(isa, code)
        if works:
            answer.parent.mkdir(exist_ok=True)
            answer.touch()
        return works

    return check_build


def _answer(folder: Path, *parts: str) -> Path:
    """The file that says that a test library has been compiled and loaded here."""
    import torch
    from torch._inductor.cpp_builder import get_compiler_version_info, get_cpp_compiler

    compiler = get_cpp_compiler()
    everything = [*parts, torch.__version__, compiler, get_compiler_version_info(compiler), _cpu()]
    name = hashlib.sha256("\0".join(everything).encode()).hexdigest()
    return folder / name[:2] / f"{name}.isa"


def _cpu() -> str:
    """The model and the features of the CPU."""
    processor = this_processor()
    limited = os.environ.get("ATEN_CPU_CAPABILITY", "")
    return "\n".join([platform.machine(), limited, processor.name, *sorted(processor.features)])
