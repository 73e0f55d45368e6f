"""Inspectors in a model, in eager and through export."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from aoti_debug.errors import UsageError
from aoti_debug.printing import inspectors
from aoti_debug.printing.inspectors import InspectedTensor, inspector


@pytest.fixture(autouse=True)
def none_registered() -> Iterator[None]:
    inspectors._REGISTERED.clear()
    yield
    inspectors._REGISTERED.clear()


def test_forward_and_backward() -> None:
    seen: list[tuple[InspectedTensor, float]] = []

    def look(tensor: torch.Tensor, place: InspectedTensor) -> None:
        seen.append((place, float(tensor.sum())))

    inspect = inspector(look, look, tag="layer")
    x = torch.ones(3, requires_grad=True)
    y, z = inspect(x * 2, x * 3)
    (y + z).sum().backward()
    assert seen[:2] == [(InspectedTensor("layer", "forward", 0), 6.0), (InspectedTensor("layer", "forward", 1), 9.0)]
    assert sorted(seen[2:], key=lambda item: item[0].index) == [
        (InspectedTensor("layer", "backward", 0), 3.0),
        (InspectedTensor("layer", "backward", 1), 3.0),
    ]


def test_within_an_autograd_function() -> None:
    phases: list[str] = []
    inspect = inspector(lambda _, place: phases.append(place.phase), tag="function")

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = inspect(x * 2)
            return result

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = inspect(gradient * 2, phase="backward")
            return result

    Double.apply(torch.ones(2, requires_grad=True)).sum().backward()
    assert phases == ["forward", "backward"]


def test_what_a_function_must_not_do() -> None:
    def throw(tensor: torch.Tensor, place: InspectedTensor) -> None:
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        inspector(throw, tag="throw")(torch.ones(2))
    with pytest.raises(RuntimeError, match="the inspector 'change' has changed tensor 0 in forward"):
        inspector(lambda tensor, _: tensor.add_(1), tag="change")(torch.ones(2))


def test_tags_and_ranks() -> None:
    calls: list[int] = []
    inspector(lambda *_: calls.append(1), tag="first", ranks=(1,))(torch.ones(2))
    assert calls == []
    with pytest.raises(UsageError, match="there are two inspectors of the tag 'first'"):
        inspector(lambda *_: None, tag="first")
    with pytest.raises(UsageError, match="has characters that a package cannot hold"):
        inspector(tag='a"b')


def test_it_survives_export() -> None:
    seen: list[str] = []
    inspect = inspector(lambda _, place: seen.append(place.tag), tag="layer")

    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = inspect(x.relu())
            return result + 1

    program = torch.export.export(Model(), (torch.ones(2),))
    assert seen == []
    program.module()(torch.ones(2))
    assert seen == ["layer"]
    assert [node.args[0] for node in program.graph.nodes if node.target is inspectors.OPERATOR] == ["layer"]
