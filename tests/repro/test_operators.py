from __future__ import annotations

from aoti_debug.repro import operators
from tests.operator_schemas import registered


def test_outputs_come_first_in_c() -> None:
    (addmm,) = registered("aten.addmm.out")
    assert [(at, p.name) for at, p in operators.in_c(addmm)] == [
        (0, "out"),
        (1, "self"),
        (2, "mat1"),
        (3, "mat2"),
        (4, "beta"),
        (5, "alpha"),
    ]


def test_lists_and_devices_take_two_parameters() -> None:
    (rand,) = registered("aten.rand.default")
    assert [(at, p.name) for at, p in operators.in_c(rand)] == [
        (0, "size"),
        (2, "dtype"),
        (3, "layout"),
        (4, "device"),
        (6, "pin_memory"),
    ]
    assert operators.width(rand) == 7
    assert operators.random_reason(rand) == "aten.rand.default draws random numbers"
