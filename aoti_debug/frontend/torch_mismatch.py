"""Packages that another torch than the installed one has compiled: what can be known of it, and whether they will do.

A package does not name its torch. What tells: functions of the C shim that its library needs, headers that its wrapper
includes, and the C++ standard that it was compiled with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from aoti_debug.errors import ArtifactError, ToolchainError
from aoti_debug.frontend.sources import Flags, Sources
from aoti_debug.machine.compiler import Compiler, Torch
from aoti_debug.native.elf import Library

_INCLUDE = re.compile(r"^#include <(torch/[^>\n]+)>", re.MULTILINE)
_DECLARED = re.compile(r"\b(aoti_\w+)\(")
_EXTERN = re.compile(r'^\s*extern "C" [^;{]*;', re.MULTILINE)
_STANDARD = re.compile(r"std=(?:c|gnu)\+\+(\d\d)")
_DEFAULT = re.compile(r'\bstd_num: str = "c\+\+(\d\d)"')
_BUILDER = "_inductor/cpp_builder.py"  # below torch's directory
_SHIM = "aoti_"
_LISTED = 5
HINT = "install the torch that compiled it, or build from the exported program"


def check(path: Path, wrapper: str, library: Path | None, torch: Torch) -> None:
    """
    Args:
        path: of the package, for the message.
        library: the package's; None where it holds sources.

    Raises:
        ToolchainError: the installed torch lacks what the package needs.
        ArtifactError: the library is none.
    """
    headers = [name for name in dict.fromkeys(_INCLUDE.findall(wrapper)) if not _header(name, torch).exists()]
    functions = [] if library is None else missing_functions(wrapper, library, torch)
    for what, names in (("headers", headers), ("functions of the C shim", functions)):
        if names:
            raise ToolchainError(
                f"{path} was compiled by another torch than the installed {torch.version}, which lacks {what} that it "
                f"needs: {_listed(names)}",
                hint=HINT,
            )


def missing_functions(wrapper: str, library: Path, torch: Torch) -> list[str]:
    """The functions of the C shim that a library takes from torch and that this torch does not have, sorted.

    What the wrapper declares itself belongs to a library of the user's operators.
    """
    own = {name for text in _EXTERN.findall(wrapper) for name in _DECLARED.findall(text)}
    needed = {name for name in _symbols(library, Library.undefined_symbols) if name.startswith(_SHIM)} - own
    for shared in sorted((torch.directory / "lib").glob("libtorch_c*.so")):
        needed -= _symbols(shared, Library.exported_symbols) if needed else set()
    return sorted(needed)


def with_standard(flags: Flags, torch: Torch) -> tuple[Flags, str]:
    """Flags with the C++ standard that the installed torch compiles with, since its headers may want it; and, where
    the package's was another one, the sentence that says so."""
    here = _DEFAULT.search(_text(torch.directory / _BUILDER))
    there = next((match for flag in flags.cflags if (match := _STANDARD.fullmatch(flag))), None)
    if here is None or there is None or here.group(1) == there.group(1):
        return flags, ""
    cflags = tuple(f"std=c++{here.group(1)}" if flag == there.group() else flag for flag in flags.cflags)
    note = (
        f"another torch than the installed {torch.version} compiled it: as C++{there.group(1)}, this one compiles "
        f"C++{here.group(1)}"
    )
    return replace(flags, cflags=cflags), note


def explained(error: ToolchainError, sources: Sources, compiler: Compiler, torch: Torch) -> ToolchainError:
    """The error of sources from a package that do not compile or link here, with what may be the reason."""
    known = sources.other_torch or (
        f"a package does not name its torch: it may be another one than the installed {torch.version}"
    )
    theirs = Path(sources.compile_flags.compiler).name
    if ("clang" in theirs) != compiler.is_clang:
        known += f"; it was compiled with {theirs}, and CXX is {compiler.path} here"
    return ToolchainError(f"{error}\n{known}", hint=HINT)


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
    found = list(names)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return f"{', '.join(found[:_LISTED])}{more}"
