from __future__ import annotations

from aoti_debug.instrument.wrapper.launches import slots
from aoti_debug.instrument.wrapper.launches.slots import Slot
from aoti_debug.package.manifest import Form, Role

VIEW = "wrap_with_raii_handle_if_needed(reinterpret_tensor_wrapper({}, 2, a, b, {}L))"


def tensor(text: str, value: int, role: Role = Role.IN, form: Form = Form.TENSOR) -> Slot:
    return slots.tensor(text, value=value, form=form, role=role)


def names(*arguments: Slot) -> list[str]:
    return [arg.name for arg in slots.to_arguments(arguments, {})]


def test_one_tensor_passed_twice_keeps_one_name() -> None:
    assert names(tensor("buf0", 0), tensor("buf0", 1)) == ["buf0", "buf0"]


def test_different_things_of_one_name_are_numbered() -> None:
    first, second = VIEW.format("w", 0), VIEW.format("w", 8)
    number = slots.number("3L", value=4, form=Form.SCALAR, ctype="int64_t", param="w")
    arguments = names(tensor("w", 0), tensor(first, 1), tensor(second, 2), tensor(first, 3), number)
    assert arguments == ["w", "w_view", "w_view_2", "w_view", "w_2"]


def test_a_tensor_that_is_read_and_written_is_in_out_everywhere() -> None:
    arguments = slots.to_arguments([tensor("st", 0), tensor("buf0", 1), tensor("st", 2, Role.OUT)], {})
    assert [arg.role for arg in arguments] == [Role.INOUT, Role.IN, Role.INOUT]


def test_an_output_slot_is_not_the_tensor_that_its_variable_held() -> None:
    arguments = slots.to_arguments([tensor("buf0", 0), tensor("&buf0_handle", 1, Role.OUT, Form.OUTPUT_SLOT)], {})
    assert [arg.role for arg in arguments] == [Role.IN, Role.OUT]


def test_bases_are_followed_to_the_end() -> None:
    (arg,) = slots.to_arguments([tensor(VIEW.format("buf2", 0), 0)], {"buf2": "buf1", "buf1": "buf0"})
    assert (arg.name, arg.base) == ("buf2_view", "buf0")
    assert slots.resolve_alias("a", {"a": "b", "b": "a"}) == "b"


def test_a_view_through_a_temporary_is_named_after_what_it_views() -> None:
    (arg,) = slots.to_arguments([tensor("RAIIAtenTensorHandle(tmp_buf4_7)", 0)], {"tmp_buf4_7": "buf4"})
    assert (arg.name, arg.base) == ("buf4_view", "buf4")


def test_unnamed_arguments_are_named_after_their_position() -> None:
    null = slots.tensor("nullptr", value=2, form=Form.LIST, role=Role.IN, param="indices[0]", element=0)
    bare = slots.tensor("nullptr", value=3, form=Form.LIST, role=Role.IN, element=1)
    scalar = slots.number("2L*s77", value=5, form=Form.SCALAR, ctype="int64_t")
    symbol = slots.number("s77", value=6, form=Form.SCALAR, ctype="int64_t")
    assert names(null, bare, scalar, symbol) == ["indices[0]", "arg3[1]", "arg5", "s77"]


def test_what_has_no_name_is_named_after_its_position() -> None:
    null = slots.tensor("nullptr", value=3, form=Form.TENSOR, role=Role.IN)
    item = slots.tensor("nullptr", value=3, form=Form.LIST, role=Role.IN, element=0)
    number = slots.number("3L", value=4, form=Form.SCALAR, ctype="int64_t")
    assert names(null, item, number) == ["arg3", "arg3[0]", "arg4"]
    assert [(slot.arg.element, slot.arg.base) for slot in (null, item, number)] == [(-1, ""), (0, ""), (-1, "")]
