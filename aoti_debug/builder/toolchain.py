"""Compiles and links a package's library, as Inductor does for a default package: wrapper at -O1, kernels at -O3.

Objects are compiled in parallel. Precompiled headers and the objects of our runtime are kept between builds.
"""

from __future__ import annotations

import mmap
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from aoti_debug.builder.instrument import MANIFEST_PATH_MACRO
from aoti_debug.errors import ToolchainError
from aoti_debug.frontend.sources import Flags, Sources, has_code
from aoti_debug.machine import cache
from aoti_debug.machine.compiler import Compiler, Torch

RUNTIME = Path(__file__).parents[1] / "runtime_shims"
RUNTIME_DEVICES = {"cpu": Path("device_cpu.cpp"), "cuda": Path("cuda/device_cuda.cpp")}
RUNTIME_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fopenmp",
    "-ffp-contract=off",
)
RUNTIME_SUFFIXES = (".h", ".cpp", ".cu", ".ptx")
COLD_APART = "freorder-blocks-and-partition"  # what a level does lies apart from the code that runs at level 0
INTERPOSER = "interposer"  # below RUNTIME
INTERPOSER_FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
FRONT, RECORDER = "front.so", "recorder.so"
TABLES_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden")
LEADING_INCLUDES = re.compile(r"(?:\s*(?:#include\s*<[^>\n]*>[^\n]*|//[^\n]*))*")
INCLUDE = re.compile(r"^\s*(#include\s*<[^>\n]*>)", re.MULTILINE)
# The weights' object does not say that it needs no executable stack, and a stack that is executable may not be loaded.
STACK = "-Wl,-z,noexecstack"
EXPORTS = "{ global: AOTInductor*; local: *; };\n"
WEIGHTS = "USE_MMAP_"  # definitions that say where the weights are: nothing to the runtime
ERROR_LINES = 20
LINE_WIDTH = 300


@dataclass(frozen=True)
class Toolchain:
    """What compiles: a compiler that was checked, for a torch, in at most `jobs` processes at once."""

    compiler: Compiler
    torch: Torch
    jobs: int = max(2, os.cpu_count() or 2)


class Compilation:
    """The objects of one library while they are being compiled.

    Compilation of each starts as soon as it is added; `link` waits for all of them. A context manager: leaving it early
    drops what has not started.
    """

    def __init__(self, toolchain: Toolchain, sources: Sources, work: Path) -> None:
        self._toolchain = toolchain
        self._sources = sources
        self._work = work
        self._pool = ThreadPoolExecutor(toolchain.jobs)
        self._objects: list[Future[Sequence[Path]]] = []

    def __enter__(self) -> Compilation:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def add_kernels(self) -> None:
        """The generated CPU kernels, if there are any and they are not compiled already."""
        flags = self._sources.compile_flags
        if self._sources.original is None and has_code(self._sources.kernels):
            self._add(_compile_generated, self._sources.kernels, "kernel", flags)

    def add_wrapper(self, text: str) -> None:
        """The wrapper: as it was generated, or instrumented."""
        flags = _optimize(self._sources.compile_flags, self._sources.wrapper_opt)
        flags = replace(flags, cflags=(*flags.cflags, COLD_APART))
        self._add(_compile_generated, text, "wrapper", flags)

    def add_tables(self, text: str, manifest_json: str) -> None:
        """The generated site tables, with the manifest embedded."""
        self._add(_compile_tables, text, manifest_json)

    def add_runtime(self) -> None:
        """The runtime for the model's device."""
        self._add(_runtime_objects)

    def wait(self) -> None:
        """Waits until everything is compiled. Raises ToolchainError as `link`."""
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
        adopted = _adopt(self._sources.original, self._work) if self._sources.original is not None else []
        command = [self._toolchain.compiler.path, *inputs, *_compile_words(flags), STACK, "-o", str(library)]
        _run([*command, *adopted, *link_flags(self._sources)], f"{library.name} cannot be linked")
        if self._sources.mapped_weights is not None:
            _append_weights(library, self._sources.mapped_weights)

    def _add(self, compile_: Callable[..., Sequence[Path]], *arguments: object) -> None:
        self._objects.append(self._pool.submit(compile_, self._toolchain, self._sources, self._work, *arguments))


def _adopt(original: Path, work: Path) -> list[str]:
    """Linker words that take what is not defined here, kernels and weights, from a compiled library.

    Both libraries define the same classes and templates. What this one does not export, the other one cannot get hold
    of: each keeps to its own.
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


def link_plain(toolchain: Toolchain, sources: Sources, work: Path, library: Path) -> None:
    """Builds the plain twin: the library as torch would build it from the same sources.

    Raises:
        ToolchainError: something did not compile or link.
    """
    with Compilation(toolchain, sources, work) as compilation:
        compilation.add_kernels()
        compilation.add_wrapper(sources.wrapper)
        compilation.link(library)


def interposer(
    toolchain: Toolchain, device: str, flags: Flags, generated: Mapping[str, str], manifest_json: str
) -> tuple[Path, Path]:
    """The library that stands in front of what a model calls, and the one that records it; kept between runs.

    Args:
        flags: directories of headers, and libraries of the recorder.
        generated: "entries.cpp", "table.cpp" and "sites.cpp", by these names.

    Raises:
        ToolchainError: something did not compile or link.
    """
    runtime = runtime_objects(toolchain, device, flags)
    own = sorted((RUNTIME / INTERPOSER).glob("*"))
    texts = [path.read_text() for path in (*own, RUNTIME / "aoti_debug.h")]
    recorder_words = [*map(str, runtime), "-fopenmp", *link_words(flags)]
    parts_of = {
        FRONT: (("entries.cpp", "entry.cpp", "dispatch.cpp", "table.cpp"), ["-ldl"]),
        RECORDER: (("recorder.cpp", "table.cpp", "sites.cpp"), recorder_words),
    }

    def fill(folder: Path) -> None:
        objects = {}
        for name, text in generated.items():
            (folder / name).write_text(text)
            if name == "sites.cpp":
                (objects[name],) = _compile_tables_in(toolchain, folder, text, manifest_json)
        for path in (*(folder / name for name in generated if name not in objects), *own):
            if path.suffix == ".cpp":
                words = [*INTERPOSER_FLAGS, f"-I{RUNTIME}"]
                objects[path.name] = _compile(toolchain, path, folder / f"{path.stem}.o", words)
        for library, (names, others) in parts_of.items():
            command = [toolchain.compiler.path, "-shared", *(str(objects[name]) for name in names), *others, STACK]
            _run([*command, "-o", str(folder / library)], f"{library} cannot be linked")

    folder = cache.entry(
        "interposers", _key(toolchain, *generated.values(), manifest_json, *texts, *recorder_words), fill
    )
    return folder / FRONT, folder / RECORDER


def kernel_flags(sources: Sources) -> tuple[str, ...]:
    """The flags that the generated kernels are compiled with, without the include directories."""
    flags = sources.compile_flags
    return tuple(_compile_words(replace(flags, include_dirs=())))


def link_flags(sources: Sources) -> tuple[str, ...]:
    """The flags and libraries that follow the objects on the linker's command line."""
    return link_words(sources.link_flags)


def link_words(flags: Flags) -> tuple[str, ...]:
    """Flags of a linker as words."""
    return (
        *[word for flag in flags.ldflags for word in shlex.split(f"-{flag}")],
        *[f"-l{name}" for name in flags.libraries],
        *[f"-L{path}" for path in flags.libraries_dirs],
    )


def _compile_generated(
    toolchain: Toolchain, sources: Sources, work: Path, text: str, name: str, flags: Flags
) -> list[Path]:
    words = [*_compile_words(flags), f"-I{RUNTIME}"]
    header = _precompiled_header(toolchain, text, words)
    source = work / f"{name}.cpp"
    source.write_text(text)
    include = ["-include", str(header)] if header else []
    return [_compile(toolchain, source, work / f"{name}.o", [*include, *words])]


def _compile_tables(toolchain: Toolchain, sources: Sources, work: Path, text: str, manifest_json: str) -> list[Path]:
    del sources
    return _compile_tables_in(toolchain, work, text, manifest_json)


def _compile_tables_in(toolchain: Toolchain, work: Path, text: str, manifest_json: str) -> list[Path]:
    source, embedded = work / "sites.cpp", work / "manifest.json"
    source.write_text(text)
    embedded.write_bytes(manifest_json.encode())
    define = f'-D{MANIFEST_PATH_MACRO}="{embedded}"'
    return [_compile(toolchain, source, work / "sites.o", [*TABLES_FLAGS, define, f"-I{RUNTIME}"])]


def _runtime_objects(toolchain: Toolchain, sources: Sources, work: Path) -> list[Path]:
    del work
    return runtime_objects(toolchain, sources.device, sources.compile_flags)


def runtime_objects(toolchain: Toolchain, device: str, flags: Flags) -> list[Path]:
    """The objects of the runtime, compiled unless the cache has them.

    Raises:
        ToolchainError: they do not compile, or there are none for the device.
    """
    if device not in RUNTIME_DEVICES:
        raise ToolchainError(f"models for {device} cannot be instrumented", hint="export for cpu or cuda")
    devices = {RUNTIME / path for path in RUNTIME_DEVICES.values()}
    files = [*sorted(set(RUNTIME.glob("*.cpp")) - devices), RUNTIME / RUNTIME_DEVICES[device]]
    words = [
        *RUNTIME_FLAGS,
        *([] if toolchain.compiler.is_clang else ["-fno-gnu-unique"]),
        *[f"-{flag}" for flag in flags.cflags if flag.startswith(("march=", "mcpu="))],
        *flags.passthrough,
        *[f"-D{definition}" for definition in flags.definitions if not definition.strip().startswith(WEIGHTS)],
        f"-I{RUNTIME}",
        *[f"-I{path}" for path in flags.include_dirs],
    ]
    contents = [path for path in sorted(RUNTIME.rglob("*")) if path.is_file() and path.suffix in RUNTIME_SUFFIXES]
    texts = [f"{path.relative_to(RUNTIME)}\n{path.read_text()}" for path in contents]
    name = _key(toolchain, *words, *texts)

    def fill(directory: Path) -> None:
        with ThreadPoolExecutor(toolchain.jobs) as pool:
            list(pool.map(lambda path: _compile(toolchain, path, directory / f"{path.stem}.o", words), files))

    directory = cache.entry("runtime", name, fill)
    return [directory / f"{path.stem}.o" for path in files]


def _precompiled_header(toolchain: Toolchain, text: str, words: list[str]) -> Path | None:
    """A header that precompiles the includes that `text` begins with; None where it begins with none."""
    leading = LEADING_INCLUDES.match(text)
    includes = INCLUDE.findall(leading.group()) if leading else []
    if not includes:
        return None
    header = "".join(f"{line}\n" for line in includes)

    def fill(directory: Path) -> None:
        path = directory / "leading.h"
        path.write_text(header)
        output = directory / f"leading.h{toolchain.compiler.header_suffix}"
        command = [toolchain.compiler.path, "-x", "c++-header", str(path), *words, "-o", str(output)]
        _run(command, "the headers of torch cannot be precompiled")

    return cache.entry("headers", _key(toolchain, header, *words), fill) / "leading.h"


def _key(toolchain: Toolchain, *parts: str) -> str:
    compiler = toolchain.compiler
    return cache.key(compiler.path, compiler.version, toolchain.torch.fingerprint, *parts)


def _compile(toolchain: Toolchain, source: Path, output: Path, words: Sequence[str]) -> Path:
    _run([toolchain.compiler.path, "-c", str(source), *words, "-o", str(output)], f"{source.name} does not compile")
    return output


def _compile_words(flags: Flags) -> list[str]:
    """Definitions, flags and include directories in the order of Inductor's own command lines."""
    return [
        *[f"-D{definition}" for definition in flags.definitions],
        *[word for flag in flags.cflags for word in shlex.split(f"-{flag}")],
        *[f"-I{path}" for path in flags.include_dirs],
        *flags.passthrough,
    ]


def _optimize(flags: Flags, level: str) -> Flags:
    """The flags with -O3 replaced by `level`; what a debug build asked for stays."""
    return replace(flags, cflags=tuple(level if flag == "O3" else flag for flag in flags.cflags))


def _run(command: list[str], failed: str) -> None:
    try:
        ran = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise ToolchainError(
            f"{failed}: {command[0]}: {error.strerror}", hint="set CXX to a working compiler"
        ) from error
    if ran.returncode != 0:
        log = cache.keep_log("compile", f"{shlex.join(command)}\n\n{ran.stdout}{ran.stderr}")
        lines = [line[:LINE_WIDTH] for line in ran.stderr.strip().splitlines()[:ERROR_LINES]]
        raise ToolchainError(
            "\n".join([f"{failed} (exit code {ran.returncode})", *lines, f"log: {log}"]),
            hint="keep the generated C++ with --keep-sources DIR to look at it",
        )


def _append_weights(library: Path, weights: Path) -> None:
    """Puts weights behind the library, page aligned, where a model that maps its weights looks for them."""
    page = max(16384, mmap.PAGESIZE)
    with library.open("ab") as out, weights.open("rb") as data:
        out.write(b" " * (page - out.tell() % page))
        shutil.copyfileobj(data, out, 1 << 20)
