from __future__ import annotations

import mmap
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.errors import ArtifactError, UsageError
from aoti_debug.instrument.builder import write_package
from aoti_debug.instrument.frontend import sources
from aoti_debug.instrument.frontend.lowered_model import EmbeddedInputs, LoweredModel
from aoti_debug.instrument.frontend.protocol.messages import Answer
from aoti_debug.package.manifest import PackageOrigin
from aoti_debug.package.pt2 import archive as pt2_archive
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.package.pt2.extract import FilePart
from tests import archives
from tests.unpacked_archive import KERNELS, WRAPPER, unpacked

MODEL = f"package/{archives.MODEL}"
LIBRARY = b"\x7fELF" + bytes(range(256)) * 5000  # more than one block of the copying loop


@pytest.fixture
def lowered(tmp_path: Path) -> LoweredModel:
    members = {f"{archives.MODEL}c1.wrapper.cpp": b"", "data/weights/w0": b"weights", **archives.FRAME}
    (tmp_path / "in.pt").write_bytes(b"inputs")
    (tmp_path / "signature.json").write_bytes(b"signature")
    (tmp_path / "reference.json").write_bytes(b"reference")
    return LoweredModel(
        sources=sources.read(unpacked(tmp_path / "sources", WRAPPER + KERNELS), wrapper_opt="O1"),
        archive=pt2_archive.inspect(archives.write(tmp_path / "lowered.pt2", members, root="lowered")),
        inputs=EmbeddedInputs(tmp_path / "in.pt", ""),
        signature_file=tmp_path / "signature.json",
        log=tmp_path / "lower.log",
        answer=Answer("2.13.0", (), {}, "O1", "", {}),
        triton_configs={},
        model="model",
        source=PackageOrigin.EXPORTED,
        reference_file=tmp_path / "reference.json",
    )


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "built.so"
    path.write_bytes(LIBRARY)
    return path


PLAIN = {
    f"{MODEL}c1.wrapper.cpp": WRAPPER.encode(),
    f"{MODEL}c1.wrapper.json": b'{"nodes": []}',
    f"{MODEL}c1.wrapper.so": LIBRARY,
    f"{MODEL}c1.wrapper_metadata.json": b'{"AOTI_DEVICE_KEY": "cpu"}',
    f"{MODEL}triton_poi_fused_0.cubin": b"",
    "package/data/weights/w0": b"weights",
    **{f"package/{name}": content for name, content in archives.FRAME.items()},
}
OURS = {
    "package/aoti_debug_inputs.pt": b"inputs",
    "package/aoti_debug_manifest.json": b'{"format": 1}',
    "package/aoti_debug_reference.json": b"reference",
    "package/aoti_debug_signature.json": b"signature",
}


def content(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
        return {info.filename: archive.read(info) for info in archive.infolist()}


def test_an_instrumented_package(tmp_path: Path, lowered: LoweredModel, library: Path) -> None:
    output = tmp_path / "out" / "m.pt2"
    output.parent.mkdir()
    write_package.write_instrumented(output, lowered, library, '{"format": 1}', lowered.inputs.file)
    assert content(output) == PLAIN | OURS
    assert list(output.parent.iterdir()) == [output]
    assert pt2_archive.inspect(output).kind is ArtifactKind.INSTRUMENTED


def test_a_package_without_inputs(tmp_path: Path, lowered: LoweredModel, library: Path) -> None:
    write_package.write_instrumented(tmp_path / "m.pt2", lowered, library, '{"format": 1}', None)
    assert (PLAIN | OURS).keys() - content(tmp_path / "m.pt2").keys() == {"package/aoti_debug_inputs.pt"}


def test_equal_packages_are_equal_files(tmp_path: Path, lowered: LoweredModel, library: Path) -> None:
    write_package.write_instrumented(tmp_path / "a.pt2", lowered, library, "{}", lowered.inputs.file)
    write_package.write_instrumented(tmp_path / "b.pt2", lowered, library, "{}", lowered.inputs.file)
    assert (tmp_path / "a.pt2").read_bytes() == (tmp_path / "b.pt2").read_bytes()


def test_the_uninstrumented_package_has_no_members_of_this_tool(
    tmp_path: Path, lowered: LoweredModel, library: Path
) -> None:
    write_package.write_plain(tmp_path / "m.pt2", lowered, library)
    assert content(tmp_path / "m.pt2") == PLAIN
    assert pt2_archive.inspect(tmp_path / "m.pt2").kind is ArtifactKind.PACKAGE


def test_a_failed_write_leaves_the_old_package(tmp_path: Path, lowered: LoweredModel, library: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    output = folder / "m.pt2"
    output.write_bytes(b"old")
    lowered.signature_file.unlink()
    with pytest.raises(UsageError, match="cannot be written: No such file"):
        write_package.write_instrumented(output, lowered, library, "{}", lowered.inputs.file)
    assert list(folder.iterdir()) == [output]
    assert output.read_bytes() == b"old"


def test_a_package_that_fails_its_check_does_not_appear(tmp_path: Path, lowered: LoweredModel, library: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()

    def refuse(file: Path) -> None:
        assert content(file) == PLAIN | OURS
        raise ArtifactError(f"{file} cannot be read: Input/output error", hint="dmesg may say more")

    with pytest.raises(UsageError, match=r"m\.pt2 cannot be written: what was written cannot be read: Input/output"):
        write_package.write_instrumented(
            folder / "m.pt2", lowered, library, '{"format": 1}', lowered.inputs.file, refuse
        )
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none/m.pt2", "{folder}/none cannot be written to: No such file or directory"),
        ("file/m.pt2", "{folder}/file cannot be written to: Not a directory"),
        ("m.zip", "{folder}/m.zip has to end in .pt2: torch loads packages by that ending"),
        ("folder.pt2", "{folder}/folder.pt2 is a directory"),
    ],
)
def test_an_unwritable_output_is_found_early(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(UsageError) as caught:
        write_package.check_writable(tmp_path / name)
    assert str(caught.value) == message.format(folder=tmp_path)


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    write_package.check_writable(tmp_path / "m.pt2")
    assert list(tmp_path.iterdir()) == []


def test_weights_that_are_mapped_follow_the_library_page_aligned(
    lowered: LoweredModel, library: Path, tmp_path: Path
) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"before" + b"weights" * 500_000 + b"after")  # more than one block of the copying loop
    part = FilePart(weights, 6, 6 + 7 * 500_000)
    mapped = replace(lowered, sources=replace(lowered.sources, mapped_weights=part))
    write_package.write_plain(tmp_path / "out.pt2", mapped, library)
    written = content(tmp_path / "out.pt2")[f"{MODEL}c1.wrapper.so"]
    assert written.startswith(LIBRARY)
    begin = len(written) - 7 * 500_000
    assert written[begin:] == b"weights" * 500_000
    assert begin % max(16384, mmap.PAGESIZE) == 0
    assert set(written[len(LIBRARY) : begin]) == set(b" ")


def test_constants_that_are_not_in_the_file_of_the_program(
    lowered: LoweredModel, library: Path, tmp_path: Path
) -> None:
    (tmp_path / "weights.pt").write_bytes(b"constants")
    apart = replace(lowered, weights=tmp_path / "weights.pt")
    write_package.write_instrumented(tmp_path / "out.pt2", apart, library, '{"format": 1}', None)
    assert content(tmp_path / "out.pt2")["package/aoti_debug_weights.pt"] == b"constants"
