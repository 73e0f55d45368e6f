"""The key under which packages of programs are kept."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from aoti_debug.app.torch_compile import cached_build


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
    return cached_build._key(torch.export.export(model, (x,)), configs)


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
