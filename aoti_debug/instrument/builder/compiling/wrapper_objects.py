"""Compiles a wrapper in parts, side by side: its model, the library's C functions, the templates of `std::regex`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.instrument.builder.compiling.kept_objects import compile_text, include_precompiled
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


_BASE = "class torch::aot_inductor::AOTInductorModelBase<torch::aot_inductor::AOTInductorModel>;\n"
BASE_DECLARATION, BASE_DEFINITION = f"extern template {_BASE}", f"template {_BASE}"
_FUNCTIONS = re.compile(
    r"^(?:namespace \{\n(?:(?!\} // namespace).*\n)*\} // namespace\n+)?"
    r'extern "C" \{\n(?:(?!\} // extern|extern "C" \{).*\n)*\} // extern "C"\n',
    re.MULTILINE,
)
_CONTAINER = re.compile(r"^#include <torch/csrc/inductor/aoti_runtime/model_container\.h>$", re.MULTILINE)
_MODEL = "#include <torch/csrc/inductor/aoti_runtime/model.h>"
_NAME = re.compile(r"^AOTIRuntimeError (\w+)\(", re.MULTILINE)


@dataclass(frozen=True)
class SplitWrapper:
    """A wrapper as two translation units.

    Attributes:
        interface: the C functions, with what precedes them in the wrapper.
        model: all but the C functions and the container that they call; its lines keep their numbers.
    """

    interface: str
    model: str


def split(wrapper: str) -> SplitWrapper | None:
    """Splits a wrapper, instrumented or not; None where it has other functions than those of a library's interface."""
    found = _FUNCTIONS.search(wrapper)
    if found is None:
        return None
    functions, rest = found.group(), wrapper[found.end() :]
    names = _NAME.findall(functions)
    if "AOTInductorModelContainerRun" not in names or re.search(rf"\b(?:{'|'.join(names)})\b", rest):
        return None
    model = wrapper[: found.start()] + "\n" * functions.count("\n") + rest
    if "ModelContainer" not in rest:
        model = _CONTAINER.sub(_MODEL, model)
    return SplitWrapper(wrapper[: found.end()], model)


def compile_wrapper(toolchain: Toolchain, pool: Executor, work: Path, text: str, words: Sequence[str]) -> list[Path]:
    """Compiles a wrapper, original or instrumented, and returns its objects.

    Args:
        pool: what runs compilers; this function waits for them, and must not be one of its jobs.
        work: the folder of the source and the object that are not kept.
        words: the options.

    Raises:
        ToolchainError: it does not compile.
    """
    wrapper = _Wrapper(toolchain, pool, work, tuple(words), text, split(text))
    if toolchain.compiler.is_clang:
        return wrapper.compile(wrapper.start_header(""), "")
    header = wrapper.start_header(DECLARATIONS)
    templates = pool.submit(compile_templates, toolchain, words)
    try:
        objects = wrapper.compile(header, DECLARATIONS)
    except ToolchainError:
        if toolchain.children.killed or templates.result() is not None:
            raise
    else:
        compiled = templates.result()
        if compiled is not None:
            return [*objects, compiled]
    return wrapper.compile(wrapper.start_header(""), "")


@dataclass(frozen=True)
class _Wrapper:
    """A wrapper that is compiled; `parts` is None where its C functions cannot be taken out."""

    toolchain: Toolchain
    pool: Executor
    work: Path
    words: tuple[str, ...]
    text: str
    parts: SplitWrapper | None

    def start_header(self, before: str, base: str = BASE_DECLARATION) -> Future[list[str]]:
        """Begins to precompile the headers; the result is the option that includes them."""
        if self.parts is None:
            return self.pool.submit(include_precompiled, self.toolchain, self.text, self.words, before)
        return self.pool.submit(include_precompiled, self.toolchain, self.parts.model, self.words, before, base)

    def compile(self, header: Future[list[str]], before: str) -> list[Path]:
        """The objects; where this torch has another base class of models, that is not compiled apart."""
        if self.parts is None:
            return [self._start(self.text, header.result()).result()]
        model = None
        try:
            included = header.result()
            model = self._start(self.parts.model, included)
            interface = self._start(self.parts.interface + BASE_DEFINITION, included, "interface").result()
        except ToolchainError:
            if self.toolchain.children.killed:
                raise
            if model is not None:
                model.exception()  # it writes no files any more when this returns
            included = self.start_header(before, base="").result()
            model = self._start(self.parts.model, included)
            interface = self._start(self.parts.interface, included, "interface").result()
        return [model.result(), interface]

    def _start(self, text: str, included: Sequence[str], name: str = "wrapper") -> Future[Path]:
        return self.pool.submit(compile_text, self.toolchain, self.work, text, name, [*included, *self.words])
