"""Compiles and links a package's library, as Inductor does for a default package: wrapper at -O1, kernels at -O3.

Objects are compiled in parallel. They and precompiled headers are kept between builds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import cache
from aoti_debug.instrument.builder.compiling import runtime_objects
from aoti_debug.instrument.builder.compiling.toolchain import (
    NO_EXEC_STACK,
    RUNTIME,
    CompileError,
    Toolchain,
    compile_text,
    compile_words,
    include_precompiled,
    link_words,
)
from aoti_debug.instrument.frontend.sources import Flags, Sources, has_code

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
    except CompileError:
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
    except CompileError:
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
        except CompileError:
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


SPLIT_COLD_CODE = "freorder-blocks-and-partition"  # keeps debugging code apart from the code that runs at level 0
EXPORTS = "{ global: AOTInductor*; aoti_debug_end_run; local: *; };\n"


class LibraryCompilation:
    """The compilation of one library from several objects, in parallel.

    Each object starts to compile as soon as it is added; `link` waits for all of them. A context manager: leaving it
    early cancels what has not started, and leaving it by an exception kills what runs.
    """

    def __init__(self, toolchain: Toolchain, sources: Sources, work: Path) -> None:
        self._toolchain = toolchain
        self._sources = sources
        self._work = work
        self._pool = ThreadPoolExecutor(toolchain.jobs)
        self._waiting = ThreadPoolExecutor(1)  # for what waits for jobs of the pool
        self._objects: list[Future[Sequence[Path]]] = []

    def __enter__(self) -> LibraryCompilation:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._toolchain.children.kill()
        self._waiting.shutdown(wait=False, cancel_futures=True)
        self._pool.shutdown(cancel_futures=True)
        self._waiting.shutdown()

    def add_kernels(self) -> Future[Sequence[Path]]:
        """Adds the generated CPU kernels, if there are any and they are not compiled already; returns their objects."""
        flags = self._sources.compile_flags
        if self._sources.original is not None or not has_code(self._sources.kernels):
            return self.add_objects(())
        return self._add(_compile_generated, self._sources.kernels, "kernel", flags)

    def add_objects(self, objects: Sequence[Path]) -> Future[Sequence[Path]]:
        """Adds objects that are compiled already, and returns them."""
        future: Future[Sequence[Path]] = Future()
        future.set_result(objects)
        self._objects.append(future)
        return future

    def add_wrapper(self, text: str) -> None:
        """Adds the wrapper, original or instrumented."""
        words = _generated_words(_wrapper_flags(self._sources))
        arguments = (self._toolchain, self._pool, self._work, text, words)
        self._objects.append(self._waiting.submit(compile_wrapper, *arguments))

    def add_tables(self, text: str, manifest_json: str) -> None:
        """Adds the generated site tables, with the manifest embedded."""
        self._add(_compile_tables, text, manifest_json)

    def add_runtime(self) -> None:
        """Adds the runtime for the model's device."""
        self._add(_runtime_objects)

    def wait(self) -> None:
        """Waits until everything is compiled. Raises ToolchainError like `link`."""
        for future in self._objects:
            future.result()

    def link(self, library: Path) -> None:
        """Links all objects into `library`.

        Raises:
            ToolchainError: something did not compile or link.
        """
        objects = [path for future in self._objects for path in future.result()]
        flags = self._sources.link_flags
        inputs = [str(path) for path in (*objects, *self._sources.objects)]
        original = self._sources.original
        original_words = [] if original is None else _link_original(original, self._work)
        compiler = self._toolchain.compiler
        words = [*inputs, *compile_words(flags), NO_EXEC_STACK, "-o", str(library)]
        words += [*original_words, *link_flags(self._sources)]
        failure = f"{library.name} cannot be linked"
        try:
            self._toolchain.run([compiler.path, *compiler.linker, *words], failure)
        except ToolchainError:
            if not compiler.linker or self._toolchain.children.killed:
                raise
            self._toolchain.run([compiler.path, *words], failure)

    def _add(self, compile_: Callable[..., Sequence[Path]], *arguments: object) -> Future[Sequence[Path]]:
        future = self._pool.submit(compile_, self._toolchain, self._sources, self._work, *arguments)
        self._objects.append(future)
        return future


def _link_original(original: Path, work: Path) -> list[str]:
    """Linker options that resolve kernels and weights, which are not defined here, from the original library.

    Both libraries define the same classes and templates. The version script and -Bsymbolic hide those of the new one
    from the original, so that each library uses its own.
    """
    exports = work / "exports.map"
    exports.write_text(EXPORTS)
    return [
        f"-L{original.parent}",
        f"-l:{original.name}",
        "-Wl,-rpath,$ORIGIN",
        f"-Wl,--version-script={exports}",
        "-Wl,-Bsymbolic",
    ]


def build_plain_library(
    toolchain: Toolchain, sources: Sources, work: Path, library: Path, kernels: Sequence[Path] | None = None
) -> None:
    """Builds the uninstrumented library: as torch would build it from the same sources, with the same flags.

    Args:
        kernels: their objects; None to compile them.

    Raises:
        ToolchainError: something did not compile or link.
    """
    with LibraryCompilation(toolchain, sources, work) as compilation:
        if kernels is None:
            compilation.add_kernels()
        else:
            compilation.add_objects(kernels)
        compilation.add_wrapper(sources.wrapper)
        compilation.link(library)


def kernel_flags(sources: Sources) -> tuple[str, ...]:
    """The flags that the generated kernels are compiled with, without the include directories."""
    flags = sources.compile_flags
    return tuple(compile_words(replace(flags, include_dirs=())))


def link_flags(sources: Sources) -> tuple[str, ...]:
    """The flags and libraries that follow the objects on the linker's command line."""
    return link_words(sources.link_flags)


def _wrapper_flags(sources: Sources) -> Flags:
    flags = _optimize(sources.compile_flags, sources.wrapper_opt)
    return replace(flags, cflags=(*flags.cflags, SPLIT_COLD_CODE))


def _compile_generated(toolchain: Toolchain, _: Sources, work: Path, text: str, name: str, flags: Flags) -> list[Path]:
    words = _generated_words(flags)
    return [compile_text(toolchain, work, text, name, [*include_precompiled(toolchain, text, words), *words])]


def _generated_words(flags: Flags) -> list[str]:
    return [*compile_words(flags), f"-I{RUNTIME}"]


def _compile_tables(toolchain: Toolchain, _: Sources, work: Path, text: str, manifest_json: str) -> list[Path]:
    return [runtime_objects.compile_site_tables(toolchain, work, text, manifest_json)]


def _runtime_objects(toolchain: Toolchain, sources: Sources, _: Path) -> list[Path]:
    return runtime_objects.compile_runtime(toolchain, sources.device, sources.compile_flags)


def _optimize(flags: Flags, level: str) -> Flags:
    """The flags with -O3 replaced by `level`; any other optimization level stays."""
    return replace(flags, cflags=tuple(level if flag == "O3" else flag for flag in flags.cflags))
