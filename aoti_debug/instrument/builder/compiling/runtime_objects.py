"""Compiles the objects of the runtime, which are cached, and the tables of the launch sites."""

from __future__ import annotations

import contextlib
import gzip
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from aoti_debug.base.errors import ToolchainError
from aoti_debug.base.machine import cache
from aoti_debug.instrument.builder.compiling.site_tables import MANIFEST_PATH_MACRO
from aoti_debug.instrument.builder.compiling.toolchain import RUNTIME, Toolchain, compile_words
from aoti_debug.instrument.frontend.sources import Flags

DEVICES = {"cpu": "device", "cuda": "cuda"}  # the folder of the half of the runtime that is the device's own
INTERPOSER = "interposer"  # the folder of the library that interposes functions of packages without wrapper source
THREADS = "threads"  # the folder of the host that calls a model from several threads
ELEMENTWISE = ("guards", "statistics", "tensors")  # folders of the files that visit elements of tensors
# What every launch passes through at level 3: one unit, so that functions are inlined across its files.
EVERY_LAUNCH = (
    "cuda/device_crash_memory.cpp",
    "crash/breadcrumbs.cpp",
    "journal/journal.cpp",
    "launches/launch_name.cpp",
    "launches/launch_record.cpp",
    "launches/side_streams.cpp",
    "run_life.cpp",
    "runtime.cpp",
    "tensors/tensor_meta.cpp",
)
OPTIMIZE_ELEMENTWISE, OPTIMIZE_OTHERS = "-O3", "-O1"
# Between two launches a driver runs through its own code: each stub of a linkage table would have to be fetched again.
OPTIMIZE_EVERY_LAUNCH = "-O2 -fno-plt"
FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fopenmp",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
)
CPU_UNIT = "cpu"  # the translation unit that is a CPU's own: another device's may take its place
WARNINGS_SUFFIX = ".warnings"  # of the files beside objects that have what the compiler said
SUFFIXES = (".h", ".cpp", ".cu")
DEVICE_KERNELS = Path("cuda/statistics.ptx")  # the text that cuda/statistics_ptx.h embeds; RUNTIME has it packed
_NATIVE = "-march=native"
THIS_MACHINE = Flags("", (), (), (_NATIVE.removeprefix("-"),), (), (), (), ())  # code for the processor of this machine
# Without what the header has for calls: to parse that takes most of the time.
TABLES_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-DAOTI_DEBUG_TABLES_ONLY")


def compile_runtime(toolchain: Toolchain, device: str, flags: Flags) -> list[Path]:
    """Compiles the runtime for a device, unless the cache has it, and returns its objects.

    Raises:
        ToolchainError: it does not compile, or does not support the device.
    """
    if device not in DEVICES:
        raise ToolchainError(f"models for {device} cannot be instrumented", hint="export for cpu or cuda")
    files = [*shared_sources(), *sorted((RUNTIME / DEVICES[device]).glob("*.cpp"))]
    words = [
        *FLAGS,
        *([] if toolchain.compiler.is_clang else ["-fno-gnu-unique"]),
        *_machine_words(flags),
        f"-I{RUNTIME}",
        *([f"-I{path}" for path in flags.include_dirs] if device != "cpu" else []),  # of its toolkit
    ]
    sources = [path for path in sorted(RUNTIME.rglob("*")) if path.is_file() and path.suffix in SUFFIXES]
    texts = [f"{path.relative_to(RUNTIME)}\n{path.read_text()}" for path in sources]
    texts.append(packed_kernels().read_bytes().hex())
    name = toolchain.key(*words, OPTIMIZE_ELEMENTWISE, OPTIMIZE_EVERY_LAUNCH, OPTIMIZE_OTHERS, *EVERY_LAUNCH, *texts)

    def compile_unit(source: Path, text: str, optimize: str) -> None:
        source.write_text(text)
        options = [*optimize.split(), *words, f"-I{source.parent}"]
        toolchain.compile(source, source.with_suffix(".o"), options, source.with_suffix(WARNINGS_SUFFIX))

    def fill(directory: Path) -> None:
        units = _units(files, max(1, toolchain.jobs - 1))
        sources = [directory / f"{name}.cpp" for name in units]
        if device == "cuda":
            unpack_kernels(directory)
        with ThreadPoolExecutor(toolchain.jobs) as pool:
            list(pool.map(compile_unit, sources, *zip(*units.values(), strict=True)))
        if device == "cuda":
            shutil.rmtree(directory / DEVICE_KERNELS.parent)

    return sorted(cache.entry("runtime", name, fill).glob("*.o"))


def packed_kernels() -> Path:
    """Returns the file that has the kernels for CUDA devices, compressed."""
    return RUNTIME / DEVICE_KERNELS.with_name(f"{DEVICE_KERNELS.name}.gz")


def unpack_kernels(directory: Path) -> None:
    """Writes the kernels for CUDA devices into a directory that the runtime is compiled with `-I` of."""
    unpacked = directory / DEVICE_KERNELS
    unpacked.parent.mkdir(exist_ok=True)
    unpacked.write_bytes(gzip.decompress(packed_kernels().read_bytes()))


def shared_sources() -> list[Path]:
    """The C++ files of the runtime that every package has, whatever its device."""
    others = {*DEVICES.values(), INTERPOSER, THREADS}
    return [path for path in sorted(RUNTIME.rglob("*.cpp")) if path.relative_to(RUNTIME).parts[0] not in others]


@contextlib.contextmanager
def compiled_meanwhile(toolchain: Toolchain) -> Iterator[None]:
    """Compiles the runtime for the CPU of this machine beside what is done within, if torch is a build without CUDA.

    It is then almost always what the model needs, before its flags are known. An error is left to `compile_runtime`.
    """
    if toolchain.torch.has_cuda:
        yield
        return
    # An interrupt may come while the pool is waited for, too.
    with toolchain.children.killed_on_error(), ThreadPoolExecutor(1) as pool:
        pool.submit(compile_runtime, toolchain, "cpu", THIS_MACHINE)
        with toolchain.children.killed_on_error():
            yield


def _machine_words(flags: Flags) -> list[str]:
    """The options that choose the instruction set; those beside -march=native name parts of it."""
    words = [word for word in compile_words(replace(flags, include_dirs=())) if word.startswith("-m")]
    return [_NATIVE] if _NATIVE in words else list(dict.fromkeys(words))


def _units(files: Sequence[Path], jobs: int) -> dict[str, tuple[str, str]]:
    """The text and the optimization of each translation unit, by the unit's name; `jobs` of them visit no elements."""
    folders = {path: path.relative_to(RUNTIME).parts[0] for path in files}
    own = [path for path in files if folders[path] == DEVICES["cpu"]]
    every_launch = [path for path in files if str(path.relative_to(RUNTIME)) in EVERY_LAUNCH]
    elementwise = [path for path in files if folders[path] in ELEMENTWISE and path not in every_launch]
    others = [path for path in files if path not in (*own, *elementwise, *every_launch)]
    units = {f"others{number}": (text, OPTIMIZE_OTHERS) for number, text in enumerate(translation_units(others, jobs))}
    for name, paths, optimize in (
        ("elementwise", elementwise, OPTIMIZE_ELEMENTWISE),
        ("launches", every_launch, OPTIMIZE_EVERY_LAUNCH),
        (CPU_UNIT, own, OPTIMIZE_ELEMENTWISE),
    ):
        for text in translation_units(paths, 1):
            units[name] = (text, optimize)
    return units


def translation_units(files: Sequence[Path], count: int) -> list[str]:
    """Texts that include all files: `count` of them, of about equal size. Headers are then parsed once a text."""
    units: list[list[Path]] = [[] for _ in range(min(count, len(files)))]
    for path in sorted(files, key=lambda path: path.stat().st_size, reverse=True):
        min(units, key=lambda unit: sum(member.stat().st_size for member in unit)).append(path)
    return ["".join(f'#include "{path}"\n' for path in sorted(unit)) for unit in units]


def compile_site_tables(toolchain: Toolchain, folder: Path, text: str, manifest_json: str) -> Path:
    """Compiles the text of sites.cpp with the manifest embedded; returns the object.

    Args:
        folder: where the sources and the object are written.

    Raises:
        ToolchainError: it does not compile.
    """
    source, embedded = folder / "sites.cpp", folder / "manifest.json"
    source.write_text(text)
    embedded.write_bytes(manifest_json.encode())
    define = f'-D{MANIFEST_PATH_MACRO}="{embedded}"'
    return toolchain.compile(source, folder / "sites.o", [*TABLES_FLAGS, define, f"-I{RUNTIME}"])
