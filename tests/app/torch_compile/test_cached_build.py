"""The key under which packages of programs are kept."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.app.torch_compile import cached_build
from aoti_debug.app.torch_compile.cached_build import CompilationDirectory, GraphEntry, read_graphs
from aoti_debug.base.errors import UsageError


class Branch(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x * self.factor, lambda x: x.sin(), (x,))


class Scaled(nn.Module):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((3,), weight))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


def key(model: nn.Module, x: Tensor, **configs: object) -> str:
    return cached_build.program_key(torch.export.export(model, (x,)), configs)


def test_everything_that_a_package_depends_on_is_in_the_key() -> None:
    x = torch.ones(3)
    same = key(Branch(2.0), x)
    assert same == key(Branch(2.0), x)
    others = [key(Branch(3.0), x), key(Branch(2.0), torch.ones(4)), key(Branch(2.0), x, freezing=True)]
    others += [key(Scaled(1.0), x), key(Scaled(2.0), x), key(Branch(2.0), x.double())]
    assert len({same, *others}) == 7


def test_programs_whose_code_is_not_all_in_the_graph_are_not_kept() -> None:
    @torch.library.custom_op("aotidebugkept::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    class Custom(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.aotidebugkept.twice(x)

    x = torch.ones(3)
    assert not cached_build._is_cacheable(torch.export.export(Custom(), (x,)))
    assert cached_build._is_cacheable(torch.export.export(Branch(2.0), (x,)))


def test_folders_and_the_list_of_graphs(tmp_path: Path) -> None:
    directory = CompilationDirectory.create(tmp_path / "base")
    assert (tmp_path / "base/latest").resolve() == directory.path
    names = [directory.new_folder().name for _ in range(2)]
    assert names == ["graph0", "graph1"]
    entries = [
        GraphEntry("graph0", "forward", "model.py:3 in forward", cached=True),
        GraphEntry("graph1", "backward", "", eager="no lowering"),
    ]
    for entry in entries:
        directory.add(entry)
    assert read_graphs(directory.path) == tuple(entries)


def test_two_compilations_have_two_directories(tmp_path: Path) -> None:
    first, second = (CompilationDirectory.create(tmp_path) for _ in range(2))
    assert first.path != second.path


def test_a_place_where_nothing_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"cannot make a directory in .*file: Not a directory") as caught:
        CompilationDirectory.create(tmp_path / "file")
    assert caught.value.hint


def test_folders_that_exist_are_left_alone_and_a_deleted_directory_is_made_again(tmp_path: Path) -> None:
    directory = CompilationDirectory.create(tmp_path / "base")
    (directory.path / "graph0").mkdir()
    assert directory.new_folder().name == "graph1"
    shutil.rmtree(tmp_path / "base")
    assert directory.new_folder().is_dir()
    directory.add(GraphEntry("graph2", "inference", ""))
    assert len(read_graphs(directory.path)) == 1
