"""Compiles a wrapper in parts, side by side: its model, the library's C functions, the templates of `std::regex`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.instrument.builder.compiling import library_interface, precompiled_headers
from aoti_debug.instrument.builder.compiling.compiled_objects import compile_text
from aoti_debug.instrument.builder.compiling.library_interface import BASE_DECLARATION, BASE_DEFINITION, SplitWrapper
from aoti_debug.instrument.builder.compiling.regex_templates import DECLARATIONS, compile_templates
from aoti_debug.instrument.builder.compiling.toolchain import Toolchain


def compile_wrapper(toolchain: Toolchain, pool: Executor, work: Path, text: str, words: Sequence[str]) -> list[Path]:
    """Compiles a wrapper, original or instrumented, and returns its objects.

    Args:
        pool: what runs compilers; this function waits for them, and must not be one of its jobs.
        work: the folder of the source and the object that are not kept.
        words: the options.

    Raises:
        ToolchainError: it does not compile.
    """
    wrapper = _Wrapper(toolchain, pool, work, tuple(words), text, library_interface.split(text))
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


def include_precompiled(
    toolchain: Toolchain, text: str, words: Sequence[str], before: str = "", after: str = ""
) -> list[str]:
    """The option that includes what `text` begins to include, precompiled; none without includes.

    Args:
        before, after: declarations before and after it.

    Raises:
        ToolchainError: the headers do not compile.
    """
    includes = precompiled_headers.worth_precompiling(precompiled_headers.leading_includes(text))
    if not includes:
        return []
    header = before + precompiled_headers.text_of(includes) + after
    return ["-include", str(precompiled_headers.precompile(toolchain, header, words))]


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
