"""NaN and infinities that come in with the inputs, weights and buffers of a real model on the CPU."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.runs.diagnosis.findings import CLEAN, NONFINITE, Finding
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.session import triage
from tests.built_model import build_from_package, build_model
from tests.once import once

pytestmark = pytest.mark.slow

INF, NAN = math.inf, math.nan


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The instrumented packages of the exported program and of the compiled package."""
    from tests.triage import infinite_models

    def make(folder: Path) -> dict[str, Path]:
        model = infinite_models.Paths().eval()
        with torch.no_grad():
            program = torch.export.export(model, infinite_models.inputs())
        built = build_model(program, folder, {}, "tests.triage.infinite_models")
        (folder / "compiled").mkdir()
        compiled = build_from_package(built, folder / "compiled", {}, "tests.triage.infinite_models")
        return {"exported": built.package, "compiled": compiled.package}

    return once(tmp_path_factory, "infinite-inputs", make)


@pytest.fixture(scope="module")
def wrong_weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The instrumented package of the program with -Inf in a buffer."""
    from tests.triage import infinite_models

    def make(folder: Path) -> Path:
        model = infinite_models.Paths().eval()
        with torch.no_grad():
            model.shift[1, 2] = -INF
            program = torch.export.export(model, infinite_models.inputs())
        return build_model(program, folder, {}, "tests.triage.infinite_models").package

    return once(tmp_path_factory, "infinite-weights", make)


def triaged(package: Path, folder: Path, **elements: Any) -> Finding:
    from tests.triage import infinite_models

    torch.save(infinite_models.inputs(**elements), folder / "inputs.pt")
    return triage(
        TriageOptions(package, inputs=folder / "inputs.pt", out=folder / "triages", user_code=UserCode(trusted=True))
    ).finding


def origin(finding: Finding) -> tuple[str, int | None]:
    place = finding.origin or finding.where
    assert finding.kind is NONFINITE
    assert place is not None
    return place.input, place.element


@pytest.mark.parametrize(
    ("elements", "expected"),
    [
        ({"x": {(3, 7): INF}}, ("x", 55)),  # through a product and gelu
        ({"moved": {(2, 5): -INF}}, ("moved", 37)),  # through a view, a permutation and a slice
        ({"joined": {(2, 5): -INF}}, ("joined", 37)),  # through cat, to an output
        ({"half": {(4, 5): INF}}, ("half", 69)),  # bfloat16
        ({"mask": {(2, column): -INF for column in range(16)}}, ("mask", 32)),  # a row that hides everything
        ({"x": {(6, 2): NAN, (3, 7): NAN}}, ("x", 55)),
    ],
    ids=["product", "view", "cat", "bfloat16", "mask", "nan"],
)
def test_the_origin_is_the_element_of_the_input(
    packages: dict[str, Path], tmp_path: Path, elements: Any, expected: tuple[str, int]
) -> None:
    finding = triaged(packages["exported"], tmp_path, **elements)
    assert origin(finding) == expected
    assert ": with " in finding.evidence[0]
    assert not any("the program itself makes it" in sentence for sentence in finding.evidence)


def test_a_compiled_package_names_the_element_as_well(packages: dict[str, Path], tmp_path: Path) -> None:
    finding = triaged(packages["compiled"], tmp_path, moved={(2, 5): -INF})
    assert origin(finding)[1] == 37
    assert finding.what.endswith("input 1 of the model")


@pytest.mark.parametrize("value", [NAN, INF])
def test_what_the_model_handles_is_not_the_origin_of_what_it_makes(
    packages: dict[str, Path], tmp_path: Path, value: float
) -> None:
    finding = triaged(packages["exported"], tmp_path, handled={(0, 0): value, (3, 3): -1.0})
    assert finding.where is not None
    assert (finding.where.input, finding.where.element) == ("", 51)
    assert "the square root of a negative number" in finding.evidence[0]


def test_a_mask_and_what_is_handled_are_clean(packages: dict[str, Path], tmp_path: Path) -> None:
    assert triaged(packages["exported"], tmp_path, handled={(0, 0): INF}).kind is CLEAN


def test_an_infinity_in_a_buffer(wrong_weights: Path, tmp_path: Path) -> None:
    finding = triaged(wrong_weights, tmp_path)
    assert origin(finding) == ("shift", 18)
    assert finding.what.endswith("-Inf in shift[1, 2], a buffer of the model")
