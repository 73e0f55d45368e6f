"""Detects packages that another torch than the installed one compiled, and rejects incompatible ones.

A package does not name its torch. Evidence: functions of the C shim that its library needs, headers that its wrapper
includes, and the C++ standard that it was compiled with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.machine.compiler import Compiler, Torch
from aoti_debug.base.native.elf import Library
from aoti_debug.instrument.frontend.sources import Flags, Sources

_INCLUDE = re.compile(r"^#include <(torch/[^>\n]+)>", re.MULTILINE)
_DECLARED = re.compile(r"\b(aoti_\w+)\(")
_EXTERN = re.compile(r'^\s*extern "C" [^;{]*;', re.MULTILINE)
_STANDARD = re.compile(r"std=(?:c|gnu)\+\+(\d\d)")
_DEFAULT = re.compile(r'\bstd_num: str = "c\+\+(\d\d)"')
_CPP_BUILDER = "_inductor/cpp_builder.py"  # below torch's directory
_SHIM = "aoti_"
_LISTED = 5
_NO_CUDA = re.compile(r"fatal error: '?((?:cuda|nvrtc)\w*\.h)'?(?:: No such file| file not found)")
CUDA_HINT = "install the CUDA toolkit, or set CUDA_HOME to its directory"
HINT = "install the torch that compiled it, or build from the exported program"


def check(path: Path, wrapper: str, library: Path | None, torch: Torch) -> None:
    """Checks that the installed torch has the headers and C shim functions that a package needs.

    Args:
        path: file of the package, for the message.
        wrapper: its C++ source.
        library: its compiled library; None if it holds sources.

    Raises:
        ToolchainError: the installed torch lacks some of them.
        ArtifactError: the library is not an ELF file.
    """
    headers = [name for name in dict.fromkeys(_INCLUDE.findall(wrapper)) if not _header(name, torch).exists()]
    functions = [] if library is None else missing_functions(wrapper, library, torch)
    for kind, names in (("headers", headers), ("functions of the C shim", functions)):
        if names:
            raise ToolchainError(
                f"{path} was compiled by another torch than the installed {torch.version}, which lacks {kind} that it "
                f"needs: {_listed(names)}",
                hint=HINT,
            )


def missing_functions(wrapper: str, library: Path, torch: Torch) -> list[str]:
    """The functions of the C shim that a library needs and the installed torch does not have, sorted.

    Functions that the wrapper itself declares belong to a library of the user's operators and are left out.
    """
    declared = {name for text in _EXTERN.findall(wrapper) for name in _DECLARED.findall(text)}
    needed = {name for name in _symbols(library, Library.undefined_symbols) if name.startswith(_SHIM)} - declared
    for shared in sorted((torch.directory / "lib").glob("libtorch_c*.so")):
        needed -= _symbols(shared, partial(Library.defined, symbols=frozenset(needed))) if needed else set()
    return sorted(needed)


def use_installed_standard(flags: Flags, torch: Torch) -> tuple[Flags, str]:
    """Replaces the C++ standard in the flags by that of the installed torch, whose headers may need it.

    Returns:
        The flags, and a note if the package was compiled with another standard, "" otherwise.
    """
    installed = _DEFAULT.search(_text(torch.directory / _CPP_BUILDER))
    compiled = next((match for flag in flags.cflags if (match := _STANDARD.fullmatch(flag))), None)
    if installed is None or compiled is None or installed.group(1) == compiled.group(1):
        return flags, ""
    cflags = tuple(f"std=c++{installed.group(1)}" if flag == compiled.group() else flag for flag in flags.cflags)
    note = (
        f"another torch than the installed {torch.version} compiled it: as C++{compiled.group(1)}, this one compiles "
        f"C++{installed.group(1)}"
    )
    return replace(flags, cflags=cflags), note


def explain_compile_error(error: ToolchainError, sources: Sources, compiler: Compiler, torch: Torch) -> ToolchainError:
    """The error of package sources that do not compile or link here, with the possible reasons added."""
    missing = _NO_CUDA.search(str(error))
    if missing is not None:
        return ToolchainError(f"the package is for a GPU, and there is no {missing[1]} here", hint=CUDA_HINT)
    reason = sources.other_torch or (
        f"a package does not name its torch: it may be another one than the installed {torch.version}"
    )
    package_compiler = Path(sources.compile_flags.compiler).name
    if ("clang" in package_compiler) != compiler.is_clang:
        reason += f"; it was compiled with {package_compiler}, and CXX is {compiler.path} here"
    return ToolchainError(f"{error}\n{reason}", hint=HINT)


def _header(name: str, torch: Torch) -> Path:
    return torch.directory / "include" / name


def _symbols(path: Path, kind: Callable[[Library], frozenset[str]]) -> frozenset[str]:
    try:
        with Library(path) as library:
            return kind(library)
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path.name} is no library: {error}", hint="copy or compile the package again") from error


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _listed(names: Iterable[str]) -> str:
    all_names = list(names)
    more = f" and {len(all_names) - _LISTED} more" if len(all_names) > _LISTED else ""
    return f"{', '.join(all_names[:_LISTED])}{more}"
