from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest
from torchgen.aoti import fallback_ops

from aoti_debug.instrument.frontend.worker.called_operators import describe, find_overload, shims_and_schemas
from aoti_debug.instrument.wrapper.launches.c_functions import OPERATORS_BY_NAME
from aoti_debug.package.manifest import OperatorSchema, Parameter


def described(name: str) -> OperatorSchema:
    return describe(name, find_overload(name))


def test_the_parameters_of_an_operator() -> None:
    clone = described("aten.clone.default")
    assert clone == OperatorSchema(
        "aten.clone.default",
        (
            Parameter("self", "Tensor"),
            Parameter("memory_format", "MemoryFormat", optional=True, keyword_only=True, default=True),
        ),
        returns=1,
        text="aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor",
    )


def test_operators_that_write_to_their_arguments_return_nothing_in_c() -> None:
    addmm = described("aten.addmm.out")
    assert [p.name for p in addmm.parameters if p.out] == ["out"]
    assert addmm.returns == 0
    assert described("aten.bernoulli_.float").returns == 0
    assert described("aten.zero_.default").returns == 0


def test_random_operators() -> None:
    assert described("aten.rand.default").random
    assert not described("aten.abs.default").random


@pytest.mark.parametrize("entry", [{"new_args": ["sorted"], "since": "TORCH_VERSION_2_12_0"}, ["sorted"]])
def test_parameters_that_a_newer_version_of_the_c_function_takes(
    monkeypatch: pytest.MonkeyPatch, entry: object
) -> None:
    versions = {"since": "TORCH_VERSION_2_9_0", "v2": ["largest"], "v3": entry}
    monkeypatch.setitem(fallback_ops.inductor_fallback_ops, "aten.topk.default", versions)
    since = {p.name: p.since for p in described("aten.topk.default").parameters}
    assert since == {"self": 1, "k": 1, "dim": 1, "largest": 2, "sorted": 3}


def test_the_operators_of_a_package(tmp_path: Path) -> None:
    archive = tmp_path / "model.pt2"
    with ZipFile(archive, "w") as file:
        file.writestr("data/model.wrapper.json", '{"nodes": [{"node": {"target": "aten::complex"}}]}')
    shims, schemas = shims_and_schemas(archive, ("aten::poisson", "aoti_debug_test::nobody"))
    assert set(shims) | OPERATORS_BY_NAME | {"aten.complex.default", "aten.poisson.default"} == set(schemas)
