from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base.abi import LaunchFlag, Phase
from aoti_debug.package.argument_values import Absent, Tensor
from aoti_debug.package.manifest import Constant, Manifest, Role
from aoti_debug.runs.diagnosis.dataflow import (
    ByteRange,
    Dataflow,
    input_or_weight_name,
    kind_of_input,
    model_name,
    span_of,
)
from aoti_debug.runs.rundir.launch import Argument
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests import factories
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

X, A, B = (tensor(4, 8, data_ptr=address) for address in (0x1000, 0x2000, 0x3000))
TOP = tensor(2, 8, data_ptr=0x2000)  # rows of A
BOTTOM = tensor(2, 8, data_ptr=0x2040)
MANIFEST = replace(
    make_manifest(
        site("first", arg("arg0_1"), arg("buf0", Role.OUT)),
        site("second", arg("buf0"), arg("buf1", Role.OUT)),
        site("in_place", arg("buf1", Role.INOUT)),
        site("reuses", arg("buf1"), arg("buf2", Role.OUT)),
        site("top", arg("buf0_view", Role.OUT, base="buf0")),
        site("weight", arg("w"), arg("buf1", Role.OUT)),
        site("updates", arg("w", Role.INOUT)),
    ),
    inputs=("arg0_1",),
    input_names=("index",),
    outputs=("buf2",),
    constants=(Constant("w", "layer.w", "float32", (4, 8), (8, 1), folded=False),),
)
FIRST, SECOND, IN_PLACE, REUSES, TOP_VIEW, WEIGHT, UPDATES = range(7)


def recorded(base: Path, *launches: tuple[int, tuple[Tensor, ...]], package: Manifest = MANIFEST) -> RunDir:
    writer = JournalWriter()
    writer.call_begin()
    for number, (site_id, values) in enumerate(launches):
        writer.launch(number, site_id, *values)
    writer.call_end(launches=len(launches))
    return open_run(run_directory(base, package, writer))


def argument(run: RunDir, launch: str, name: str) -> Argument:
    result = run.launch(launch).argument(name)
    assert result is not None
    return result


def written_by(run: RunDir, launch: str, name: str) -> str:
    writer = Dataflow(run).writer(run.launch(launch), argument(run, launch, name))
    return writer.launch.id if writer.launch is not None else writer.input


def read_by(run: RunDir, launch: str, name: str) -> list[str]:
    return [reader.id for reader, _ in Dataflow(run).readers(run.launch(launch), argument(run, launch, name))]


def test_the_last_launch_that_wrote_the_bytes(tmp_path: Path) -> None:
    run = recorded(tmp_path, (FIRST, (X, A)), (SECOND, (A, B)), (IN_PLACE, (B,)), (REUSES, (B, A)))
    assert written_by(run, "0.1", "buf0") == "0.0"
    assert written_by(run, "0.3", "buf1") == "0.2"


def test_an_input_is_known_by_the_name_that_its_user_gave_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, (FIRST, (X, A)))
    assert written_by(run, "0.0", "arg0_1") == "index"
    assert input_or_weight_name(replace(MANIFEST, input_names=()), argument(run, "0.0", "arg0_1")) == "arg0_1"


def test_a_weight_is_known_by_its_place_in_the_module(tmp_path: Path) -> None:
    run = recorded(tmp_path, (WEIGHT, (X, A)))
    assert written_by(run, "0.0", "w") == "layer.w"


def test_what_of_the_model_a_name_means(tmp_path: Path) -> None:
    run = recorded(tmp_path, (FIRST, (X, A)))
    assert kind_of_input(MANIFEST, "index") == "an input"
    assert kind_of_input(replace(MANIFEST, input_names=()), "arg0_1") == "input 0"
    kinds = {"": "a weight", "Parameter": "a weight", "Buffer": "a buffer", "TensorConstant": "a constant"}
    for kind, words in kinds.items():
        constants = tuple(replace(constant, kind=kind) for constant in MANIFEST.constants)
        assert kind_of_input(replace(MANIFEST, constants=constants), "layer.w") == words
    assert model_name(MANIFEST, argument(run, "0.0", "arg0_1")) == "index"
    assert model_name(MANIFEST, argument(run, "0.0", "buf0")) == "buf0"


def test_a_view_that_covers_some_of_the_bytes_wrote_them(tmp_path: Path) -> None:
    run = recorded(tmp_path, (FIRST, (X, A)), (TOP_VIEW, (TOP,)), (SECOND, (A, B)), (SECOND, (BOTTOM, B)))
    assert written_by(run, "0.2", "buf0") == "0.1"
    assert written_by(run, "0.3", "buf0") == "0.0"


def test_memory_that_was_given_to_another_buffer_is_no_longer_read(tmp_path: Path) -> None:
    run = recorded(tmp_path, (FIRST, (X, A)), (SECOND, (A, B)), (REUSES, (B, A)), (SECOND, (A, B)))
    assert read_by(run, "0.0", "buf0") == ["0.1"]
    assert read_by(run, "0.2", "buf2") == ["0.3"]


def test_a_launch_that_reads_and_overwrites_a_buffer_ends_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, (FIRST, (X, A)), (REUSES, (A, A)), (SECOND, (A, B)))
    assert read_by(run, "0.0", "buf0") == ["0.1"]


@pytest.mark.parametrize(
    ("other", "overlaps", "covers"),
    [
        (ByteRange("cpu", 10, 20), True, True),
        (ByteRange("cpu", 11, 19), True, True),
        (ByteRange("cpu", 9, 20), True, False),
        (ByteRange("cpu", 10, 21), True, False),
        (ByteRange("cpu", 0, 11), True, False),
        (ByteRange("cpu", 0, 10), False, False),
        (ByteRange("cpu", 19, 30), True, False),
        (ByteRange("cpu", 20, 30), False, False),
        (ByteRange("cuda:0", 10, 20), False, False),
    ],
)
def test_ranges_of_bytes(other: ByteRange, overlaps: bool, covers: bool) -> None:
    range_ = ByteRange("cpu", 10, 20)
    assert (range_.overlaps(other), range_.covers(other)) == (overlaps, covers)


def test_what_changes_in_place_reads_and_ends_it(tmp_path: Path) -> None:
    run = recorded(tmp_path, (SECOND, (A, B)), (IN_PLACE, (B,)), (REUSES, (B, A)))
    assert read_by(run, "0.0", "buf1") == ["0.1"]


def test_the_same_address_on_another_device_is_other_memory(tmp_path: Path) -> None:
    on_other_device = tensor(4, 8, data_ptr=0x2000, device="cuda:1")
    run = recorded(tmp_path, (FIRST, (X, on_other_device)), (SECOND, (A, B)))
    assert written_by(run, "0.1", "buf0") == ""


def test_a_weight_keeps_what_an_earlier_call_wrote(tmp_path: Path) -> None:
    writer = JournalWriter()
    for call in range(2):
        writer.call_begin(call)
        writer.launch(0, WEIGHT, X, A, call=call)
        writer.launch(1, UPDATES, X, call=call)
        writer.call_end(call, launches=2)
    run = open_run(run_directory(tmp_path, MANIFEST, writer))
    assert written_by(run, "0.0", "w") == "layer.w"
    assert written_by(run, "1.0", "w") == "0.1"


def test_a_buffer_does_not(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.call_begin(0)
    writer.launch(0, FIRST, X, A)
    writer.call_end(0, launches=1)
    writer.call_begin(1)
    writer.launch(0, SECOND, A, B, call=1)
    run = open_run(run_directory(tmp_path, MANIFEST, writer))
    assert written_by(run, "1.0", "buf0") == ""


def test_outputs_of_the_model(tmp_path: Path) -> None:
    run = recorded(tmp_path, (FIRST, (X, A)), (REUSES, (B, A)))
    flow = Dataflow(run)
    assert flow.is_output(argument(run, "0.1", "buf2"))
    assert not flow.is_output(argument(run, "0.0", "buf0"))
    assert not flow.is_output(argument(run, "0.0", "arg0_1"))


@pytest.mark.parametrize(
    ("value", "span"),
    [
        (tensor(4, 8, data_ptr=0x1000), ByteRange("cpu", 0x1000, 0x1080)),
        (tensor(4, 2, data_ptr=0x1000, strides=(8, 1)), ByteRange("cpu", 0x1000, 0x1068)),
        (tensor(4, 2, data_ptr=0x1000, strides=(0, 1)), ByteRange("cpu", 0x1000, 0x1008)),
        (tensor(data_ptr=0x1000), ByteRange("cpu", 0x1000, 0x1004)),
        (tensor(0, 8, data_ptr=0x1000), None),
        (tensor(4, data_ptr=0), None),
        (Absent.NULL, None),
    ],
)
def test_the_bytes_of_a_tensor(value: Tensor, span: ByteRange | None) -> None:
    assert span_of(Argument(0, arg("x"), value, value)) == span


UNKNOWN = make_manifest(
    site("first", arg("x"), arg("buf0", Role.OUT)),
    site("user_kernel", arg("buf0", Role.UNKNOWN)),
    site("last", arg("buf0")),
)


def unknown(base: Path, before: int | None, after: int | None, *, statistics: bool, returned: bool = True) -> RunDir:
    """A run whose second launch may have written buf0; `before` and `after` are hashes of its content."""
    writer = JournalWriter()
    writer.call_begin()
    writer.launch(0, 0, X, A)
    writer.launch_begin(1, 1, A)
    for phase, content in ((Phase.BEFORE, before), (Phase.AFTER, after)):
        if content is not None and statistics:
            writer.tensor_stats(1, 0, phase, factories.statistics(), layout=A.layout, content=content)
        elif content is not None:
            writer.tensor_file(1, 0, phase, f"tensors/{phase.name}", content=content)
    if returned:
        writer.launch_end(1)
    writer.launch(2, 2, A)
    return open_run(run_directory(base, UNKNOWN, writer))


@pytest.mark.parametrize("statistics", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "writer"),
    [(7, 7, "0.0"), (7, 8, "0.1"), (7, None, "0.1"), (None, 7, "0.1"), (None, None, "0.1")],
)
def test_an_argument_of_unknown_role_was_written_unless_its_content_is_known_to_be_the_same(
    tmp_path: Path, before: int | None, after: int | None, writer: str, statistics: bool
) -> None:
    assert written_by(unknown(tmp_path, before, after, statistics=statistics), "0.2", "buf0") == writer


def test_a_launch_that_did_not_return_may_have_written_even_if_nothing_shows_it(tmp_path: Path) -> None:
    assert written_by(unknown(tmp_path, 7, 7, statistics=False, returned=False), "0.2", "buf0") == "0.1"


def test_the_last_writes_of_outputs(tmp_path: Path) -> None:
    """In the order of the first writes; a mutated input is an output, what a later call writes counts for itself."""
    package = replace(MANIFEST, inputs=("w",), outputs=("buf2", "buf1"))
    writer = JournalWriter()
    for call in (0, 1):
        writer.call_begin(call)
        writer.launch(0, UPDATES, X, call=call)
        writer.launch(1, WEIGHT, X, B, call=call)
        writer.launch(2, REUSES, B, A, call=call)
        writer.launch(3, IN_PLACE, B, call=call)
        writer.call_end(call, launches=4)
    run = open_run(run_directory(tmp_path, package, writer))
    assert [(launch.id, argument.name) for launch, argument in Dataflow(run).final_outputs()] == [
        ("0.0", "w"),
        ("0.3", "buf1"),
        ("0.2", "buf2"),
        ("1.0", "w"),
        ("1.3", "buf1"),
        ("1.2", "buf2"),
    ]


def test_launches_after_one_with_an_empty_grid_count(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.call_begin()
    writer.launch(0, FIRST, X, A)
    writer.launch_begin(1, FIRST, X, A)
    writer.launch_end(1, flags=LaunchFlag.NOT_STARTED)
    writer.launch(2, SECOND, A, B)
    writer.launch(3, REUSES, B, A)
    run = open_run(run_directory(tmp_path, MANIFEST, writer))
    assert (written_by(run, "0.2", "buf0"), written_by(run, "0.3", "buf1")) == ("0.0", "0.2")


def test_an_earlier_call_changed_the_weight_that_a_view_shows(tmp_path: Path) -> None:
    package = replace(
        MANIFEST,
        sites=(
            *MANIFEST.sites,
            site("of_view", arg("w_view", base="w"), arg("buf3", Role.OUT), id_=len(MANIFEST.sites)),
        ),
    )
    writer = JournalWriter()
    for call, (number, values) in enumerate([(UPDATES, (X,)), (len(MANIFEST.sites), (X, B))]):
        writer.call_begin(call)
        writer.launch(0, number, *values, call=call)
        writer.call_end(call, launches=1)
    run = open_run(run_directory(tmp_path, package, writer))
    assert written_by(run, "1.0", "w_view") == "0.0"


@pytest.mark.parametrize(
    ("first", "overwritten", "name"),
    [
        (A, A, "buf0"),  # buf1 is a new name of the memory of buf0
        (A, TOP, "buf0"),
        (TOP, A, "buf1"),  # half of it is of buf0
        (A, B, "buf1"),  # nothing wrote it
    ],
)
def test_what_reused_memory_holds_has_the_name_of_the_buffer_that_it_was(
    tmp_path: Path, first: Tensor, overwritten: Tensor, name: str
) -> None:
    run = recorded(tmp_path, (FIRST, (X, first)), (IN_PLACE, (overwritten,)))
    launch = run.launch("0.1")
    assert Dataflow(run).content_name(launch, argument(run, "0.1", "buf1")) == name


def test_what_a_launch_only_reads_keeps_its_name(tmp_path: Path) -> None:
    run = recorded(tmp_path, (FIRST, (X, A)), (REUSES, (A, B)))
    flow = Dataflow(run)
    assert flow.content_name(run.launch("0.0"), argument(run, "0.0", "arg0_1")) == "index"
    assert flow.content_name(run.launch("0.1"), argument(run, "0.1", "buf1")) == "buf1"
