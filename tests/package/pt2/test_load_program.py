from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.package.pt2 import load_program
from tests.torch_features import LINEAR_CROSS_ENTROPY


class Factors(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.geqrf(x)[0]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    torch.export.save(torch.export.export(Factors(), (torch.rand(6, 4),)), tmp_path / "model.pt2")
    return tmp_path / "model.pt2"


def test_operators_without_a_meta_kernel_are_traced_again(program: Path) -> None:
    with pytest.raises(Exception, match=r"aten\.geqrf\.default"):
        torch.export.load(program).run_decompositions({})
    traced = load_program.load(program).run_decompositions({})
    assert torch.ops.aten.geqrf.default in [node.target for node in traced.graph.nodes]


def test_torch_registers_some_operators_late() -> None:
    chunked = "torch_nn::_linear_cross_entropy_batch_chunked"
    modules = load_program.registering_modules([chunked, "no_such::operator"])
    assert modules == (["torch.nn.modules.linear_cross_entropy"] if LINEAR_CROSS_ENTROPY else [])
    assert load_program.registering_modules(["no_such::operator"]) == []


def test_a_module_that_only_names_an_operator_does_not_register_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch" / "nn").mkdir(parents=True)
    (tmp_path / "torch" / "kernel.py").write_text('@cached(\n    "torch_nn::op",\n)\ndef kernel(): ...\n')
    (tmp_path / "torch" / "nn" / "op.py").write_text(
        '@torch.library.custom_op(\n    "torch_nn::op", mutates_args=()\n)\n'
    )
    monkeypatch.setattr(torch, "__file__", str(tmp_path / "torch" / "__init__.py"))
    assert load_program.registering_modules(["torch_nn::op", "torch_nn::other"]) == ["torch.nn.op"]
