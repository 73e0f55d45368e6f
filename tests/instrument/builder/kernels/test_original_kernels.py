from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import InternalError
from aoti_debug.instrument.builder.kernels import original_kernels
from aoti_debug.package.pt2 import archive, kernel_hashes
from tests import archives


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return archives.write(tmp_path / "out.pt2", {f"{archives.MODEL}k.cubin": b"code", **archives.FRAME})


def test_a_package_with_the_original_kernels_stays(output: Path) -> None:
    originals = kernel_hashes.hash_package(archive.inspect(output), "model")
    assert originals.keys() == {"k.cubin"}
    original_kernels.verify(output, originals, "model")
    assert output.exists()


@pytest.mark.parametrize("originals", [{"k.cubin": "another"}, {"k.cubin": "another", "cpp_fused_0": "gone"}])
def test_a_package_with_other_kernels_is_a_bug_and_is_removed(output: Path, originals: dict[str, str]) -> None:
    with pytest.raises(InternalError, match=", ".join(sorted(originals))):
        original_kernels.verify(output, originals, "model")
    assert not output.exists()


def test_without_kernels_nothing_is_read(tmp_path: Path) -> None:
    original_kernels.verify(tmp_path / "none.pt2", {}, "model")
