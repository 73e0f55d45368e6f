"""The kind, members and models of a `.pt2` file, checked before they are read, without importing torch.

A `.pt2` is a zip archive whose members share one root folder. `torch.export.save` writes an exported program
(`models/`), `aoti_compile_and_package` a compiled package (`data/aotinductor/`); an instrumented package is a compiled
one with the manifest of this debugger beside it. An archive is not trusted: its directory is checked first.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import stat
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from enum import Enum
from pathlib import Path, PurePosixPath
from typing import IO

from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import exhaustion
from aoti_debug.base.machine.files import untrusted_files
from aoti_debug.package import manifest

DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError)  # raised by reading a member whose bytes are damaged
_LOCAL_HEADER = struct.Struct("<26xHH")  # of a member, before its name; its end holds two lengths
UNTRUSTED_HINT = "do not use this file: no torch writes such an archive"
_MAX_RATIO = 200  # unpacked bytes per stored byte; torch stores weights uncompressed
_RATIO_CHECKED_FROM = 1 << 24  # bytes; smaller members may have any compression ratio
_MAX_MEMBERS = 1_000_000
_MAX_NAME_BYTES = 255  # of a file
_PRINTED_CHARACTERS = 60  # of a name
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED, _PATCHED, _STRONGLY_ENCRYPTED = 1, 1 << 5, 1 << 6  # bits of a member's flags


def member_begin(file: IO[bytes], member: zipfile.ZipInfo) -> int | None:
    """The byte of an archive at which the content of a member begins; None if its header is cut off."""
    file.seek(member.header_offset)
    header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size:
        return None
    name, extra = _LOCAL_HEADER.unpack(header)
    return int(member.header_offset + _LOCAL_HEADER.size + name + extra)


def check(path: Path, members: Sequence[zipfile.ZipInfo]) -> None:
    """Refuses an archive that torch cannot have written.

    Args:
        path: of the archive, for the message.

    Raises:
        ArtifactError: a name leads outside of the archive, occurs twice or is too long for a file; a member is a link,
            a decompression bomb, alone or with the others, encrypted, or compressed in a way that torch does not use.
    """
    if len(members) > _MAX_MEMBERS:
        raise ArtifactError(f"{path} holds {len(members)} members; nothing was unpacked", hint=UNTRUSTED_HINT)
    for info in members:
        _check_name(path, info.orig_filename)
        reason = _unsafe_reason(info)
        if reason:
            raise ArtifactError(f"{path} {reason}; nothing was unpacked", hint=UNTRUSTED_HINT)
    unpacked, stored = sum(info.file_size for info in members), sum(info.compress_size for info in members)
    if _grows_too_much(unpacked, stored):
        raise ArtifactError(
            f"{path} would grow from {stored} to {unpacked} bytes; nothing was unpacked", hint=UNTRUSTED_HINT
        )
    for name, count in Counter(info.filename for info in members).items():
        if count > 1:
            raise ArtifactError(f"{path} names {printable(name)} twice; nothing was unpacked", hint=UNTRUSTED_HINT)


def printable(name: str) -> str:
    """A name out of an untrusted file, escaped and shortened for a message."""
    text = name if name.isprintable() else repr(name)
    return text if len(text) <= _PRINTED_CHARACTERS else f"…{text[-_PRINTED_CHARACTERS:]}"


def _unsafe_reason(info: zipfile.ZipInfo) -> str:
    """Says why torch cannot have written a member; "" if it can."""
    name = printable(info.filename)
    if stat.S_ISLNK(info.external_attr >> 16):
        return f"holds a link, {name}"
    if any(len(part.encode()) > _MAX_NAME_BYTES for part in PurePosixPath(info.filename).parts):
        return f"holds a name of {len(info.filename)} characters, {name}"
    if info.flag_bits & (_ENCRYPTED | _STRONGLY_ENCRYPTED):
        return f"has a password on {name}"
    if info.flag_bits & _PATCHED:
        return f"holds {name} as a patch"
    if info.compress_type not in _COMPRESSIONS:
        return f"compresses {name} in a way that torch does not ({info.compress_type})"
    if _grows_too_much(info.file_size, info.compress_size):
        return f"holds {name}, which would grow from {info.compress_size} to {info.file_size} bytes"
    return ""


def _grows_too_much(unpacked: int, stored: int) -> bool:
    return unpacked > _RATIO_CHECKED_FROM and unpacked > _MAX_RATIO * stored


def _check_name(path: Path, name: str) -> None:
    unsafe = (
        name.startswith("/") or "\0" in name or "\\" in name or name[1:2] == ":" or ".." in PurePosixPath(name).parts
    )
    if unsafe:
        raise ArtifactError(
            f"{path} names a member {printable(name)}, which lies outside the archive; nothing was unpacked",
            hint=UNTRUSTED_HINT,
        )


ARCHIVE_VERSION = "0"  # of the PT2 archive format
MODELS = "models/"
AOTINDUCTOR = "data/aotinductor/"
MODEL_FOLDER = f"{AOTINDUCTOR}model/"  # of a package with one model
INPUTS_MEMBER = "aoti_debug_inputs.pt"
WEIGHTS_CONFIG = "weights_config.json"  # of a model whose weights are members of the archive
WRAPPER_SOURCE = ".wrapper.cpp"
KERNEL_BINARIES = (".cubin", ".hsaco", ".fatbin")  # of CUDA, ROCm, and of CUDA for several architectures
_WRAPPER_CLASS = b"AOTInductorModel"  # the class that every wrapper defines
SIGNATURE_MEMBER = "aoti_debug_signature.json"


def unreadable(what: str, error: Exception) -> ArtifactError:
    """The error that an archive, or a member of one, is damaged; or in the system's words, why it cannot be read."""
    refused = exhaustion.refusal(error)
    if refused is None:
        return ArtifactError(f"{what} is damaged: {error}", hint="copy or build it again")
    return ArtifactError(f"{what} cannot be read: {exhaustion.system_text(refused)}", hint=exhaustion.advice(refused))


class ArtifactKind(str, Enum):
    """The kinds of `.pt2` archives; the values are their names in messages."""

    EXPORTED = "an exported program"
    PACKAGE = "a compiled AOTInductor package"
    SOURCES = "an AOTInductor package of C++ sources"
    INSTRUMENTED = "an instrumented package"


@dataclass(frozen=True)
class Artifact:
    """A `.pt2` archive whose central directory is valid.

    Attributes:
        root: the folder that every member lies in, "model".
        members: names below the root, in the archive's order.
        models: names of the models in it; ("model",) unless several were packaged together.
    """

    path: Path
    kind: ArtifactKind
    root: str
    members: tuple[str, ...]
    models: tuple[str, ...]

    def read(self, member: str) -> bytes:
        """Returns the bytes of a member.

        Raises:
            ArtifactError: the member is missing or damaged, or the system refuses to read it.
        """
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.read(f"{self.root}/{member}")
        except KeyError as error:
            raise ArtifactError(f"{self.path} has no {member}", hint="build the package again") from error
        except (*DAMAGED, OSError) as error:
            raise unreadable(f"{member} in {self.path}", error) from error

    def has_source(self, model: str) -> bool:
        """True if a compiled package holds the source of a model's wrapper; a stripped one has an empty file there."""
        return any(_WRAPPER_CLASS in self.read(name) for name in self.wrapper_sources(model))

    def is_stripped(self, model: str = "") -> bool:
        """True if a compiled package has no wrapper source of the named model, or, without a name, of any model."""
        if self.kind is not ArtifactKind.PACKAGE:
            return False
        return not any(self.has_source(name) for name in ((model,) if model else self.models))

    def wrapper_sources(self, model: str) -> tuple[str, ...]:
        """Returns the members of a compiled package that are named like the source of a model's wrapper."""
        folder = f"{AOTINDUCTOR}{model}/"
        return tuple(name for name in self.members if name.startswith(folder) and name.endswith(WRAPPER_SOURCE))

    def manifest(self) -> manifest.Manifest:
        """Reads the manifest of an instrumented package."""
        return manifest.from_json(self.read(manifest.MEMBER))


def inspect(path: str | Path) -> Artifact:
    """Reads the kind, members and models of a file, once for as long as it stays as it is.

    Raises:
        ArtifactError: the file is not a valid `.pt2` archive; the message says what it looks like.
    """
    state: tuple[int, ...] = ()
    with contextlib.suppress(OSError, ValueError):  # reading it says why
        status = os.stat(path)
        state = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
    return _inspect(Path(path), state)


@functools.lru_cache(maxsize=8)
def _inspect(path: Path, _: tuple[int, ...]) -> Artifact:
    infos = _directory(path)
    check(path, infos)
    roots = {info.filename.partition("/")[0] for info in infos}
    if len(roots) != 1:
        raise ArtifactError(f"{path} is a zip archive, but no .pt2", hint=_INPUT_HINT)
    root = roots.pop()
    names = tuple(info.filename[len(root) + 1 :] for info in infos if not info.is_dir())
    kind = _kind(path, names)
    artifact = Artifact(path, kind, root, names, _models(names, kind))
    if "archive_version" in names:
        version = printable(artifact.read("archive_version").decode("ascii", errors="replace").strip())
        if version != ARCHIVE_VERSION:
            raise ArtifactError(
                f"{path} is {kind.value} in archive format {version}; the newest known format is {ARCHIVE_VERSION}",
                hint="upgrade aoti-debug, or write the file with an older torch",
            )
    return artifact


def require_kind(artifact: Artifact, required: ArtifactKind) -> None:
    """Checks that an archive is of the required kind.

    Raises:
        ArtifactError: it is of another kind; the message names both, the hint says what to do.
    """
    if artifact.kind is not required:
        raise ArtifactError(
            f"{artifact.path} is {artifact.kind.value}; {required.value} is required",
            hint=_wrong_kind_hint(required, artifact),
        )


def resolve_model(package: Artifact, name: str) -> str:
    """Returns the name of the model of a package that the user asks for.

    Args:
        name: as the user gave it; "" for the only model.

    Raises:
        UsageError: the package holds several models and none is named, or it holds no model of that name.
    """
    if name in package.models:
        return name
    names = ", ".join(package.models)
    if name:
        raise UsageError(f"{package.path} holds no model {name!r}", hint=f"it holds {names}")
    if len(package.models) > 1:
        raise UsageError(f"{package.path} holds {len(package.models)} models", hint=f"name one with --model: {names}")
    return package.models[0]


_SCRIPT = ".py"
_ELF = b"\x7fELF"
_OF_BUNDLES = {"versions.json", "report/index.html"}
_INPUT_HINT = "pass a .pt2 written by torch.export.save or aoti_compile_and_package"

_REBUILD = "pass the exported program that it was compiled from (torch.export.save(torch.export.export(...), path))"


def _wrong_kind_hint(required: ArtifactKind, artifact: Artifact) -> str:
    name = shlex.quote(str(artifact.path))
    if required is not ArtifactKind.EXPORTED:
        return f"build it first: aoti-debug build {name}"
    return f"it is built already: aoti-debug run {name}" if artifact.kind is ArtifactKind.INSTRUMENTED else _REBUILD


def _kind(path: Path, members: tuple[str, ...]) -> ArtifactKind:
    names = set(members)
    if manifest.MEMBER in names:
        return ArtifactKind.INSTRUMENTED
    if any(name.startswith(AOTINDUCTOR) for name in members):
        compiled = any(name.endswith((".so", ".dll", ".dylib")) for name in members)
        return ArtifactKind.PACKAGE if compiled else ArtifactKind.SOURCES
    if any(name.startswith(MODELS) for name in members):
        return ArtifactKind.EXPORTED
    if "serialized_exported_program.json" in names:
        return ArtifactKind.EXPORTED  # torch before 2.7
    if "data.pkl" in names:
        what = "a TorchScript model" if any(n.startswith("code/") for n in members) else "written by torch.save"
        raise ArtifactError(f"{path} is {what}, not a .pt2", hint=_INPUT_HINT)
    if names >= _OF_BUNDLES:
        raise ArtifactError(f"{path} is a bundle, not a .pt2", hint="extract it; README.txt in it says what to type")
    raise ArtifactError(f"{path} is a zip archive, but no .pt2", hint=_INPUT_HINT)


def _models(members: tuple[str, ...], kind: ArtifactKind) -> tuple[str, ...]:
    if kind is ArtifactKind.EXPORTED:
        names = {
            name[len(MODELS) : -len(".json")] for name in members if name.startswith(MODELS) and name.endswith(".json")
        }
        return tuple(sorted(names)) or ("model",)
    names = {name[len(AOTINDUCTOR) :].partition("/")[0] for name in members if name.startswith(AOTINDUCTOR)}
    return tuple(sorted(names))


def _directory(path: Path) -> list[zipfile.ZipInfo]:
    try:
        with untrusted_files.open_named(path) as file:
            head = file.read(512)
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} does not exist", hint=_INPUT_HINT) from error
    except untrusted_files.NotAFileError as error:
        raise ArtifactError(f"{path} is {error.kind}, not a .pt2", hint=_INPUT_HINT) from error
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}", hint=_INPUT_HINT) from error
    if not head.startswith(b"PK"):
        raise ArtifactError(f"{path} is {_looks_like(path, head)}, not a .pt2", hint=_hint(path, head))
    try:
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
            end = archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        raise ArtifactError(
            f"{path} is a truncated or damaged zip archive ({error})", hint="copy or write the file again"
        ) from error
    for info in infos:
        if info.header_offset + 30 + info.compress_size > end:
            raise ArtifactError(
                f"{path} is damaged: {printable(info.filename)} reaches past the end of its data",
                hint="copy or write the file again",
            )
    if not infos:
        raise ArtifactError(f"{path} is an empty zip archive", hint=_INPUT_HINT)
    return infos


def _hint(path: Path, head: bytes) -> str:
    if head.startswith(_ELF):
        return "pass the .pt2 that it loads; of a host program that died or hangs, its core file with --package"
    return f"aoti-debug triage {shlex.quote(str(path))}" if path.suffix == _SCRIPT else _INPUT_HINT


def _looks_like(path: Path, head: bytes) -> str:
    if path.suffix == _SCRIPT:
        return "a Python script"
    if not head:
        return "empty"
    if head.startswith(_ELF):
        return "a shared library or program"
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer (run git lfs pull)"
    if head.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
        return "a pickle"
    if head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 32:
        return "a safetensors file"
    if head.lstrip().startswith((b"{", b"[")):
        return "JSON"
    if all(byte in b"\t\n\r" or byte >= 0x20 for byte in head):
        return "text"
    return "not a zip archive"
