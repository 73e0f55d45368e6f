"""The machine code of a Triton kernel as text: SASS from a disassembler, PTX from the caches of builds."""

from __future__ import annotations

import getpass
import glob
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from aoti_debug.base.errors import ArtifactError, ToolchainError, UsageError
from aoti_debug.base.machine import cache, compiler
from aoti_debug.package.manifest import Kernel
from aoti_debug.package.pt2.trust import TRUST_HINT
from aoti_debug.repro.recorded_launch import kernel_binary
from aoti_debug.runs.rundir.run_directory import RunDir

_NO_FILE_NAME = re.compile(r'[\\/:*?"<>|]')  # the characters that torch replaces in a user's name
_DISASSEMBLERS = (("nvdisasm", ("--print-code", "--print-line-info")), ("cuobjdump", ("--dump-sass",)))
_SECONDS = 120.0


def triton_caches() -> tuple[Path, ...]:
    """The directories of Triton's cache: of builds of this tool, of torch's own builds by device, of other programs."""
    own = os.environ.get("TRITON_CACHE_DIR")
    return (
        cache.directory() / "triton",
        *([Path(own)] if own else []),
        *sorted((_inductor_cache() / "triton").glob("*")),
        Path.home() / ".triton/cache",
    )


def _inductor_cache() -> Path:
    """The directory of Inductor's cache, as torch._inductor.runtime.cache_dir_utils.cache_dir names it."""
    named = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if named:
        return Path(named).absolute()
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user ID without a name
        user = f"uid_{os.getuid()}"
    return Path(tempfile.gettempdir()) / f"torchinductor_{_NO_FILE_NAME.sub('_', user)}"


def sass(run: RunDir, kernel: Kernel, *, trusted: bool) -> str:
    """The instructions of a kernel as a GPU runs them, from the binary in the package.

    Args:
        trusted: start the disassembler on it even if it was not made on this account.

    Raises:
        UsageError: it is no Triton kernel, or was not made on this account.
        ArtifactError: the package has no binary of it any more.
        ToolchainError: no disassembler is installed, or it failed.
    """
    binary = _binary(run, kernel, "--sass")
    if not (trusted or run.is_made_here):
        raise UsageError(
            f"{run.path} was not made on this account; a disassembler would read the machine code of {kernel.name}",
            hint=TRUST_HINT,
        )
    program, options = _disassembler()
    with tempfile.NamedTemporaryFile(prefix="aoti-debug-", suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [str(program), *options, file.name]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ToolchainError(f"{program} did not disassemble {kernel.name}: {error}") from error
    if done.returncode:
        reason = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
        raise ToolchainError(
            f"{program} cannot disassemble {kernel.name}: {reason[0]}",
            hint="a CUDA toolkit of the package's CUDA version, or a newer one, can",
        )
    return done.stdout


def ptx(run: RunDir, kernel: Kernel, caches: Iterable[Path]) -> str:
    """The PTX that a kernel was assembled from. Packages hold machine code only: Triton's cache may still have it.

    Args:
        caches: directories of Triton's cache.

    Raises:
        UsageError: it is no Triton kernel.
        ArtifactError: the package has no binary of it any more, or no cache has the PTX of this binary.
    """
    wanted = hashlib.sha256(_binary(run, kernel, "--ptx")).digest()
    searched = [folder for folder in dict.fromkeys(caches) if folder.is_dir()]
    for folder in searched:
        for path in folder.glob(f"*/{glob.escape(_function(kernel))}.cubin"):
            text = path.with_suffix(".ptx")
            if path.is_file() and text.is_file() and hashlib.sha256(path.read_bytes()).digest() == wanted:
                return text.read_text()
    where = ", ".join(map(str, searched)) or "this machine"
    raise ArtifactError(
        f"the PTX of {kernel.name} is not recorded: packages hold machine code only, and Triton's cache ({where}) has "
        "no such kernel",
        hint="--sass shows the machine code; a build by this user on this machine leaves its PTX there",
    )


def _binary(run: RunDir, kernel: Kernel, option: str) -> bytes:
    if kernel.language != "triton":
        raise UsageError(
            f"{option} is for Triton kernels; {kernel.name} is one in C++",
            hint="--source shows its source; python repro.py --debugger disassembles it",
        )
    binary, reason = kernel_binary(run, kernel)
    if binary is None:
        raise ArtifactError(
            f"the machine code of {kernel.name} is not available: {reason}", hint="run the package again"
        )
    return binary


def _function(kernel: Kernel) -> str:
    """The name of the function in the source, which Triton's files have."""
    return kernel.mangled or kernel.name


def _disassembler() -> tuple[Path, tuple[str, ...]]:
    bundled = compiler.triton_directory()
    for name, options in _DISASSEMBLERS:
        path = compiler.find_program(name) or (bundled / "bin" / name if bundled else None)
        if path is not None and path.is_file():
            return path, options
    raise ToolchainError(
        "neither nvdisasm nor cuobjdump is installed",
        hint="install the CUDA toolkit, or Triton, which contains both",
    )
