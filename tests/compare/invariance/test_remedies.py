from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import ToolchainError
from aoti_debug.compare.invariance import invariance as module
from aoti_debug.compare.invariance.invariance import InvarianceOptions
from aoti_debug.compare.invariance.remedies import candidates, try_remedies
from aoti_debug.instrument.builder.options import BuildOptions
from tests.compare.invariance.made_runs import by_size, made
from tests.factories import site


def test_a_library_is_replaced_by_a_template() -> None:
    (only,) = candidates([site("addmm", op="aten.addmm.out")], "cpu")
    assert [change.key for change in only] == ["freezing", "max_autotune_gemm", "max_autotune_gemm_backends"]


def test_generated_kernels_and_products_are_changed_together() -> None:
    found = list(candidates([site("triton_red"), site("mm", op="aten.mm.out")], "cuda"))
    assert [[change.key for change in changes][-1] for changes in found] == ["batch_invariant", "split_reductions"]
    assert all(changes[0].key == "max_autotune_gemm" for changes in found)


def test_nothing_is_tried_for_other_operators() -> None:
    assert list(candidates([site("conv", op="aten.convolution.default")], "cpu")) == []


def test_the_settings_reach_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[BuildOptions] = []

    def refuse(model: Path, options: BuildOptions, *_: object, **__: object) -> Path:
        built.append(options)
        raise ToolchainError("no compiler")

    monkeypatch.setattr(module, "instrumented", refuse)
    found = made(tmp_path, [by_size], operator="aten.mm.out")
    (trial,) = try_remedies(found, InvarianceOptions(model=Path("model.pt2"), inductor_configs={"cpp.threads": 1}))
    assert built[0].inductor_configs == {
        "cpp.threads": 1,
        "freezing": True,
        "max_autotune_gemm": True,
        "max_autotune_gemm_backends": "CPP",
    }
    assert (trial.works, trial.said, trial.price) == (False, "no compiler", None)
