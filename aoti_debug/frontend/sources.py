"""What a package is compiled from: the files of a `package_cpp_only` archive, unpacked, with its flags parsed."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from aoti_debug.errors import ArtifactError, ToolchainError
from aoti_debug.machine import json_data

T = TypeVar("T")

END_OF_WRAPPER = re.compile(r"^\} // namespace torch::aot_inductor[^\n]*\n", re.MULTILINE)
COMPILE_FLAGS = "_compile_flags.json"
COMMANDS = re.compile(r"\n// (?:Compile|Link) cmd\n// [^\n]*")


@dataclass(frozen=True)
class Flags:
    """A compiler command line as Inductor's `*_flags.json` holds it: without dashes, in Inductor's order."""

    compiler: str
    definitions: tuple[str, ...]
    include_dirs: tuple[str, ...]
    cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    libraries_dirs: tuple[str, ...]
    libraries: tuple[str, ...]
    passthrough: tuple[str, ...]  # words, dashes included


@dataclass(frozen=True)
class _FlagsJson:
    compiler: str
    definitions: tuple[str, ...]
    include_dirs: tuple[str, ...]
    cflags: tuple[str, ...]
    ldflags: tuple[str, ...]
    libraries_dirs: tuple[str, ...]
    libraries: tuple[str, ...]
    passthrough_args: tuple[str, ...]  # several words each


@dataclass(frozen=True)
class _Metadata:
    AOTI_DEVICE_KEY: str


@dataclass(frozen=True)
class Sources:
    """The sources of one model.

    Attributes:
        directory: where the unpacked files lie.
        stem: what Inductor named the wrapper, "c7x….wrapper"; the library is named after it.
        wrapper: C++ of the wrapper (prototypes, classes, `run_impl`), without kernel definitions.
        kernels: C++ of the CPU kernels; without code where there are none.
        extern_nodes: the proxy executor's list (`*.wrapper.json`) as JSON text, "" without one.
        provenance: `kernel_information.json` as text.
        objects: what is linked as it is: weights, CUTLASS kernels, embedded kernel binaries.
        mapped_weights: weights that are appended to the library, for models above 2 GB.
        shipped: files that the package keeps beside the library: kernel binaries, metadata, external weights.
        wrapper_opt: how a default package optimizes the wrapper, "O1".
        original: the compiled library whose kernels and weights are used as they are; None where they are compiled.
        without_weights: why no weights come with it; "" where they do.
        other_torch: what tells that another torch than the installed one has written them; "" where nothing does.
    """

    directory: Path
    stem: str
    device: str
    wrapper: str
    kernels: str
    extern_nodes: str
    provenance: str
    compile_flags: Flags
    link_flags: Flags
    objects: tuple[Path, ...]
    mapped_weights: Path | None
    shipped: tuple[Path, ...]
    wrapper_opt: str
    original: Path | None = None
    without_weights: str = ""
    other_torch: str = ""


_COMPILED_FROM = (".cpp", "_flags.json", ".o", "CMakeLists.txt", "script.ld", "kernel_information.json")
_MAPPED_WEIGHTS = "_serialized_weights.bin"


def read(directory: Path, *, wrapper_opt: str) -> Sources:
    """Reads the unpacked sources in `directory`.

    Raises:
        ToolchainError: files are missing: this torch does not write `package_cpp_only` archives.
        ArtifactError: a file is damaged.
    """
    wrapper_path = _one(directory, "*.wrapper.cpp")
    stem = wrapper_path.stem
    wrapper, kernels = split_kernels(_text(wrapper_path))
    files = sorted(path for path in directory.iterdir() if path.is_file())
    metadata = _parsed(_Metadata, _one(directory, "*.wrapper_metadata.json"))
    return Sources(
        directory=directory,
        stem=stem,
        device=metadata.AOTI_DEVICE_KEY,
        wrapper=wrapper,
        kernels=kernels,
        extern_nodes=_text(directory / f"{stem}.json"),
        provenance=_text(directory / "kernel_information.json"),
        compile_flags=_flags(_one(directory, f"*{COMPILE_FLAGS}")),
        link_flags=_flags(_one(directory, "*_linker_flags.json")),
        objects=tuple(path for path in files if path.suffix == ".o"),
        mapped_weights=next((path for path in files if path.name.endswith(_MAPPED_WEIGHTS)), None),
        shipped=tuple(path for path in files if not path.name.endswith((*_COMPILED_FROM, _MAPPED_WEIGHTS))),
        wrapper_opt=wrapper_opt,
    )


def split_kernels(text: str) -> tuple[str, str]:
    """Splits wrapper text that has the kernels appended: ("… } // namespace torch::aot_inductor", "#include …").

    The compiler commands that Inductor notes behind them belong to neither.

    Raises:
        ToolchainError: the wrapper has no end that is known.
    """
    text = COMMANDS.sub("", text)
    ends = [match.end() for match in END_OF_WRAPPER.finditer(text)]
    if not ends:
        raise ToolchainError(
            "the generated wrapper has no end that is known: this torch writes another form of C++",
            hint="use a torch from 2.11 on, or a newer aoti-debug",
        )
    return text[: ends[-1]], text[ends[-1] :]


def has_code(text: str) -> bool:
    """Whether C++ text holds more than comments and blank lines."""
    return any(line.strip() and not line.startswith("//") for line in text.splitlines())


def _one(directory: Path, pattern: str) -> Path:
    found = sorted(directory.glob(pattern))
    if len(found) != 1:
        raise ToolchainError(
            f"the lowered archive has {len(found)} files {pattern} instead of one",
            hint="use a torch from 2.11 on, or a newer aoti-debug",
        )
    return found[0]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _flags(path: Path) -> Flags:
    found = _parsed(_FlagsJson, path)
    return Flags(
        compiler=found.compiler,
        definitions=_words(found.definitions),
        include_dirs=found.include_dirs,
        cflags=_words(found.cflags),
        ldflags=_words(found.ldflags),
        libraries_dirs=found.libraries_dirs,
        libraries=_words(found.libraries),
        passthrough=tuple(word for text in found.passthrough_args for word in shlex.split(text)),
    )


def _parsed(cls: type[T], path: Path) -> T:
    try:
        return json_data.parse(cls, path.read_bytes())
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"{path.name} is damaged: {error}", hint="copy or compile the package again") from error


def _words(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value.strip() for value in values if value.strip())
