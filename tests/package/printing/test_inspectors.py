"""Inspectors in a model, in eager and through export."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aoti_debug import inspect_modules
from aoti_debug.base.errors import UsageError
from aoti_debug.package.printing import inspectors
from aoti_debug.package.printing.inspectors import inspector
from aoti_debug.package.printing.template import InspectedTensor


class Model(nn.Module):
    """Modules with one result, with several, and with one that is a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(4, 4, batch_first=True)
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        y, (h, c) = self.lstm(x)
        return {"y": self.norm(y), "h": h + c}


def test_every_module() -> None:
    seen: list[tuple[str, str, int]] = []

    def look(tensor: Tensor, place: InspectedTensor) -> None:
        seen.append((place.tag, place.phase, place.index))

    model = Model()
    x = torch.ones(2, 3, 4)
    expected = model(x)
    with inspect_modules(model, look, look) as installed:
        assert installed.tags == ("Model", "lstm", "norm")
        outputs = model(x)
        forward = [(tag, "forward", index) for tag, n in (("lstm", 3), ("norm", 1), ("Model", 2)) for index in range(n)]
        assert seen == forward
        assert all(torch.equal(outputs[name], expected[name]) for name in expected)
        (outputs["y"].sum() + outputs["h"].sum()).backward()
        assert sorted(seen[6:]) == sorted((tag, "backward", index) for tag, _, index in forward)
        seen.clear()
        with torch.no_grad():
            torch.export.export(model, (x,)).module()(x)
        assert seen == forward
        seen.clear()
        torch._dynamo.reset()
        torch.compile(model, backend="aot_eager")(x)
        assert seen == forward
    seen.clear()
    model(x)
    assert seen == []


def test_a_pattern() -> None:
    with inspect_modules(Model(), modules="n*") as installed:
        assert installed.tags == ("norm",)
    with pytest.raises(UsageError, match=r"no module matches 'nosuch'") as caught:
        inspect_modules(Model(), modules="nosuch")
    assert caught.value.hint == "the first are Model, lstm, norm"


def test_one_installation_outlives_another_of_the_same_functions() -> None:
    told: list[str] = []

    def tell(tensor: Tensor, place: InspectedTensor) -> None:
        told.append(place.tag)

    model = nn.Linear(2, 2)
    first = inspect_modules(model, tell)
    second = inspect_modules(model, tell)
    first.remove()
    model(torch.ones(2))
    assert told == ["Linear"]
    second.remove()
    model(torch.ones(2))
    assert told == ["Linear"]


def test_a_tag_that_is_taken_leaves_none_of_the_others_behind() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    with inspect_modules(model, lambda tensor, place: None, modules="1"):
        with pytest.raises(UsageError, match="two inspectors of the tag '1'"):
            inspect_modules(model, lambda tensor, place: None, modules="[01]")
        with inspect_modules(model, lambda tensor, place: None, modules="0"):
            pass


@pytest.fixture(autouse=True)
def none_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspectors, "_REGISTERED", {})
    monkeypatch.setattr(inspectors, "_USES", Counter())


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


BACKENDS = ("eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow))


@pytest.mark.parametrize("backend", BACKENDS)
def test_torch_compile(backend: str) -> None:
    seen: list[tuple[str, str, int, float]] = []

    def look(tensor: torch.Tensor, place: InspectedTensor) -> None:
        seen.append((place.tag, place.phase, place.index, float(tensor.sum())))

    first, second, plain = (inspector(look, look, tag="first"), inspector(look, look, tag="second"), inspector(look))

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = plain(x * 2)
            return result

        @staticmethod
        def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
            result: torch.Tensor = plain(gradient * 2, phase="backward")
            return result

    def model(x: torch.Tensor) -> torch.Tensor:
        y = first(x.sin())
        u, v = second(y * 2, Double.apply(y))
        return (u * u + v).sum()

    def called(function: Callable[[torch.Tensor], torch.Tensor]) -> list[tuple[str, str, int, float]]:
        seen.clear()
        function(torch.ones(3, requires_grad=True)).backward()
        return sorted(seen)

    torch._dynamo.reset()
    expected = called(model)
    assert [place[:3] for place in expected if place[1] == "backward"] == [
        ("", "backward", 0),
        ("first", "backward", 0),
        ("second", "backward", 0),
        ("second", "backward", 1),
    ]
    compiled = called(torch.compile(model, backend=backend, fullgraph=True))
    assert [place[:3] for place in compiled] == [place[:3] for place in expected]
    assert [place[3] for place in compiled] == pytest.approx([place[3] for place in expected])


@pytest.mark.parametrize("backend", ["none", "eager", "aot_eager"])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_function_that_changes_its_tensor(backend: str, phase: str) -> None:
    def change(tensor: torch.Tensor, place: InspectedTensor) -> None:
        tensor.add_(1)

    functions: dict[str, Any] = {phase: change}
    inspect = inspector(**functions, tag="change")

    def model(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = (inspect(x + 1) * 2).sum()
        return result

    torch._dynamo.reset()
    called = model if backend == "none" else torch.compile(model, backend=backend)
    with pytest.raises(RuntimeError, match=f"the inspector 'change' has changed tensor 0 in {phase}"):
        called(torch.ones(2, requires_grad=True)).backward()


@pytest.mark.parametrize("tensor", [torch.ones(2), torch.ones(2, dtype=torch.complex64).conj()])
def test_a_change_in_inference_mode(tensor: torch.Tensor) -> None:
    inspect = inspector(lambda tensor, _: tensor.mul_(2), tag="change")
    with torch.inference_mode(), pytest.raises(RuntimeError, match="has changed tensor 0"):
        inspect(tensor * 1)


def test_ranks_of_one_tag() -> None:
    def look(*_: object) -> None:
        pass

    inspector(look, tag="same")
    inspector(look, tag="same")
    with pytest.raises(UsageError, match="there are two inspectors of the tag 'same'"):
        inspector(look, tag="same", ranks=(0,))
