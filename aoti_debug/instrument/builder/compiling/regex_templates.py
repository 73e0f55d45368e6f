"""Compiles the templates of `std::regex` once, for all wrappers.

AOTInductor's headers use a regular expression, which takes a large part of the time that a wrapper compiles.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine import cache
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain

_INCLUDES = "#include <regex>\n#include <string>\n"
# Explicit specializations without a body: a declaration `extern template` would leave out no inline function.
DECLARATIONS = f"""{_INCLUDES}namespace std {{
template <> basic_regex<char>::basic_regex(const char*, flag_type);
template <> basic_regex<char>::~basic_regex();
template <> bool regex_match(const string&, smatch&, const regex&, regex_constants::match_flag_type);
}}
"""
DEFINITIONS = f"""{_INCLUDES}template class std::basic_regex<char>;
template bool std::regex_match(
    const std::string&, std::smatch&, const std::regex&, std::regex_constants::match_flag_type);
"""
_USE = f"""{DECLARATIONS}
bool matches(const std::string& text, std::smatch& found) {{ return std::regex_match(text, found, std::regex("a")); }}
"""
_RELEVANT = ("-O", "-f", "-std=", "-stdlib=", "-D_GLIBCXX", "-I")


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
        objects = []
        for name, text in (("regex", DEFINITIONS), ("use", _USE)):
            source = directory / f"{name}.cpp"
            source.write_text(text)
            objects.append(str(toolchain.compile(source, directory / f"{name}.o", relevant)))
        library = ["-shared", "-Wl,-z,defs", *objects, "-o", str(directory / "use.so")]
        toolchain.run([toolchain.compiler.path, *library], "templates of std::regex are not in their object")

    try:
        return cache.entry("regex", toolchain.key(DECLARATIONS, DEFINITIONS, *relevant), fill) / "regex.o"
    except ToolchainError:
        return None
