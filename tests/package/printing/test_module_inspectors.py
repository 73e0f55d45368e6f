"""Inspectors on the results of modules."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from aoti_debug import inspect_modules
from aoti_debug.base.errors import UsageError
from aoti_debug.package.printing.inspected_tensor import InspectedTensor


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
