"""Faults that the interpreter must find, each planted; and that it finds none where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
import triton.language as tl
from triton.language.extra import libdevice
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder
from triton.runtime.jit import JITFunction

from aoti_debug.repro.templates.accesses import Access, LoadedIndex, lines_of
from aoti_debug.repro.templates.interpreter import Interpretation, NotInterpretableError, interpret
from tests.repro import interpreter_inductor_kernels as inductor
from tests.repro import interpreter_kernels as kernels

BLOCK = {"BLOCK": 8}
PATCHED = (tl, tl.core, tl.math, tl.tensor, tl.dtype, tl.core.tensor_descriptor_base, tl.condition)


def only(seen: Interpretation) -> Access:
    (access,) = seen.outside
    return access


def neighbours(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A storage of three parts: `count` elements of 1, 2 and 3 each."""
    memory = torch.arange(1.0, 4).repeat_interleave(count)
    return memory, memory[:count], memory[count : 2 * count]


def test_a_kernel_that_stays_inside_is_computed() -> None:
    source, target = torch.randn(20), torch.zeros(20)
    seen = interpret(kernels.copy, (3, 1, 1), {"source": source, "target": target, "n": 20}, BLOCK)
    assert (seen.outside, seen.assertions, seen.n_outside, seen.programs) == ((), (), 0, 3)
    assert torch.equal(source, target)
    assert seen.lines() == []


def test_a_kernel_that_waits_for_the_one_before_it_is_computed() -> None:
    source, target = torch.randn(20), torch.zeros(20)
    seen = interpret(kernels.copy_overlapping, (3, 1, 1), {"source": source, "target": target, "n": 20}, BLOCK)
    assert seen.outside == ()
    assert torch.equal(source, target)


def test_a_read_past_the_end_gives_zero_and_is_reported() -> None:
    source, target = torch.ones(13), torch.full((16,), 7.0)
    access = only(interpret(kernels.copy_unmasked, (2, 1, 1), {"source": source, "target": target}, BLOCK))
    assert (access.kind, access.argument, access.element, access.beyond) == ("load", "source", 13, 1)
    assert (access.program, access.position, access.mask, access.count) == ((1, 0, 0), (5,), "none", 3)
    assert access.source is not None
    assert access.source.text == "tl.store(target + i, tl.load(source + i))"
    assert access.source.file == kernels.__file__
    assert (access.in_storage, access.index, access.wrapped) == (False, None, False)
    assert target.tolist() == [1.0] * 13 + [0.0] * 3


def test_a_write_past_the_end_is_dropped_and_reported() -> None:
    memory, source, target = neighbours(8)
    seen = interpret(kernels.copy_unmasked, (2, 1, 1), {"source": memory[:16], "target": target}, BLOCK)
    access = only(seen)
    assert (access.kind, access.argument, access.element, access.beyond) == ("store", "target", 8, 1)
    assert (access.in_storage, access.count) == (True, 8)
    assert source.tolist() == [1.0] * 8
    assert memory[16:].tolist() == [3.0] * 8


def test_the_grid_of_one_program_too_many() -> None:
    source, target = torch.arange(16), torch.zeros(16, dtype=torch.int64)
    seen = interpret(kernels.copy_unmasked, (3, 1, 1), {"source": source, "target": target}, BLOCK)
    assert {(a.kind, a.program, a.element, a.count) for a in seen.outside} == {
        ("load", (2, 0, 0), 16, 8),
        ("store", (2, 0, 0), 16, 8),
    }
    assert seen.n_outside == 16
    assert torch.equal(source, target)


def test_the_wrong_mask() -> None:
    source, target = torch.ones(10), torch.zeros(10)
    seen = interpret(kernels.copy, (2, 1, 1), {"source": source, "target": target, "n": 11}, BLOCK)
    assert [(a.kind, a.element, a.beyond, a.mask, a.position, a.count) for a in seen.outside] == [
        ("load", 10, 1, "true", (2,), 1),
        ("store", 10, 1, "true", (2,), 1),
    ]


@pytest.mark.parametrize(("value", "beyond"), [(-1, -1), (-40, -40), (12, 3), (10, 1), (2**40, 2**40 - 9)])
def test_an_indirect_access_names_the_index_that_fed_it(value: int, beyond: int) -> None:
    index = torch.arange(16) % 10
    index[11] = value
    arguments = {"index": index, "source": torch.arange(10.0), "target": torch.zeros(16), "n": 16}
    access = only(interpret(kernels.gather, (2, 1, 1), arguments, BLOCK))
    assert (access.argument, access.element, access.beyond) == ("source", value, beyond)
    assert access.index == LoadedIndex("index", 11, value)
    assert (access.program, access.position, access.mask) == ((1, 0, 0), (3,), "true")


def test_an_index_through_arithmetic_and_a_shape_is_traced() -> None:
    index = torch.tensor([2, 0, 5, 1], dtype=torch.int32)
    arguments = {"in_ptr0": index, "in_ptr1": torch.randn(5, 4), "out_ptr0": torch.empty(4, 4), "xnumel": 16}
    access = only(interpret(inductor.triton_poi_fused_embedding_1, (1, 1, 1), arguments, {"XBLOCK": 16}))
    assert (access.argument, access.element, access.beyond, access.count) == ("in_ptr1", 20, 1, 4)
    assert access.index == LoadedIndex("in_ptr0", 2, 5)


def test_of_two_indices_the_one_that_is_far_off_is_named() -> None:
    rows, columns = torch.tensor([0, 3, 2, 1], dtype=torch.int32), torch.tensor([3, 0, 1, 77])
    arguments = {"rows": rows, "columns": columns, "source": torch.ones(4, 4), "target": torch.zeros(4)}
    access = only(interpret(kernels.two_indices, (1, 1, 1), arguments, {"BLOCK": 4}))
    assert (access.element, access.index) == (81, LoadedIndex("columns", 3, 77))


def test_an_address_of_no_argument() -> None:
    target = torch.zeros(8)
    for address in (0, 0x7F0000001000, -1):
        arguments = {"address": torch.tensor([address]), "target": target}
        access = only(interpret(kernels.by_address, (1, 1, 1), arguments, BLOCK))
        assert (access.argument, access.address, access.count) == ("", address % 2**64, 8)
    assert lines_of(access)[0] == "out-of-bounds load: address 0xffffffffffffffff is in no argument; returned 0"
    assert target.tolist() == [0.5] * 8


def test_an_atomic_outside_is_dropped_and_the_assertion_before_it_reported() -> None:
    index, values = torch.tensor([3, -1, 32, 0]), torch.randn(4, 128)
    one, other = torch.zeros(32, 128), torch.zeros(32, 128)
    arguments = {"in_ptr0": index, "in_ptr1": values, "out_ptr0": one, "out_ptr1": other, "ynumel": 4, "xnumel": 128}
    kernel = inductor.triton_poi_fused_index_put_10
    seen = interpret(kernel, (2, 1, 1), arguments, {"Y": 4, "X": 64})
    assert [(a.kind, a.argument, a.element, a.position, a.count) for a in seen.outside] == [
        ("atomic", "out_ptr0", 4096, (2, 0), 128),
        ("atomic", "out_ptr1", 4096, (2, 0), 128),
    ]
    assert {a.index for a in seen.outside} == {LoadedIndex("in_ptr0", 2, 32)}
    (failed,) = seen.assertions
    assert (failed.what, failed.program) == ("index out of bounds: 0 <= tmp4 < 32", (0, 0, 0))
    assert failed.source is not None
    assert "device_assert" in failed.source.text
    assert torch.equal(one[:, 0].nonzero().flatten(), torch.tensor([0, 3, 31]))
    assert torch.equal(other[31], values[1])


def test_an_offset_that_wraps_around() -> None:
    source, target = torch.ones(64), torch.zeros(8)
    access = only(interpret(kernels.far, (1, 1, 1), {"source": source, "target": target, "step": 2**29}, BLOCK))
    assert (access.element, access.position, access.wrapped, access.count) == (2**29, (1,), False, 7)
    step = 2**29 + 2**28
    seen = interpret(kernels.far, (1, 1, 1), {"source": source, "target": target, "step": step}, BLOCK)
    assert only(seen).element == step
    wide = {"source": source, "target": target, "step": 2**31 + 1}
    assert only(interpret(kernels.far, (1, 1, 1), wide, BLOCK)).element == 2**31 + 1
    program = interpret(
        kernels.copy_unmasked, (2**29, 1, 1), dict(list(wide.items())[:2]), BLOCK, programs=[(2**28, 0, 0)]
    )
    assert {(a.element, a.wrapped) for a in program.outside} == {(-(2**31), True)}
    assert "  integer overflow: the offset wrapped around" in program.lines()


def test_the_type_of_a_number_is_the_signatures() -> None:
    arguments = {"source": torch.ones(64), "target": torch.zeros(8), "step": 2**29}
    signature = {"source": "*fp32", "target": "*fp32", "step": "i64"}
    narrow = interpret(kernels.far, (1, 1, 1), arguments, {"BLOCK": 16})
    wide = interpret(kernels.far, (1, 1, 1), arguments, {"BLOCK": 16}, signature=signature)
    assert narrow.outside[0].count < wide.outside[0].count  # an offset of 2**29 * 8 wraps to 0 in 32 bits


def test_an_overrun_into_the_neighbouring_argument() -> None:
    memory, left, right = neighbours(8)
    arguments = {"source": left, "target": torch.zeros(16), "stride": 4, "columns": 8}
    access = only(interpret(kernels.rows, (2, 1, 1), arguments, BLOCK))
    assert (access.argument, access.element, access.in_storage) == ("source", 8, True)
    both = {"left": left, "right": right, "target": torch.zeros(16), "n": 9}
    access = only(interpret(kernels.either, (1, 1, 1), both, {"BLOCK": 16}))
    assert (access.argument, access.element, access.beyond, access.in_storage) == ("left", 8, 1, True)
    assert both["target"][:8].tolist() == [1.0, 2.0] * 4
    assert memory.sum() == 48


def test_a_gap_of_a_view_is_outside_the_view_and_inside_the_storage() -> None:
    memory = torch.arange(40.0)
    view = memory.as_strided((4, 6), (10, 1), 2)
    right = {"source": view, "target": torch.zeros(4, 6), "stride": 10, "columns": 6}
    assert interpret(kernels.rows, (4, 1, 1), right, BLOCK).n_outside == 0
    assert torch.equal(right["target"], view)
    access = only(interpret(kernels.rows, (4, 1, 1), {**right, "stride": 9}, BLOCK))
    assert (access.element, access.beyond, access.in_storage, access.count) == (9, 0, True, 6)
    assert "element 9 is outside the view, inside the storage" in lines_of(access)[0]


def test_a_view_that_repeats_elements_may_have_gaps_too() -> None:
    view = torch.arange(40.0).as_strided((3, 2, 6), (0, 10, 1))
    arguments = {"source": view, "target": torch.zeros(2, 8), "stride": 10, "columns": 7}
    access = only(interpret(kernels.rows, (2, 1, 1), arguments, BLOCK))
    assert (access.element, access.beyond, access.count) == (6, 0, 2)


def test_a_view_that_repeats_elements_has_no_gaps() -> None:
    source = torch.ones(3, 1).expand(3, 8)
    target = torch.zeros(3, 8)
    arguments = {"source": source, "target": target, "stride": 1, "columns": 1}
    assert interpret(kernels.rows, (3, 1, 1), arguments, {"BLOCK": 1}).n_outside == 0


@pytest.mark.skipif(
    not hasattr(InterpreterBuilder, "create_make_block_ptr"), reason="this Triton has no block pointers"
)
def test_a_block_pointer_without_its_boundary_check() -> None:
    x, target = torch.arange(42.0).view(6, 7), torch.zeros(8, 8)
    access = only(interpret(kernels.by_block_pointer, (1, 1, 1), {"x": x, "target": target, "M": 6, "N": 7}, {"B": 8}))
    assert (access.argument, access.element, access.position, access.mask, access.count) == (
        "x",
        43,
        (6, 0),
        "true",
        12,
    )
    assert target[5].tolist() == [35 + 36, 36 + 37, 37 + 38, 38 + 39, 39 + 40, 40 + 41, 41, 0]


def test_an_empty_argument_has_no_elements() -> None:
    arguments = {"source": torch.empty(0), "target": torch.zeros(8)}
    access = only(interpret(kernels.copy_unmasked, (1, 1, 1), arguments, BLOCK))
    assert (access.element, access.elements, access.beyond, access.count) == (0, 0, 1, 8)


def test_a_second_launch_is_judged_by_its_own_indices() -> None:
    index = torch.arange(8)
    arguments = {"index": index, "source": torch.arange(8.0), "target": torch.zeros(8), "n": 8}
    assert interpret(kernels.gather, (1, 1, 1), arguments, BLOCK).n_outside == 0
    index[3] = 8
    assert interpret(kernels.gather, (1, 1, 1), arguments, BLOCK).n_outside == 1
    index[3] = 7
    assert interpret(kernels.gather, (1, 1, 1), arguments, BLOCK).n_outside == 0


def test_an_index_that_was_not_chosen_did_not_feed() -> None:
    index = torch.tensor([0, 5, 2, -9])
    arguments = {"in_ptr0": index, "in_ptr1": torch.randn(4, 128), "ynumel": 4, "xnumel": 128}
    outputs = {"out_ptr0": torch.zeros(32, 128), "out_ptr1": torch.zeros(5, 128)}
    seen = interpret(inductor.triton_poi_fused_index_put_10, (1, 1, 1), {**arguments, **outputs}, {"Y": 4, "X": 128})
    assert [a.index for a in seen.outside] == [LoadedIndex("in_ptr0", 1, 5)]


def test_addresses_far_away_are_not_touched() -> None:
    index = torch.tensor([2**62, -(2**63), 2**63 - 1, 2**46, 2**45, 0x6FFF_DEAD_BEEF, 1, 0])
    target = torch.zeros(8)
    arguments = {"index": index, "source": torch.arange(2.0) + 1, "target": target, "n": 8}
    access = only(interpret(kernels.gather, (1, 1, 1), arguments, BLOCK))
    assert (
        access.count == 4
    )  # 2**62 elements of 4 bytes are 2**64 bytes: the address is the argument's own, as on a GPU
    assert target.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 2.0, 1.0]


def test_chosen_programs_and_progress() -> None:
    source, target = torch.ones(80), torch.zeros(80)
    calls: list[tuple[int, int]] = []
    seen = interpret(
        kernels.copy,
        (10, 1, 1),
        {"source": source, "target": target, "n": 80},
        BLOCK,
        programs=[(7, 0, 0), (2, 0, 0)],
        progress=lambda done, total: calls.append((done, total)),
    )
    assert seen.programs == 2
    assert calls[-1] == (2, 2)
    assert target.view(10, 8)[:, 0].nonzero().flatten().tolist() == [2, 7]
    with pytest.raises(ValueError, match=re.escape("program (10, 0, 0) is not in the grid (10, 1, 1)")):
        interpret(kernels.copy, (10, 1, 1), {"source": source, "target": target, "n": 80}, BLOCK, programs=[(10, 0, 0)])


def test_functions_made_for_tritons_own_interpreter_run_too() -> None:
    own = InterpretedFunction(kernels.copy.fn)
    target = torch.zeros(8)
    arguments = {"source": torch.ones(8), "target": target, "n": 9}
    assert interpret(own, (2, 1, 1), arguments, BLOCK).n_outside == 2
    assert target.sum() == 8


def test_the_report_is_readable() -> None:
    index = torch.tensor([0, 1, 9, 3])
    arguments = {"index": index, "source": torch.arange(4.0), "target": torch.zeros(4), "n": 4}
    lines = Path(kernels.__file__).read_text().splitlines()
    line = 1 + next(i for i, text in enumerate(lines) if "tl.load(source + k" in text)
    assert interpret(kernels.gather, (1, 1, 1), arguments, {"BLOCK": 4}).lines() == [
        "out-of-bounds load from source: element 9 of 4, 6 past the end; returned 0",
        f"  {kernels.__file__}:{line}: tl.store(target + i, tl.load(source + k, mask=i < n), mask=i < n)",
        "  program (0, 0, 0), position (2) of the block, mask true",
        "  the index came from index: element 2 is 9",
    ]


def test_what_cannot_be_interpreted_is_refused_with_its_line() -> None:
    with pytest.raises(NotInterpretableError, match=r"vabsdiff4(.|\n)*interpreter_kernels\.py:\d+: value = tl\.inline"):
        interpret(kernels.unknown_assembly, (1, 1, 1), {"x": torch.ones(8), "target": torch.ones(8)}, BLOCK)
    with pytest.raises(NotInterpretableError, match="waits for another program"):
        interpret(kernels.waits, (1, 1, 1), {"flag": torch.zeros(1, dtype=torch.int32)}, BLOCK)
    with pytest.raises(NotInterpretableError, match=r"Triton has no pointers to torch\.complex64"):
        interpret(kernels.copy, (1, 1, 1), {"source": torch.ones(1, dtype=torch.complex64)}, BLOCK)


def test_triton_is_left_as_it_was() -> None:
    def state() -> list[object]:
        found = [tl.load, tl.core.load, tl.reduce, tl.tensor.__add__, tl.math.exp, libdevice.erf, JITFunction.__call__]
        return [*found, tl.tensor.__dict__.get("__bool__"), tl.dtype.to_ir, len(vars(tl)), len(vars(tl.tensor))]

    before = state()
    interpret(kernels.copy, (1, 1, 1), {"source": torch.ones(8), "target": torch.ones(8), "n": 8}, BLOCK)
    with pytest.raises(NotInterpretableError):
        interpret(kernels.unknown_assembly, (1, 1, 1), {"x": torch.ones(8), "target": torch.ones(8)}, BLOCK)
    assert state() == before


def test_what_tritons_own_interpreter_left_behind_is_replaced() -> None:
    """A device function that it calls outside of a launch leaves the language patched."""
    before = {module: dict(vars(module)) for module in PATCHED}
    try:
        assert InterpretedFunction(kernels.one.fn)() == 1
        assert tl.load is not before[tl]["load"]
        arguments = {"source": torch.ones(8), "target": torch.zeros(8), "n": 9}
        assert interpret(kernels.copy, (2, 1, 1), arguments, BLOCK).n_outside == 2
        assert arguments["target"].sum() == 8
    finally:
        for module, names in before.items():
            for name in vars(module).keys() - names.keys():
                delattr(module, name)
            for name, value in names.items():
                if vars(module)[name] is not value:
                    setattr(module, name, value)
