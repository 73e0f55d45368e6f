"""Weights in the archive of an exported program."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from aoti_debug.base.errors import ArtifactError
from aoti_debug.package.pt2.program_weights import check, describe, mapped, stored_weights
from tests import archives

CONFIG = "data/weights/model_weights_config.json"


class Tied(nn.Module):
    """Two names of one weight, a transposed one, a buffer of half precision, an empty one, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.turned = nn.Parameter(torch.randn(4, 8).t())
        self.register_buffer("brief", torch.randn(8).to(torch.bfloat16))
        self.register_buffer("empty", torch.zeros(0))
        self.constant = torch.arange(8)

    def forward(self, x: Tensor) -> Tensor:
        total = self.second(self.first(x)) @ self.turned + self.brief.sum() + self.empty.sum()
        return total + self.constant.sum()


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, nn.Module]:
    torch.manual_seed(0)
    module, path = Tied().eval(), tmp_path_factory.mktemp("program") / "model.pt2"
    with torch.no_grad():
        torch.export.save(torch.export.export(module, (torch.randn(2, 8),)), path)
    return path, module


def test_every_weight_is_found_with_its_bytes(saved: tuple[Path, nn.Module]) -> None:
    path, module = saved
    content, found = path.read_bytes(), stored_weights(path)
    wanted = {**module.state_dict(), "constant": module.constant}
    assert set(found) == set(wanted) - {"empty"}
    for name, stored in found.items():
        tensor: Any = wanted[name]
        assert (stored.dtype, stored.shape) == (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
        flat = torch.frombuffer(bytearray(content[stored.begin : stored.begin + stored.nbytes]), dtype=tensor.dtype)
        assert torch.equal(flat.as_strided(stored.shape, stored.strides), tensor)
    assert found["first.weight"] == found["second.weight"]


def copied(source: Path, target: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The archive with contents changed by name; its members are aligned as torch aligns them."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            archives.write_aligned(new, name, change(name, old.read(name)))
    return target


def changed(source: Path, target: Path, **meta: object) -> Path:
    """The archive with a description of one weight changed."""

    def change(name: str, content: bytes) -> bytes:
        if not name.endswith(CONFIG):
            return content
        config = json.loads(content)
        config["config"]["first.weight"]["tensor_meta"].update(meta)
        return json.dumps(config).encode()

    return copied(source, target, change)


def test_a_copy_has_the_same_weights(saved: tuple[Path, nn.Module], tmp_path: Path) -> None:
    assert set(stored_weights(changed(saved[0], tmp_path / "changed.pt2"))) == set(stored_weights(saved[0]))


@pytest.mark.parametrize(
    "meta",
    [
        {"dtype": 99},
        {"layout": 1},
        {"sizes": [{"as_int": 8}, {"as_int": 1 << 40}]},
        {"sizes": [{"as_int": 8}]},
        {"strides": [{"as_int": -8}, {"as_int": 1}]},
        {"storage_offset": {"as_int": 1}},
        {"storage_offset": {"as_int": -1}},
        {"sizes": "8"},
        {"sizes": [{"as_int": float("inf")}, {"as_int": 8}]},
        {"storage_offset": {"as_int": float("-inf")}},
        {"sizes": [{"as_int": 10**30}, {"as_int": 8}], "strides": [{"as_int": 0}, {"as_int": 1}]},
        {"sizes": [{"as_int": 1 << 33}, {"as_int": 1 << 33}], "strides": [{"as_int": 0}, {"as_int": 0}]},
    ],
)
def test_what_does_not_fit_its_member_is_left_out(
    saved: tuple[Path, nn.Module], tmp_path: Path, meta: dict[str, object]
) -> None:
    found = stored_weights(changed(saved[0], tmp_path / "changed.pt2", **meta))
    assert set(stored_weights(saved[0])) - set(found) == {"first.weight"}


@pytest.mark.parametrize(
    "text", ["{}", '{"config": []}', '{"config": 5}', "[" * 200_000, "no JSON", '{"config": {"a": 1}}']
)
def test_a_damaged_description(saved: tuple[Path, nn.Module], tmp_path: Path, text: str) -> None:
    damaged = copied(
        saved[0],
        tmp_path / "damaged.pt2",
        lambda name, content: text.encode() if name.endswith("_config.json") else content,
    )
    assert stored_weights(damaged) == {}


def test_members_that_cannot_be_mapped_are_left_out(tmp_path: Path, saved: tuple[Path, nn.Module]) -> None:
    packed = tmp_path / "packed.pt2"
    with zipfile.ZipFile(saved[0]) as old, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.infolist():
            new.writestr(member.filename, old.read(member))
    assert stored_weights(packed) == {}


def test_a_file_that_is_no_archive(tmp_path: Path) -> None:
    (tmp_path / "model.pt2").write_bytes(np.zeros(100, np.uint8).tobytes())
    with pytest.raises(zipfile.BadZipFile):
        stored_weights(tmp_path / "model.pt2")


def edited(source: Path, target: Path, edits: dict[int, bytes]) -> Path:
    """The archive with bytes of its directory replaced, by their place in the entry of `CONFIG`."""
    data = bytearray(source.read_bytes())
    begin = data.rindex(b"PK\1\2", 0, data.rindex(CONFIG.encode()))
    for at, content in edits.items():
        data[begin + at : begin + at + len(content)] = content
    target.write_bytes(data)
    return target


@pytest.mark.parametrize("edits", [{6: b"\xff"}, {8: b"\0\x08", 46: b"\xff"}], ids=["later version", "name"])
def test_a_directory_that_cannot_be_read(
    saved: tuple[Path, nn.Module], tmp_path: Path, edits: dict[int, bytes]
) -> None:
    with pytest.raises(zipfile.BadZipFile):
        stored_weights(edited(saved[0], tmp_path / "damaged.pt2", edits))


@pytest.mark.parametrize(
    "edits",
    [{8: b"\1\0"}, {10: b"\x63\0"}, {10: b"\x0e\0"}, {16: bytes(4)}, {20: b"\0\0\0\x0f" * 2}],
    ids=["encrypted", "unknown compression", "LZMA", "checksum", "larger than the archive"],
)
def test_a_description_that_cannot_be_unpacked(
    saved: tuple[Path, nn.Module], tmp_path: Path, edits: dict[int, bytes]
) -> None:
    assert set(stored_weights(edited(saved[0], tmp_path / "damaged.pt2", edits))) == {"constant"}


def test_a_mapped_weight_can_be_overwritten_and_its_file_stays(saved: tuple[Path, nn.Module]) -> None:
    path, module = saved
    before = path.read_bytes()
    weight = mapped(path, stored_weights(path)["turned"])
    assert torch.equal(weight, cast(Tensor, module.turned))
    weight += 1
    assert path.read_bytes() == before


def test_a_file_of_weights_that_changed(saved: tuple[Path, nn.Module], tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    shutil.copy(saved[0], path)
    weights = describe(path, {"w": "first.weight"})
    check(weights)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("model/more", b"x")
    with pytest.raises(ArtifactError, match="has changed since the package was built") as caught:
        check(weights)
    assert caught.value.hint == "put it back, or build the package again"
    path.write_bytes(b"no archive")
    with pytest.raises(ArtifactError, match="cannot be read"):
        check(weights)
    path.unlink()
    with pytest.raises(ArtifactError, match=f"takes its weights from {path}, which does not exist"):
        check(weights)


def test_another_weight_changes_the_description(saved: tuple[Path, nn.Module], tmp_path: Path) -> None:
    other = Tied().eval()
    with torch.no_grad():
        torch.export.save(torch.export.export(other, (torch.randn(2, 8),)), tmp_path / "model.pt2")
    assert (tmp_path / "model.pt2").stat().st_size == saved[0].stat().st_size  # else the test shows less
    assert describe(tmp_path / "model.pt2", {}).sha256 != describe(saved[0], {}).sha256
