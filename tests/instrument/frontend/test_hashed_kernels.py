from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.instrument.frontend import hashed_kernels, sources
from aoti_debug.package.pt2 import archive
from aoti_debug.package.pt2.archive import Artifact
from tests import archives
from tests.unpacked_archive import COMMANDS, KERNELS, WRAPPER, unpacked

WEIGHTS = 'constants_info_[0].name = "w";\n'
FIRST = WEIGHTS + WRAPPER + COMMANDS
SECOND = "// loads c9.cubin and c8.cubin\n" + WEIGHTS + WRAPPER


def default_package(path: Path, wrapper: str) -> Artifact:
    members = {
        "c5.wrapper.cpp": (wrapper + COMMANDS).encode(),
        "c6.kernel.cpp": (KERNELS + COMMANDS).encode(),
        "c5.wrapper.so": b"\x7fELF",
        "c8.cubin": b"eight",
        "c9.cubin": b"nine",
        "c7.fatbin": b"seven",
    }
    archives.write(path, {f"{archives.MODEL}{name}": content for name, content in members.items()})
    return archive.inspect(path)


def test_text_and_binaries_come_from_the_default_package(tmp_path: Path) -> None:
    first = sources.read(unpacked(tmp_path / "first", FIRST), wrapper_opt="O2")
    replaced = hashed_kernels.use_hashed_binaries(first, default_package(tmp_path / "p.pt2", SECOND))
    assert (replaced.wrapper, replaced.kernels) == (SECOND, f"\n{KERNELS}\n")
    assert [path.name for path in replaced.shipped] == [
        "c1.wrapper.json",
        "c1.wrapper_metadata.json",
        "c7.fatbin",
        "c8.cubin",
        "c9.cubin",
    ]
    assert replaced.shipped[-1].read_bytes() == b"nine"
    assert (replaced.stem, replaced.wrapper_opt) == ("c1.wrapper", "O2")
    assert (replaced.compile_flags, replaced.objects) == (first.compile_flags, first.objects)


def test_weights_must_lie_where_they_lay(tmp_path: Path) -> None:
    first = sources.read(unpacked(tmp_path / "first", FIRST), wrapper_opt="O1")
    other = default_package(tmp_path / "p.pt2", SECOND.replace('"w"', '"v"'))
    with pytest.raises(ToolchainError, match="laid its weights out differently"):
        hashed_kernels.use_hashed_binaries(first, other)
    assert (tmp_path / "first" / "triton_poi_fused_0.cubin").exists()
