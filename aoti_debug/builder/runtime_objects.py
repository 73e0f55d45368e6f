"""Compiles the objects of the runtime, which are cached, and the tables of the launch sites."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from aoti_debug.builder.site_tables import MANIFEST_PATH_MACRO
from aoti_debug.builder.toolchain import Toolchain, compile_words
from aoti_debug.errors import ToolchainError
from aoti_debug.frontend.sources import Flags
from aoti_debug.machine import cache

RUNTIME = Path(__file__).parents[1] / "runtime_shims"
DEVICES = {"cpu": Path("device_cpu.cpp"), "cuda": Path("cuda/device_cuda.cpp")}
FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fvisibility=hidden",
    "-fvisibility-inlines-hidden",
    "-fopenmp",
    "-ffp-contract=off",
)
SUFFIXES = (".h", ".cpp", ".cu", ".ptx")
TABLES_FLAGS = ("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden")
# Macros that are irrelevant to the runtime, which say where the weights are, or that not every way of building defines.
IGNORED_MACROS = ("USE_MMAP_", "NDEBUG")


def compile_runtime(toolchain: Toolchain, device: str, flags: Flags) -> list[Path]:
    """Compiles the runtime for a device, unless the cache has it, and returns its objects.

    Raises:
        ToolchainError: it does not compile, or does not support the device.
    """
    if device not in DEVICES:
        raise ToolchainError(f"models for {device} cannot be instrumented", hint="export for cpu or cuda")
    devices = {RUNTIME / path for path in DEVICES.values()}
    files = [*sorted(set(RUNTIME.glob("*.cpp")) - devices), RUNTIME / DEVICES[device]]
    words = [
        *FLAGS,
        *([] if toolchain.compiler.is_clang else ["-fno-gnu-unique"]),
        *dict.fromkeys(word for word in compile_words(replace(flags, include_dirs=())) if word.startswith("-m")),
        *[f"-D{definition}" for definition in flags.definitions if not definition.strip().startswith(IGNORED_MACROS)],
        f"-I{RUNTIME}",
        *[f"-I{path}" for path in flags.include_dirs],
    ]
    sources = [path for path in sorted(RUNTIME.rglob("*")) if path.is_file() and path.suffix in SUFFIXES]
    texts = [f"{path.relative_to(RUNTIME)}\n{path.read_text()}" for path in sources]
    name = toolchain.key(*words, *texts)

    def fill(directory: Path) -> None:
        with ThreadPoolExecutor(toolchain.jobs) as pool:
            list(pool.map(lambda path: toolchain.compile(path, directory / f"{path.stem}.o", words), files))

    directory = cache.entry("runtime", name, fill)
    return [directory / f"{path.stem}.o" for path in files]


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
