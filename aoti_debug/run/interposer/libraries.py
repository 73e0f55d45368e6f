"""Compiles the library whose symbols a model's library finds first, and the one that records the calls."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from aoti_debug.builder.runtime_objects import RUNTIME, compile_runtime, compile_site_tables
from aoti_debug.builder.toolchain import NO_EXEC_STACK, Toolchain, link_words, run
from aoti_debug.frontend.sources import Flags
from aoti_debug.machine import cache

SOURCES = RUNTIME / "interposer"
FLAGS = ("-std=c++17", "-O2", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden")
FRONT, RECORDER = "front.so", "recorder.so"


def libraries(
    toolchain: Toolchain, device: str, flags: Flags, generated: Mapping[str, str], manifest_json: str
) -> tuple[Path, Path]:
    """Both libraries, the one with the interposed symbols first; kept between runs.

    Args:
        flags: directories of headers, and libraries of the recorder.
        generated: "entries.cpp", "table.cpp" and "sites.cpp", by these names.

    Raises:
        ToolchainError: something did not compile or link.
    """
    objects_of_runtime = compile_runtime(toolchain, device, flags)
    own = sorted(SOURCES.glob("*"))
    texts = [path.read_text() for path in (*own, RUNTIME / "aoti_debug.h")]
    recorder_words = [*map(str, objects_of_runtime), "-fopenmp", *link_words(flags)]
    parts_of = {
        FRONT: (("entries.cpp", "entry.cpp", "dispatch.cpp", "table.cpp"), ["-ldl"]),
        RECORDER: (("recorder.cpp", "table.cpp", "sites.cpp"), recorder_words),
    }

    def fill(folder: Path) -> None:
        objects = {}
        for name, text in generated.items():
            (folder / name).write_text(text)
            if name == "sites.cpp":
                objects[name] = compile_site_tables(toolchain, folder, text, manifest_json)
        for path in (*(folder / name for name in generated if name not in objects), *own):
            if path.suffix == ".cpp":
                words = [*FLAGS, f"-I{RUNTIME}"]
                objects[path.name] = toolchain.compile(path, folder / f"{path.stem}.o", words)
        for library, (names, others) in parts_of.items():
            command = [
                toolchain.compiler.path,
                "-shared",
                *(str(objects[name]) for name in names),
                *others,
                NO_EXEC_STACK,
            ]
            run([*command, "-o", str(folder / library)], f"{library} cannot be linked")

    folder = cache.entry(
        "interposers", toolchain.key(*generated.values(), manifest_json, *texts, *recorder_words), fill
    )
    return folder / FRONT, folder / RECORDER
