"""Reads the C++ sources and compiler flags of an unpacked `package_cpp_only` archive, or of the wrapper of a package.

Their paths belong to the machine that compiled the package: directories of torch, Python and CUDA are replaced by
this machine's, and directories that do not exist here are dropped.
"""

from __future__ import annotations

import re
import shlex
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from aoti_debug.base.errors import ArtifactError, ToolchainError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import compiler
from aoti_debug.base.machine.files import json_data
from aoti_debug.instrument.frontend.protocol import messages
from aoti_debug.package.pt2.extract import FilePart

T = TypeVar("T")

END_OF_WRAPPER = re.compile(r"^\} // namespace torch::aot_inductor[^\n]*\n", re.MULTILINE)
COMPILE_FLAGS = "_compile_flags.json"
COMMANDS = re.compile(r"\n// (?:Compile|Link) cmd\n// [^\n]*")
_COMMAND = re.compile(r"^// (Compile|Link) cmd\n// (.*)$", re.MULTILINE)
_WITH_VALUE = ("-D", "-include", "-o", "-x", "-isystem", "-Xclang")
_COMPILER_SPECIFIC = ("Werror", "flto")  # another compiler may not know them; launches do not depend on them
_TORCH_INCLUDE = re.compile(r".*/torch/include(/.*)?\Z")
_TORCH_LIBRARIES = re.compile(r".*/torch/lib\Z")
_PYTHON_INCLUDE = re.compile(r".*/include/python[\d.]+\Z")
_CUDA = re.compile(r".*/cuda(?:-[\d.]+)?/(include|lib64|targets/.*)\Z")


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


@dataclass(frozen=True)
class CompileCommands:
    """The compile and link commands of a package.

    Attributes:
        optimization: level of the wrapper: "O1".
        left_out: include directories that do not exist on this machine.
    """

    compile: Flags
    link: Flags
    optimization: str
    left_out: tuple[str, ...]


def parse_commands(text: str, torch: Path) -> CompileCommands | None:
    """Parses the commands at the end of a wrapper; None if there are none that can be read.

    Args:
        torch: directory of the installed torch.
    """
    commands = {m.group(1): _split(m.group(2)) for m in _COMMAND.finditer(text)}
    if not commands.get("Compile") or not commands.get("Link"):
        return None
    compile_, link = (_Words(commands[name], torch) for name in ("Compile", "Link"))
    level = next((flag for flag in compile_.cflags if re.fullmatch(r"O[0-3s]", flag)), "O1")
    return CompileCommands(
        compile_.flags(optimized="O3"), link.flags(optimized="O3"), level, tuple(dict.fromkeys(compile_.left_out))
    )


def relocate_flags(flags: Flags, torch: Path) -> Flags:
    """Replaces the directories of another machine in its flags by this machine's."""
    return replace(
        flags,
        cflags=tuple(flag for flag in flags.cflags if not flag.startswith(_COMPILER_SPECIFIC)),
        include_dirs=_local_directories(flags.include_dirs, torch),
        libraries_dirs=_local_directories(flags.libraries_dirs, torch),
    )


def _split(command: str) -> list[str]:
    """The words of a command line; none if its quotes do not match."""
    try:
        return shlex.split(command)
    except ValueError:
        return []


def _local_directories(paths: Iterable[str], torch: Path) -> tuple[str, ...]:
    return tuple(dict.fromkeys(local for path in paths if (local := _local_directory(path, torch))))


def _local_directory(path: str, torch: Path) -> str:
    """This machine's equivalent of a directory of the other machine; "" if there is none."""
    if match := _TORCH_INCLUDE.match(path):
        return f"{torch}/include{match.group(1) or ''}"
    if _TORCH_LIBRARIES.match(path):
        return f"{torch}/lib"
    if _PYTHON_INCLUDE.match(path):
        return sysconfig.get_path("include")
    if Path(path).is_dir():
        return path
    match = _CUDA.match(path)
    local = compiler.find_directory(match.group(1)) if match else None
    return str(local) if local else ""


class _Words:
    """The words of one command line, sorted by kind."""

    def __init__(self, words: Sequence[str], torch: Path) -> None:
        self._torch = torch
        self.compiler = words[0]
        self.definitions: list[str] = []
        self.include_dirs: list[str] = []
        self.cflags: list[str] = []
        self.library_dirs: list[str] = []
        self.libraries: list[str] = []
        self.left_out: list[str] = []
        for option, value in _options(words[1:]):
            self._sort(option, value)

    def _sort(self, option: str, value: str) -> None:
        match option:
            case "-D":
                self.definitions.append(value)
            case "-I" | "-isystem":
                self._directory(value, self.include_dirs)
            case "-L":
                self._directory(value, self.library_dirs)
            case "-l":
                self.libraries.append(value)
            case "-c" | "-o" | "-include" | "-x" | "-Xclang" | "":
                pass
            case _ if not option.removeprefix("-").startswith(("Wl,", *_COMPILER_SPECIFIC)):
                self.cflags.append(option.removeprefix("-"))

    def _directory(self, path: str, directories: list[str]) -> None:
        local = _local_directory(path, self._torch)
        (directories if local else self.left_out).append(local or path)

    def flags(self, optimized: str) -> Flags:
        return Flags(
            compiler=self.compiler,
            definitions=tuple(self.definitions),
            include_dirs=tuple(dict.fromkeys(self.include_dirs)),
            cflags=tuple(optimized if re.fullmatch(r"O[0-3s]", flag) else flag for flag in self.cflags),
            ldflags=(),
            libraries_dirs=tuple(dict.fromkeys(self.library_dirs)),
            libraries=tuple(self.libraries),
            passthrough=(),
        )


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yields options with their values; ("", file) for a word that is not an option."""
    remaining = iter(words)
    for word in remaining:
        if word in _WITH_VALUE:
            yield word, next(remaining, "")
        elif word[:2] in ("-D", "-I", "-L", "-l") and len(word) > 2:
            yield word[:2], word[2:]
        else:
            yield (word, "") if word.startswith("-") else ("", word)
