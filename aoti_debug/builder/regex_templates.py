"""Compiles the templates of `std::regex` once, for all wrappers.

AOTInductor's headers use a regular expression, which takes a large part of the time that a wrapper compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aoti_debug.builder.toolchain import Toolchain
from aoti_debug.errors import ToolchainError
from aoti_debug.machine import cache

_TEMPLATES = (
    "class std::basic_regex<char>",
    "class std::__detail::_Compiler<std::regex_traits<char>>",
    "bool std::regex_match(const std::string&, std::smatch&, const std::regex&, std::regex_constants::match_flag_type)",
)
_RELEVANT = ("-O", "-f", "-std=", "-stdlib=", "-D_GLIBCXX", "-I")
_INCLUDES = "#include <regex>\n#include <string>\n"
DECLARATIONS = _INCLUDES + "".join(f"extern template {name};\n" for name in _TEMPLATES)
DEFINITIONS = _INCLUDES + "".join(f"template {name};\n" for name in _TEMPLATES)


def compile_templates(toolchain: Toolchain, words: Sequence[str]) -> Path | None:
    """Returns the object with the templates that DECLARATIONS declares, for a wrapper with these flags.

    None where the C++ library has other templates; only libstdc++ has these.

    Args:
        words: the wrapper's; those that the templates depend on are used.
    """
    if toolchain.compiler.is_clang:
        return None
    relevant = [word for word in words if word.startswith(_RELEVANT)]

    def fill(directory: Path) -> None:
        source = directory / "regex.cpp"
        source.write_text(DEFINITIONS)
        toolchain.compile(source, directory / "regex.o", relevant)

    try:
        return cache.entry("regex", toolchain.key(DEFINITIONS, *relevant), fill) / "regex.o"
    except ToolchainError:
        return None
