from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.argument_values import Absent, Tensor
from aoti_debug.package.manifest import Arg, Form, Kind, Role, Site
from aoti_debug.runs.diagnosis.findings import Finding, Place
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage.contracts import layouts
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

FIRST, SECOND = tensor(16, data_ptr=0x1000), tensor(16, data_ptr=0x1020)  # 64 bytes each; they share 32 bytes
OTHER = tensor(16, data_ptr=0x5000)
READ = site("read", arg("x"), arg("y"), arg("z"), kind=Kind.CPP)
RESULT = arg("buf1", Role.OUT, Form.LIST)
SPLIT = site(
    "mylib::split",
    *(arg("x"), arg("buf0")),
    *(RESULT, replace(RESULT, name="buf2")),
    kind=Kind.PROXY,
    op="mylib::split.default",
)


def write(*args: Arg) -> Site:
    return site("write", *args, kind=Kind.CPP)


def inout(name: str, base: str = "") -> Arg:
    return arg(name, Role.INOUT, base=base)


def check(
    base: Path, *launches: tuple[Site, tuple[Tensor | Absent, ...]], calls: int = 1, **results: Tensor
) -> tuple[Finding, ...]:
    """Findings of a run of a model with the inputs x, y and z.

    Args:
        results: by name, the tensors that launches return in slots that are undefined before.
    """
    manifest = make_manifest(*(site_ for site_, _ in launches))
    manifest = replace(manifest, inputs=("x", "y", "z"), input_names=("image", "mask", "bias"))
    journal = JournalWriter()
    for call in range(calls):
        for number, (site_, values) in enumerate(launches):
            journal.launch_begin(number, number, *values, call=call)
            returned = {slot: results[a.name] for slot, a in enumerate(site_.args) if a.name in results}
            made = {slot: value for slot, value in returned.items() if not isinstance(values[slot], Tensor)}
            journal.launch_end(number, dict(made), call=call)
    return layouts.check_aliases(open_run(run_directory(base, manifest, journal)))


def test_inputs_that_share_memory_and_are_written(tmp_path: Path) -> None:
    reading = (READ, (FIRST, SECOND, OTHER))
    (finding,) = check(tmp_path, reading, (write(inout("y")), (SECOND,)), (write(inout("x")), (FIRST,)))
    assert finding.what == "the inputs image and mask share memory, and the model writes to it"
    assert finding.where == Place(input="mask", argument="y")
    assert finding.evidence == (
        "launch 0.1 write writes to mask; the model was compiled for inputs that do not share memory",
        "image lies at 0x1000 to 0x1040, mask at 0x1020 to 0x1060",
    )
    assert finding.next == ("pass a copy: image.clone()",)


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ((FIRST, SECOND, OTHER), None),  # only read
        ((FIRST, tensor(16, data_ptr=0x1040), OTHER), FIRST),  # side by side
        ((FIRST, SECOND, OTHER), tensor(8, data_ptr=0x1000)),  # another part
        ((FIRST, SECOND, OTHER), OTHER),
    ],
)
def test_inputs_that_may_share_memory(tmp_path: Path, values: tuple[Tensor, ...], written: Tensor | None) -> None:
    launches = [(READ, values)] + ([] if written is None else [(write(inout("buf0")), (written,))])
    assert check(tmp_path, *launches) == ()


def test_every_pair_of_inputs_is_compared(tmp_path: Path) -> None:
    """The first pair shares nothing, and the memory is written as a buffer."""
    reading = (READ, (OTHER, FIRST, SECOND))
    (finding,) = check(tmp_path, reading, (write(inout("buf0")), (tensor(32, data_ptr=0x1000),)), calls=2)
    assert finding.what.startswith("the inputs mask and bias share memory")
    assert finding.where == Place(input="mask", argument="buf0")


def test_inputs_of_different_calls_may_share_memory(tmp_path: Path) -> None:
    manifest = replace(make_manifest(write(inout("x")), write(inout("y"))), inputs=("x", "y"))
    journal = JournalWriter()
    journal.launch(0, 0, FIRST, call=0)
    journal.launch(0, 1, SECOND, call=1)
    assert layouts.check_aliases(open_run(run_directory(tmp_path, manifest, journal))) == ()


VIEW = tensor(8, data_ptr=0x1000)  # of the first argument
NEW = tensor(16, data_ptr=0x7000)
SPLITTING = (SPLIT, (FIRST, OTHER, Absent.UNDEFINED, Absent.UNDEFINED))


def test_a_view_that_an_operator_returned_as_a_new_tensor(tmp_path: Path) -> None:
    writing = (write(inout("buf2")), (VIEW,))
    (finding,) = check(tmp_path, SPLITTING, writing, writing, buf1=NEW, buf2=VIEW)
    assert finding.what == "mylib::split returned a view of its argument image, not a new tensor"
    assert finding.where is not None
    assert (finding.where.launch, finding.where.argument) == ("0.0", "buf2")
    assert finding.evidence == (
        "launch 0.1 write writes to the memory that buf2 and image share",
        "mylib::split.default: its schema promises a new tensor; return result.clone(), or declare the alias",
    )


def test_each_result_is_compared_with_each_argument(tmp_path: Path) -> None:
    """The view of x is only read; that of buf0 is written."""
    writing = (write(inout("buf2")), (OTHER,))
    (finding,) = check(tmp_path, (READ, (FIRST, NEW, NEW)), SPLITTING, writing, buf1=VIEW, buf2=OTHER)
    assert finding.what == "mylib::split returned a view of its argument buf0, not a new tensor"
    assert finding.where is not None
    assert finding.where.launch == "0.1"


@pytest.mark.parametrize(
    ("written", "memory", "count"),
    [
        (inout("buf2"), VIEW, 1),
        (inout("x"), FIRST, 1),
        (inout("buf2_view", base="buf2"), VIEW, 1),
        (inout("buf9"), VIEW, 0),  # another buffer in the same memory
        (arg("buf2"), VIEW, 0),  # it only reads
        (inout("buf2"), NEW, 0),
        (inout("x"), tensor(8, data_ptr=0x1020), 0),  # another part of the argument
    ],
)
def test_launches_that_write_to_a_view(tmp_path: Path, written: Arg, memory: Tensor, count: int) -> None:
    launches = (SPLITTING, (write(arg("y"), written), (NEW, memory)))
    assert len(check(tmp_path, *launches, buf1=tensor(0, data_ptr=0), buf2=VIEW)) == count


def test_an_argument_without_elements_shares_nothing(tmp_path: Path) -> None:
    splitting = (SPLIT, (tensor(0, data_ptr=0x1000), OTHER, Absent.UNDEFINED, Absent.UNDEFINED))
    assert check(tmp_path, splitting, (write(inout("buf2")), (VIEW,)), buf1=NEW, buf2=VIEW) == ()


def test_a_view_that_no_later_launch_writes(tmp_path: Path) -> None:
    assert check(tmp_path, (write(inout("buf2")), (VIEW,)), SPLITTING, buf1=NEW, buf2=VIEW) == ()


@pytest.mark.parametrize(
    "maker",
    [
        replace(SPLIT, op="aten.split.default"),
        replace(SPLIT, kind=Kind.SHIM_ALLOC),
    ],
)
def test_operators_of_torch_may_return_views(tmp_path: Path, maker: Site) -> None:
    launches = ((maker, SPLITTING[1]), (write(inout("buf2")), (VIEW,)))
    assert check(tmp_path, *launches, buf1=NEW, buf2=VIEW) == ()
