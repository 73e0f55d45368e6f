"""Names of C++ functions: demangled, and short ones for people."""

from __future__ import annotations

import ctypes
import re
from functools import cache

from aoti_debug.base import wording

_NAME_WIDTH = 110  # characters


def demangle(name: str) -> str:
    """Returns a mangled C++ name as it is written in the source; any other name unchanged."""
    base, dot, clone = name.partition(".")
    runtime = _cxx_runtime()
    if not base.startswith("_Z") or runtime is None:
        return name
    status = ctypes.c_int()
    address = runtime.__cxa_demangle(base.encode(), None, None, ctypes.byref(status))
    if not address:
        return name
    text = ctypes.string_at(address).decode("utf-8", errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(address))
    return f"{text} [{clone}]" if dot else text


@cache
def _cxx_runtime() -> ctypes.CDLL | None:
    for name in ("libstdc++.so.6", "libc++abi.so.1"):
        try:
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.__cxa_demangle.restype = ctypes.c_void_p
        return library
    return None


def short_name(function: str) -> str:
    """Returns a demangled name without parameters, template arguments and clone suffixes: "at::native::foo"."""
    name = re.sub(r" \[[^\]]*\]$", "", function)
    name = re.sub(r"\.(?:constprop|isra|part|cold|lto_priv|_omp_fn)\b.*$", "", name)
    name = name.replace("(anonymous namespace)", "{anonymous}").replace("operator()", "operator{call}")
    name = re.sub(r"operator(<<?=?|>>?=?|->\*?)", _escaped_operator, name)
    name = _without_brackets(name)
    name = re.sub(r"\s+(?:const|&&?|noexcept|volatile)(?=$|::)", "", name).strip()
    name = name.rpartition(" ")[2] if " " in name and "operator " not in name else name
    name = name.replace("{anonymous}::", "").replace("{call}", "()").replace("{lt}", "<").replace("{gt}", ">")
    return wording.truncated(name, _NAME_WIDTH)


def _escaped_operator(match: re.Match[str]) -> str:
    return "operator" + match.group(1).replace("<", "{lt}").replace(">", "{gt}")


def _without_brackets(name: str) -> str:
    """Removes everything inside (…) and <…>."""
    outside: list[str] = []
    depth = 0
    for character in name:
        if character in "(<":
            depth += 1
        elif character in ")>" and depth:
            depth -= 1
        elif not depth:
            outside.append(character)
    return "".join(outside)
