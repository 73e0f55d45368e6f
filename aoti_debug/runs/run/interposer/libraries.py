"""Compiles the library that interposes symbols, and the one that records the calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aoti_debug.base.machine import cache
from aoti_debug.instrument.builder.compiling.runtime_directory import RUNTIME
from aoti_debug.instrument.builder.compiling.runtime_objects import INTERPOSER, compile_runtime, compile_site_tables
from aoti_debug.instrument.builder.compiling.toolchain import NO_EXEC_STACK, Toolchain, link_words
from aoti_debug.instrument.frontend.sources import Flags

SOURCES = RUNTIME / INTERPOSER
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
FRONT, RECORDER = "front.so", "recorder.so"


def libraries(
    toolchain: Toolchain, device: str, flags: Flags, generated: Mapping[str, str], manifest_json: str
) -> tuple[Path, Path]:
    """The library with the interposed symbols and the recorder, in this order; cached between runs.

    The objects of what is the same for all packages are compiled once.

    Args:
        flags: header directories, and the libraries that the recorder is linked with.
        generated: "entries.cpp", "table.cpp" and "sites.cpp", by these names.

    Raises:
        ToolchainError: something did not compile or link.
    """
    runtime_objects = compile_runtime(toolchain, device, flags)
    texts = [path.read_text() for path in (*sorted(SOURCES.glob("*")), RUNTIME / "aoti_debug.h")]
    recorder_flags = [*map(str, runtime_objects), "-fopenmp", *link_words(flags)]
    members = {
        FRONT: (("entries.cpp", "entry.cpp", "dispatch.cpp", "table.cpp"), ["-ldl"]),
        RECORDER: (("recorder.cpp", "table.cpp", "sites.cpp"), recorder_flags),
    }

    def compile_to(folder: Path, source: Path) -> Path:
        return toolchain.compile(source, folder / f"{source.stem}.o", [*FLAGS, f"-I{RUNTIME}"])

    def fill_objects(folder: Path) -> None:
        for source in SOURCES.glob("*.cpp"):
            compile_to(folder, source)

    def fill(folder: Path) -> None:
        shared = cache.entry("interposer-objects", toolchain.key(*FLAGS, *texts), fill_objects)
        objects = {f"{path.stem}.cpp": path for path in shared.glob("*.o")}
        for name, text in generated.items():
            (folder / name).write_text(text)
            if name == "sites.cpp":
                objects[name] = compile_site_tables(toolchain, folder, text, manifest_json)
            else:
                objects[name] = compile_to(folder, folder / name)
        for library, (names, link_flags) in members.items():
            command = [
                toolchain.compiler.path,
                "-shared",
                *(str(objects[name]) for name in names),
                *link_flags,
                NO_EXEC_STACK,
            ]
            toolchain.run([*command, "-o", str(folder / library)], f"{library} cannot be linked")

    folder = cache.entry(
        "interposers", toolchain.key(*generated.values(), manifest_json, *texts, *recorder_flags), fill
    )
    return folder / FRONT, folder / RECORDER
