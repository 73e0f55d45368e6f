"""Compiles a wrapper in parts, side by side: its model, the library's C functions, the templates of `std::regex`."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from pathlib import Path

from aoti_debug.builder.compiling import library_interface, precompiled_headers
from aoti_debug.builder.compiling.library_interface import BASE_DECLARATION, BASE_DEFINITION, SplitWrapper
from aoti_debug.builder.compiling.regex_templates import DECLARATIONS, compile_templates
from aoti_debug.builder.compiling.toolchain import Toolchain
from aoti_debug.errors import ToolchainError
from aoti_debug.lazy.dataclass import dataclass
from aoti_debug.machine import cache


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


def compile_text(toolchain: Toolchain, work: Path, text: str, name: str, words: Sequence[str]) -> Path:
    """Compiles a text as `name`.cpp in a folder, and returns the object. Raises ToolchainError."""
    source = work / f"{name}.cpp"
    source.write_text(text)
    return toolchain.compile(source, work / f"{name}.o", words)


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
            interface = self._start_interface(self.parts.interface + BASE_DEFINITION, included).result()
        except ToolchainError:
            if self.toolchain.children.killed:
                raise
            if model is not None:
                model.exception()  # it writes no files any more when this returns
            included = self.start_header(before, base="").result()
            model = self._start(self.parts.model, included)
            interface = self._start_interface(self.parts.interface, included).result()
        return [model.result(), interface]

    def _start(self, text: str, included: Sequence[str]) -> Future[Path]:
        words = [*included, *self.words]
        return self.pool.submit(compile_text, self.toolchain, self.work, text, "wrapper", words)

    def _start_interface(self, text: str, included: Sequence[str]) -> Future[Path]:
        return self.pool.submit(_compile_interface, self.toolchain, text, [*included, *self.words])


def _compile_interface(toolchain: Toolchain, text: str, words: Sequence[str]) -> Path:
    """The object with a library's C functions, which is kept: they are the same in every library."""

    def fill(directory: Path) -> None:
        compile_text(toolchain, directory, text, "interface", words)

    return cache.entry("interfaces", toolchain.key(text, *words), fill) / "interface.o"
