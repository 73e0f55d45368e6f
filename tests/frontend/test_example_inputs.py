from __future__ import annotations

import pytest

from aoti_debug.frontend.example_inputs import may_be_compiled_from, overlap
from aoti_debug.inputs.signature import Dim, Leaf, Signature

NUMBER = Leaf("n", constant="2")


def tensor(*sizes: int | Dim, dtype: str = "float32") -> Leaf:
    return Leaf(
        "x", f"torch.{dtype}", "cpu", tuple(size if isinstance(size, Dim) else Dim(size, size) for size in sizes)
    )


PROGRAM = Signature((tensor(4, Dim(2, 9, "s0")), NUMBER, tensor(3, dtype="int64")))


@pytest.mark.parametrize(
    ("takes", "may"),
    [
        (Signature((tensor(4, 5), tensor(3, dtype="int64")), others=1), True),
        (Signature((tensor(8, 5), tensor(3, dtype="int64")), others=1), True),  # exported for another size
        (Signature((tensor(4, 5), tensor(3, dtype="int64"))), False),
        (Signature((tensor(4, 5), tensor(3, dtype="int32")), others=1), False),
        (Signature((tensor(4, 5, 1), tensor(3, dtype="int64")), others=1), False),
        (Signature((tensor(4, 5),), others=2), False),
        (Signature((Leaf("x"), Leaf("y")), others=1), True),  # it does not say what it takes
        (Signature((Leaf("x"), tensor(3, dtype="int64")), others=1), True),
        (Signature((Leaf("x"), tensor(3)), others=1), False),
    ],
)
def test_what_a_package_takes_tells_other_programs_from_its_own(takes: Signature, may: bool) -> None:
    assert may_be_compiled_from(takes, PROGRAM) is may


@pytest.mark.parametrize(
    ("size", "fit"),
    [(Dim(4, 4), True), (Dim(9, 20), True), (Dim(10, -1), False), (Dim(0, -1), True), (Dim(1, 1), False)],
)
def test_inputs_are_lent_where_sizes_overlap(size: Dim, fit: bool) -> None:
    takes = Signature((tensor(4, size), tensor(3, dtype="int64")), others=1)
    assert overlap(takes, PROGRAM) is fit


def test_inputs_that_nothing_is_said_of_stand_for_any() -> None:
    takes = Signature((Leaf("x"), tensor(3, dtype="int64")), others=1)
    assert overlap(takes, PROGRAM)
    assert not overlap(Signature((Leaf("x"), tensor(4, dtype="int64")), others=1), PROGRAM)
