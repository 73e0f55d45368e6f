from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aoti_debug.instrument.wrapper.provenance import infer
from aoti_debug.package.manifest import Certainty, Form, Kind, ModelLine, Role, Site
from tests.factories import arg, site


def tensor(name: str, role: Role = Role.IN) -> dict[str, object]:
    return {"name": name, "role": role, "base": name}


def known(number: int, *tensors: dict[str, object], function: str = "run_impl", size: str = "4L") -> Site:
    """A site of line 100 + number of the model."""
    args = (*(arg(**fields) for fields in tensors), arg("n", Role.NONE, Form.SCALAR, text=size))  # type: ignore[arg-type]
    return site(f"k{number}", *args, id_=number, line=100 + number, function=function)


def lost(number: int, *tensors: dict[str, object], **fields: Any) -> Site:
    args = tuple(arg(**given) for given in tensors)  # type: ignore[arg-type]
    return site("lost", *args, id_=number, line=None, **fields)


def line_of(sites: list[Site]) -> int | None:
    (completed,) = [s for s in infer(sites) if s.kernel == "lost"]
    assert completed.provenance.certainty is (Certainty.INFERRED if completed.provenance.source else Certainty.NONE)
    return completed.provenance.source[0].line if completed.provenance.source else None


OUT = Role.OUT


@pytest.mark.parametrize(
    ("sites", "line"),
    [
        pytest.param(
            [known(0, tensor("a", OUT)), known(1, tensor("b", OUT)), lost(2, tensor("a", Role.INOUT)), known(3)],
            100,
            id="what wrote the tensor that it writes",
        ),
        pytest.param(
            [known(0, tensor("a", OUT)), known(1), lost(2, tensor("a"), tensor("c", OUT)), known(3, tensor("c"))],
            100,
            id="what wrote the tensor that it reads",
        ),
        pytest.param(
            [known(0, tensor("a", OUT)), known(1, tensor("b", OUT)), lost(2, tensor("a"), tensor("b"))],
            101,
            id="the latest writer of any",
        ),
        pytest.param(
            [known(0, tensor("a", OUT)), known(1, tensor("a", OUT)), lost(2, tensor("a"))], 101, id="the latest writer"
        ),
        pytest.param(
            [known(0), lost(1, tensor("c", OUT)), known(2), known(3, tensor("c"))], 103, id="what reads what it makes"
        ),
        pytest.param([known(0), lost(1), known(2)], 100, id="the nearest before"),
        pytest.param([lost(0), known(1)], 101, id="the nearest after"),
        pytest.param([known(0, function="_const_run_impl"), lost(1), known(2)], 102, id="only its own function"),
        pytest.param([lost(0)], None, id="nothing is known"),
    ],
)
def test_where_a_lost_site_comes_from(sites: list[Site], line: int | None) -> None:
    assert line_of(sites) == line


def test_a_number_that_is_read_is_what_later_sites_compute_with() -> None:
    number = arg("ret_value", Role.OUT, Form.SCALAR_REF, text="&u0_raw")
    item = site("lost", number, id_=1, line=None, kind=Kind.ITEM)
    assert line_of([known(0), item, known(2, size="u01"), known(3, size="2L*u0")]) == 103


def test_the_line_that_names_the_operator_is_chosen() -> None:
    donor = known(0, tensor("a", OUT))
    frames = (ModelLine("m.py", 1, "f", "y = x + 1"), ModelLine("m.py", 2, "f", "z = y.scatter(0, i, s)"))
    donor = replace(donor, provenance=replace(donor.provenance, source=frames))
    assert infer([donor, lost(1, tensor("a"), op="aten.scatter.src_out")])[1].provenance.source == frames[1:]
    assert infer([donor, lost(1, tensor("a"), op="aten.bernoulli_.float")])[1].provenance.source == frames
