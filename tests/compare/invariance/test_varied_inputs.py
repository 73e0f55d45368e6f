from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils import _pytree as pytree

from aoti_debug.base.errors import UsageError
from aoti_debug.compare.invariance.varied_inputs import (
    InputAxis,
    Others,
    SampleSurroundings,
    VariedSize,
    bounds_error,
    export_hint,
    inputs_of,
    masks_of,
    possible_sizes,
    require_masks,
    require_sample,
    varied_size,
)
from aoti_debug.package.inputs.input_files import Inputs
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature

BATCH, LENGTH, FIXED = Dim(1, 64, "s0"), Dim(2, -1, "s1"), Dim(8, 8)
IDS = Leaf("ids", "torch.int64", "cpu", (BATCH, LENGTH))
MASK = Leaf("mask", "torch.float32", "cpu", (BATCH, LENGTH, LENGTH))
SIGNATURE = ModelSignature((IDS, MASK, Leaf("scale", constant="2")))


def given() -> Inputs:
    return Inputs((torch.arange(12).reshape(4, 3), torch.rand(4, 3, 3), 2), {})


def varied(name: str = "batch") -> VariedSize:
    return varied_size(SIGNATURE, name)


@pytest.mark.parametrize(
    ("name", "symbol"), [("batch", "s0"), ("length", "s1"), ("ids.1", "s1"), ("mask.2", "s1"), ("s0", "s0")]
)
def test_a_size_by_its_names(name: str, symbol: str) -> None:
    assert varied(name).symbol == symbol


def test_a_size_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"no size of the model is 'rows': s0 \(axis 0 of ids\), s1 \(axis 1 of ids\)"):
        varied("rows")


def test_a_model_whose_sizes_are_fixed() -> None:
    with pytest.raises(UsageError, match="every size of the inputs is fixed") as caught:
        varied_size(ModelSignature((Leaf("x", "torch.float32", "cpu", (FIXED,)),)), "batch")
    assert "torch.export.Dim" in caught.value.hint


FLOAT = "torch.float32"
NAMED = (
    'batch = torch.export.Dim("batch", min=1, max=64), dynamic_shapes={"x": {0: batch}, "mask": {0: batch}, "w": None}'
)


@pytest.mark.parametrize("rows", [4, 1])
def test_the_export_that_is_proposed_names_every_input(rows: int) -> None:
    """Torch refuses an entry for some inputs only, and fixes a size of which the example has one."""
    batch, arguments = Dim(rows, rows), pytree.tree_structure(((0, 0, 0), {}))
    leaves = Leaf("x", FLOAT, "cpu", (batch, FIXED)), Leaf("mask", FLOAT, "cpu", (batch,)), Leaf("w", FLOAT, "cpu")
    hint = export_hint(ModelSignature(leaves, pytree.treespec_dumps(arguments)))
    assert hint.startswith(f"export it with {NAMED}")
    assert ("two rows" in hint) == (rows == 1)
    nested = pytree.treespec_dumps(pytree.tree_structure((([0, 0, 0],), {})))
    for unknown in (ModelSignature(leaves), ModelSignature(leaves, nested)):
        assert "{0:" not in export_hint(unknown)


def test_an_axis_that_depends_on_the_size_is_refused() -> None:
    flat = Leaf("flat", "torch.float32", "cpu", (Dim(2, 128, "2*s0"),))
    with pytest.raises(UsageError, match=r"axis 0 of flat has the size 2\*s0"):
        varied_size(ModelSignature((IDS, flat)), "batch")


def test_the_sample_alone() -> None:
    inputs = given()
    ids, mask, scale = inputs_of(inputs, varied(), range(2, 3), SampleSurroundings(1, 0, Others.GIVEN)).args
    assert ids.tolist() == [[6, 7, 8]]
    assert torch.equal(mask, inputs.args[1][2:3])
    assert scale == 2


@pytest.mark.parametrize("place", [0, 2, 5])
def test_among_other_rows_of_the_inputs(place: int) -> None:
    ids = inputs_of(given(), varied(), range(2, 3), SampleSurroundings(6, place, Others.GIVEN)).args[0]
    rows = ids.tolist()
    assert rows.pop(place) == [6, 7, 8]
    assert rows == [[0, 1, 2], [3, 4, 5], [9, 10, 11], [0, 1, 2], [3, 4, 5]]


def test_among_drawn_elements_and_zeros() -> None:
    drawn, zeros = (
        inputs_of(given(), varied(), range(1), SampleSurroundings(4, 0, others)).args[0]
        for others in (Others.DRAWN, Others.ZEROS)
    )
    assert drawn[0].tolist() == zeros[0].tolist() == [0, 1, 2]
    assert not zeros[1:].any()
    assert set(drawn[1:].flatten().tolist()) <= set(range(12))
    again = inputs_of(given(), varied(), range(1), SampleSurroundings(4, 0, Others.DRAWN)).args[0]
    assert torch.equal(drawn, again)


def test_padding_of_a_length() -> None:
    ids, mask, _ = inputs_of(given(), varied("length"), range(2), SampleSurroundings(5, 0, Others.ZEROS)).args
    assert ids.tolist()[1] == [3, 4, 0, 0, 0]
    assert mask.shape == (4, 5, 5)
    assert mask[:, :2, :2].all()
    assert not mask[:, 2:].any()
    assert not mask[:, :, 2:].any()


def test_masks_stay_zero_among_masked_elements() -> None:
    inputs = Inputs((torch.arange(2, 14).reshape(4, 3), torch.ones(4, 3, 3), 2), {})
    masked = SampleSurroundings(5, 0, Others.MASKED)
    assert masks_of(inputs, varied("length")) == {1}
    ids, mask, _ = inputs_of(inputs, varied("length"), range(2), masked).args
    assert ids[:, :2].tolist() == inputs.args[0][:, :2].tolist()
    assert ids[:, 2:].all()
    assert mask[:, :2, :2].all()
    assert not mask[:, 2:].any()
    assert masked.text == "size 5, place 0 among drawn elements that are masked"


def test_inputs_that_all_hold_0_and_1_are_no_masks() -> None:
    inputs = Inputs((torch.zeros(4, 3, dtype=torch.long), torch.ones(4, 3, 3), 2), {})
    assert masks_of(inputs, varied("length")) == frozenset()
    with pytest.raises(UsageError, match=r"is a mask: none holds 0 and 1 only") as raised:
        require_masks(inputs, varied("length"))
    assert raised.value.hint == "--others drawn draws elements for all inputs"


def test_the_order_of_strides_is_kept() -> None:
    signature = ModelSignature((Leaf("x", "torch.float32", "cpu", (BATCH, FIXED)),))
    x = torch.rand(8, 4).T
    found = inputs_of(
        Inputs((x,), {}), varied_size(signature, "batch"), range(1), SampleSurroundings(6, 0, Others.GIVEN)
    )
    assert found.args[0].stride() == (1, 6)
    assert torch.equal(found.args[0][:1], x[:1])


def test_a_sample_that_the_inputs_do_not_hold() -> None:
    require_sample(given(), varied(), range(3, 4))
    with pytest.raises(UsageError, match="the inputs have 4 rows along axis 0 of ids: there is no row 4"):
        require_sample(given(), varied(), range(4, 5))


def test_a_size_that_the_model_does_not_take() -> None:
    assert bounds_error(varied(), 64) == ""
    assert bounds_error(varied(), 65) == "axis 0 of ids is 1 to 64: 65 is not possible"
    assert bounds_error(varied("length"), 1) == "axis 1 of ids is 2: 1 is not possible"


def test_sizes_that_are_possible() -> None:
    varied = VariedSize("s0", (InputAxis(0, 0),), "axis 0 of x", Dim(2, 8, "s0"), is_batch=True)
    assert possible_sizes(varied, (1, 4, 16)) == (2, 4, 8)
    assert possible_sizes(replace(varied, bounds=Dim(2, -1, "s0")), (1, 4, 16)) == (2, 4, 16)


def test_small_numbers_beside_the_sample() -> None:
    varied = VariedSize("s0", (InputAxis(0, 0), InputAxis(1, 0)), "axis 0 of x", Dim(1, 8, "s0"), is_batch=True)
    given = Inputs((torch.full((4, 2), 8.0), torch.ones(4)), {})
    values, mask = inputs_of(given, varied, range(1), SampleSurroundings(4, 3, Others.SMALL)).args
    assert values[:, 0].tolist() == [8 / 1024, 8 / 1024, 8 / 1024, 8.0]
    assert mask.tolist() == [1, 1, 1, 1]


def test_a_batch_that_is_twice_a_size_is_not_called_fixed() -> None:
    doubled = ModelSignature((Leaf("x", "torch.float32", "cpu", (Dim(2, 64, "2*s0"), FIXED)),))
    with pytest.raises(UsageError, match=r"axis 0 of x has the size 2\*s0: it is not known which of its rows belong"):
        varied_size(doubled, "batch")
