from __future__ import annotations

from pathlib import Path

from aoti_debug.package.argument_values import Absent, Layout, Tensor
from aoti_debug.package.manifest import Arg, Certainty, Form, Kind, Provenance, Role, Site
from aoti_debug.repro.arguments import StorageBlock, arguments_of
from aoti_debug.repro.recorded_launch import RecordedLaunch, RecordedRun, RecordedSlot

RUN = RecordedRun(Path("runs/1"), "", "", "cpu", "")


def slot(
    name: str,
    address: int,
    size: int,
    role: Role = Role.IN,
    *,
    offset: int = 0,
    storage_bytes: int | None = None,
    form: Form = Form.TENSOR,
    before: bool = True,
    after: bool = True,
    device: str = "cpu",
    item: int = 4,
) -> RecordedSlot:
    """A float tensor [size] whose storage begins at `address`."""
    layout = Layout(
        "float32",
        device,
        (size,),
        (1,),
        offset,
        (size + offset) * item if storage_bytes is None else storage_bytes,
        item,
    )
    arg = Arg(name, "", form, role, "", name, 0)
    path = Path(name)
    return RecordedSlot(arg, Tensor(address + offset * item, layout), path if before else None, path if after else None)


def launch(*slots: RecordedSlot) -> RecordedLaunch:
    site = Site(0, "k", Kind.SHIM_OUT, "run_impl", "k", 1, tuple(s.arg for s in slots), Provenance(Certainty.NONE))
    return RecordedLaunch("0.0", site, slots, RUN)


def test_views_of_a_storage_share_it() -> None:
    found = arguments_of(launch(slot("whole", 0x1040, 8), slot("tail", 0x1040, 4, offset=4), slot("other", 0x2000, 2)))
    assert found.storages == (StorageBlock("whole", 32, 64, "cpu"), StorageBlock("other", 8, 0, "cpu"))
    assert [(a.name, a.storage, a.offset) for a in found.tensors] == [
        ("whole", "whole", 0),
        ("tail", "whole", 4),
        ("other", "other", 0),
    ]


def test_storages_that_overlap_become_one() -> None:
    found = arguments_of(launch(slot("late", 0x1020, 16), slot("early", 0x1000, 16)))
    assert found.storages == (StorageBlock("early", 96, 0, "cpu"),)
    assert [(a.name, a.storage, a.offset) for a in found.tensors] == [("late", "early", 8), ("early", "early", 0)]


def test_equal_addresses_of_two_devices_are_two_storages() -> None:
    found = arguments_of(launch(slot("a", 0x1000, 4), slot("b", 0x1000, 4, device="cuda:0")))
    assert [s.device for s in found.storages] == ["cpu", "cuda:0"]


def test_empty_tensors_have_a_storage_of_their_own() -> None:
    found = arguments_of(launch(slot("a", 0, 0), slot("b", 0, 0), slot("c", 0x1000, 4)))
    assert [(s.name, s.bytes) for s in found.storages] == [("a", 0), ("b", 0), ("c", 16)]
    assert [a.layout.shape for a in found.tensors] == [(0,), (0,), (4,)]


def test_a_tensor_passed_twice_is_one_argument_with_both_roles() -> None:
    found = arguments_of(launch(slot("kv", 0x1000, 4, Role.OUT, before=False), slot("kv", 0x1000, 4, after=False)))
    (argument,) = found.tensors
    assert argument.role == "in-out"
    assert (argument.slot.before, argument.slot.after) == (Path("kv"), Path("kv"))


def test_results_are_no_arguments() -> None:
    made = slot("buf1", 0x3000, 4, Role.OUT, form=Form.OUTPUT_SLOT, before=False)
    unset = RecordedSlot(Arg("buf2", "", Form.OUTPUT_SLOT, Role.OUT, "", "", 1), Absent.UNSET)
    found = arguments_of(launch(slot("a", 0x1000, 4), made, unset))
    assert [a.name for a in found.tensors] == ["a"]
    assert [r.name for r in found.results] == ["buf1"]


def test_what_is_missing_is_named_with_its_reason() -> None:
    skipped = slot("big", 0x1000, 4, before=False)
    skipped = RecordedSlot(skipped.arg, skipped.value, None, None, "larger than 1024 bytes")
    found = arguments_of(
        launch(skipped, slot("out", 0x2000, 4, Role.OUT, after=False), slot("in", 0x3000, 4, after=False))
    )
    assert list(found.missing(fault=False)) == [
        "big before the launch (larger than 1024 bytes)",
        "out after the launch",
    ]
    assert list(found.missing(fault=True)) == ["big before the launch (larger than 1024 bytes)"]
