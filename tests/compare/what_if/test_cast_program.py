"""Programs with casts: which operators compute in the dtype, what they return and overwrite, and what is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from aoti_debug.compare.modules import WHOLE
from aoti_debug.compare.what_if.cast_program import CastProgram, CastRequest, with_casts
from aoti_debug.package.inputs import input_files
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.runs.run import saved_outputs
from aoti_debug.runs.rundir.formats.stored_tensor import open_tensor


class Several(nn.Module):
    """Weights, several results of one operator, indices, a dtype that is asked for, a buffer that is overwritten."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(16, 16), nn.LayerNorm(16), nn.Linear(16, 8)
        self.statistics = nn.BatchNorm1d(8)

    def forward(self, x: Tensor, index: Tensor) -> Any:
        hidden = self.norm(self.first(x))
        values, places = hidden.topk(4, -1)
        left, right = hidden.chunk(2, -1)
        weights = torch.softmax(left * right, -1, dtype=torch.float32)
        return self.statistics(self.second(hidden)), values, places, weights, hidden[index].square().sum()


X, INDEX = torch.randn(4, 16, generator=torch.Generator().manual_seed(0)), torch.tensor([1, 2])
NAMES = {"first", "norm", "second", "statistics", WHOLE}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("program") / "several.pt2"
    sizes = ({0: torch.export.Dim("rows", min=3, max=64)}, None)
    torch.export.save(torch.export.export(Several(), (X, INDEX), dynamic_shapes=sizes), path)
    return path


def cast(program: Path, folder: Path, to: str, *kept: str) -> tuple[CastProgram, torch.export.ExportedProgram]:
    path = folder / "cast.pt2"
    request = CastRequest(program=str(program), to=to, kept=kept, depth=None, output=str(path))
    return with_casts(request), torch.export.load(path)


def errors(program: Path, other: torch.export.ExportedProgram, rows: int = 4) -> list[float]:
    """The relative changes of the floating outputs; dtypes and the buffers that both overwrite must agree."""
    before, after = torch.export.load(program).module(), other.module()
    with torch.no_grad():
        expected, found = before(X[:rows], INDEX), after(X[:rows], INDEX)
    assert [value.dtype for value in found] == [value.dtype for value in expected]
    for name, value in before.named_buffers():
        assert torch.allclose(dict(after.named_buffers())[name].float(), value.float(), atol=0.1), name
    pairs = zip(found, expected, strict=True)
    return [float((a - b).norm() / b.norm()) for a, b in pairs if b.is_floating_point()]


@pytest.mark.parametrize(("to", "least", "most"), [("bfloat16", 5e-4, 0.02), ("float16", 5e-5, 0.003)])
def test_operators_compute_in_the_dtype(program: Path, tmp_path: Path, to: str, least: float, most: float) -> None:
    casts, other = cast(program, tmp_path, to)
    assert set(casts.modules) == NAMES
    assert casts.left == ()
    found = errors(program, other)
    assert all(0 < error < most for error in found), found
    assert min(found[:3]) > least
    _, again = cast(program, tmp_path, to)
    assert len(errors(program, again, rows=3)) == 4  # sizes still vary
    computed = {str(n.target): n.meta["val"] for n in other.graph.nodes if n.op == "call_function"}
    assert str(computed["aten.linear.default"].dtype) == f"torch.{to}"
    assert computed["aten.softmax.int"].dtype == torch.float32


def test_casts_back_and_forth_are_left_out(program: Path, tmp_path: Path) -> None:
    _, other = cast(program, tmp_path, "bfloat16")
    (norm,) = (n for n in other.graph.nodes if str(n.target) == "aten.layer_norm.default")
    assert str(norm.args[0].target) == "aten.linear.default"


def test_float8_is_rounded_at_the_borders_of_modules(program: Path, tmp_path: Path) -> None:
    casts, other = cast(program, tmp_path, "float8_e4m3fn")
    assert set(casts.modules) == NAMES
    assert casts.left == ()
    found = errors(program, other)
    assert all(0.01 < error < 0.2 for error in found[:3]), found
    (linear, _) = (n for n in other.graph.nodes if str(n.target) == "aten.linear.default")
    assert linear.meta["val"].dtype == torch.float32
    assert [str(one.args[0].meta["val"].dtype) for one in linear.args] == ["torch.float8_e4m3fn"] * 3


class Twice(nn.Module):
    """Two operators that read one input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sin() + x.cos()


def test_what_comes_into_a_module_is_one_tensor_however_many_operators_read_it(tmp_path: Path) -> None:
    path = tmp_path / "twice.pt2"
    torch.export.save(torch.export.export(Twice(), (X,)), path)
    casts, _ = cast(path, tmp_path, "float8_e4m3fn")
    assert casts.text("float8_e4m3fn") == "2 tensors cast there and back, in 1 module"


@pytest.mark.parametrize("to", ["bfloat16", "float8_e5m2"])
def test_modules_that_are_kept(program: Path, tmp_path: Path, to: str) -> None:
    casts, other = cast(program, tmp_path, to, *NAMES)
    assert casts == CastProgram()
    assert errors(program, other) == [0.0] * 4
    some, other = cast(program, tmp_path, to, "first", "norm", WHOLE)
    assert set(some.modules) <= {"second", "statistics"}
    first, *others = errors(program, other)
    assert first > 0
    assert others == [0.0] * 3


class Overwritten(nn.Module):
    """What an operator has returned is overwritten before another one reads it."""

    def forward(self, x: Tensor) -> Tensor:
        hidden = x * 3
        hidden.view(-1).mul_(2)
        return hidden + 1


def test_what_was_overwritten_is_read(tmp_path: Path) -> None:
    path = tmp_path / "overwritten.pt2"
    torch.export.save(torch.export.export(Overwritten(), (X,)), path)
    _, other = cast(path, tmp_path, "bfloat16")
    assert torch.allclose(other.module()(X), X * 6 + 1, atol=0.1)


class Variance(nn.Module):
    """E[x²] - E[x]², of which little is left where the squares are rounded to bfloat16."""

    def forward(self, x: Tensor) -> Tensor:
        return (x.square().mean(-1) - x.mean(-1).square() + 1e-3).sqrt()


def test_the_program_is_called_in_eager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There it rounds after each operator, which a fused kernel does not."""
    x = 20 + torch.randn(16, 64, generator=torch.Generator().manual_seed(0)) / 8
    path, returned = tmp_path / "variance.pt2", tmp_path / "returned"
    torch.export.save(torch.export.export(Variance(), (x,)), path)
    given = [Inputs((x,), {})]
    monkeypatch.setattr(input_files, "given_or_embedded", lambda *_: given[0])
    request = CastRequest(
        program=str(path), to="bfloat16", kept=(), depth=None, output=str(tmp_path / "cast.pt2"), package=str(path)
    )
    request = replace(request, returned=str(returned))
    assert with_casts(request).refusal == ""
    deviation = open_tensor(saved_outputs.saved(returned)[0]).numbers()
    assert abs(deviation - float(x.std())).max() > 1
    given[0] = Inputs((), {})
    assert "x" in with_casts(request).refusal
