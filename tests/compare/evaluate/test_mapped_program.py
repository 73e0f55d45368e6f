"""An exported program whose weights stay in its archive."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from anonymous_memory import growth
from torch import Tensor, nn

from aoti_debug.compare.evaluate import mapped_program


class Tied(nn.Module):
    """Two names of one weight, a buffer that is overwritten, an empty one, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.register_buffer("count", torch.zeros(4))
        self.register_buffer("empty", torch.zeros(0))  # there is nothing to map

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(1)
        return self.second(self.first(x)) + torch.arange(8.0) + self.count.sum() + self.empty.sum()


def save(module: nn.Module, path: Path, *inputs: Tensor) -> None:
    with torch.no_grad():
        torch.export.save(torch.export.export(module.eval(), inputs), path)


def test_it_computes_the_same_and_changes_no_file(tmp_path: Path) -> None:
    path, x = tmp_path / "model.pt2", torch.randn(2, 8)
    save(Tied(), path, x)
    before = path.read_bytes()
    mapped, loaded = mapped_program.load(path).module(), torch.export.load(str(path)).module()
    for _ in range(2):  # the buffer is another one in the second call
        assert torch.equal(mapped(x), loaded(x))
    assert path.read_bytes() == before
    parameters = dict(mapped.named_parameters())
    assert all(value.requires_grad for value in parameters.values())
    assert {k: v.shape for k, v in parameters.items()} == {k: v.shape for k, v in loaded.named_parameters()}


def test_weights_take_no_memory(tmp_path: Path) -> None:
    path, x = tmp_path / "model.pt2", torch.randn(1, 2048)
    module = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(4)))  # 64 MiB
    save(module, path, x)
    with torch.no_grad(), growth() as grown:
        mapped = mapped_program.load(path).module()
        result = mapped(x)
    assert grown.bytes < 32 << 20
    assert torch.allclose(result, module(x))


def test_torch_reads_an_archive_as_before_afterwards(tmp_path: Path) -> None:
    from torch.export.pt2_archive import _package

    read = _package._build_file_map
    (tmp_path / "none.pt2").write_bytes(b"no archive")
    with pytest.raises(Exception, match=r"."):
        mapped_program.load(tmp_path / "none.pt2")
    save(Tied(), tmp_path / "model.pt2", torch.randn(2, 8))
    mapped_program.load(tmp_path / "model.pt2")
    assert _package._build_file_map is read
