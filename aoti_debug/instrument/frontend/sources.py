"""Reads the C++ sources and compiler flags of an unpacked `package_cpp_only` archive."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.package.pt2.extract import FilePart

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
    passthrough: tuple[str, ...]  # words with their dashes


@dataclass(frozen=True)
class _Metadata:
    AOTI_DEVICE_KEY: str


@dataclass(frozen=True)
class Sources:
    """The sources of one model.

    Attributes:
        directory: folder of the unpacked files.
        stem: file name of the wrapper without suffix, "c7x….wrapper"; the library has the same.
        wrapper: C++ of the wrapper (prototypes, classes, `run_impl`), without kernel definitions.
        kernels: C++ of the CPU kernels; without code if there are none.
        extern_nodes: the proxy executor's list (`*.wrapper.json`) as JSON text, "" without one.
        provenance: `kernel_information.json` as text.
        objects: object files to link: weights, CUTLASS kernels, embedded kernel binaries.
        mapped_weights: the weights to append to the library, which maps them; None for a library that holds them.
        shipped: files that the package has beside the library: kernel binaries, metadata, external weights.
        wrapper_opt: optimization level of the wrapper in a default package, "O1".
        original: the compiled library whose kernels and weights are kept; None if they are compiled from source.
        without_weights: why it has no weights; "" if it has them.
        other_torch: evidence that another torch than the installed one wrote them; "" without any.
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
    mapped_weights: FilePart | None
    shipped: tuple[Path, ...]
    wrapper_opt: str
    original: Path | None = None
    without_weights: str = ""
    other_torch: str = ""


_COMPILED_FROM = (".cpp", "_flags.json", ".o", "CMakeLists.txt", "script.ld", "kernel_information.json")


def read(directory: Path, *, wrapper_opt: str) -> Sources:
    """Reads the unpacked sources in `directory`.

    Raises:
        ToolchainError: files are missing: this torch does not write `package_cpp_only` archives.
        ArtifactError: a file is damaged.
    """
    wrapper_path = _single_file(directory, "*.wrapper.cpp")
    stem = wrapper_path.stem
    wrapper, kernels = split_kernels(_text(wrapper_path))
    files = sorted(path for path in directory.iterdir() if path.is_file())
    metadata = _read_json(_Metadata, _single_file(directory, "*.wrapper_metadata.json"))
    return Sources(
        directory=directory,
        stem=stem,
        device=metadata.AOTI_DEVICE_KEY,
        wrapper=wrapper,
        kernels=kernels,
        extern_nodes=_text(directory / f"{stem}.json"),
        provenance=_text(directory / "kernel_information.json"),
        compile_flags=_flags(_single_file(directory, f"*{COMPILE_FLAGS}")),
        link_flags=_flags(_single_file(directory, "*_linker_flags.json")),
        objects=tuple(path for path in files if path.suffix == ".o"),
        mapped_weights=next((_whole(path) for path in files if path.name.endswith(messages.MAPPED_WEIGHTS)), None),
        shipped=tuple(path for path in files if not path.name.endswith((*_COMPILED_FROM, messages.MAPPED_WEIGHTS))),
        wrapper_opt=wrapper_opt,
    )


def _whole(path: Path) -> FilePart:
    return FilePart(path, 0, path.stat().st_size)


def split_kernels(text: str) -> tuple[str, str]:
    """Splits a wrapper with appended kernels: ("… } // namespace torch::aot_inductor", "#include …").

    The compiler commands that Inductor appends are in neither.

    Raises:
        ToolchainError: the end of the wrapper cannot be parsed.
    """
    text = COMMANDS.sub("", text)
    ends = [match.end() for match in END_OF_WRAPPER.finditer(text)]
    if not ends:
        raise ToolchainError(
            "the end of the generated wrapper cannot be parsed: this torch generates another form of C++",
            hint="use a torch from 2.11 on, or a newer aoti-debug",
        )
    return text[: ends[-1]], text[ends[-1] :]


def has_code(text: str) -> bool:
    """True if C++ text holds more than comments and blank lines."""
    return any(line.strip() and not line.startswith("//") for line in text.splitlines())


def _single_file(directory: Path, pattern: str) -> Path:
    paths = sorted(directory.glob(pattern))
    if len(paths) != 1:
        raise ToolchainError(
            f"the lowered archive has {len(paths)} files {pattern} instead of one",
            hint="use a torch from 2.11 on, or a newer aoti-debug",
        )
    return paths[0]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def _flags(path: Path) -> Flags:
    flags = _read_json(Flags, path)
    return replace(
        flags,
        definitions=_words(flags.definitions),
        cflags=_words(flags.cflags),
        ldflags=_words(flags.ldflags),
        libraries=_words(flags.libraries),
        passthrough=tuple(word for text in flags.passthrough for word in shlex.split(text)),
    )


def _read_json(cls: type[T], path: Path) -> T:
    try:
        data = json_data.parse_object(path.read_bytes())
        return json_data.from_data(cls, {**data, "passthrough": data.get("passthrough_args")})
    except json_data.DamagedJsonError as error:
        raise ArtifactError(f"{path.name} is damaged: {error}", hint="copy or compile the package again") from error


def _words(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(value.strip() for value in values if value.strip())
