from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.argument_values import Absent, Tensor
from aoti_debug.package.manifest import Form, Kind, Role
from aoti_debug.runs.diagnosis.dataflow import Dataflow
from aoti_debug.runs.diagnosis.findings import Finding, Place, place_of
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.triage.contracts.contracts import Blame
from aoti_debug.triage.contracts.layouts import Promised
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

X, BUF1 = tensor(4, data_ptr=0x1000), tensor(4, data_ptr=0x2000)
PROMISED = Promised("cpu", "int32", (4,), (1,))
ASK = site("mylib::ask", arg("x"), arg("buf1", Role.OUT, Form.LIST), kind=Kind.PROXY, op="mylib::ask.default")
FILL = site("cpp_fill", arg("x"), arg("buf1", Role.OUT), kind=Kind.CPP)
READ = site("cpp_read", arg("buf1"), kind=Kind.CPP)
MANIFEST = replace(make_manifest(ASK, FILL, READ), inputs=("x",), input_names=("image",), outputs=("buf2",))
ASKING, FILLING, READING = range(3)


def run(base: Path, maker: int, readers: int = 1, outputs: tuple[str, ...] = ()) -> RunDir:
    """A run of a launch that makes buf1 from x, and of others that read it."""
    journal = JournalWriter()
    journal.launch_begin(0, maker, X, Absent.UNDEFINED if maker == ASKING else BUF1)
    journal.launch_end(0, {1: BUF1} if maker == ASKING else {})
    for number in range(readers):
        journal.launch(1 + number, READING, BUF1)
    return open_run(run_directory(base, replace(MANIFEST, outputs=outputs), journal))


def of_producer(run_: RunDir, launch: int, name: str, tensor_: Tensor) -> Finding:
    of = run_.launches[launch]
    argument = of.argument(name)
    assert argument is not None
    return Blame(Dataflow(run_)).producer_finding(of, argument, tensor_, PROMISED)


def of_reader(run_: RunDir, launch: int, name: str | None, evidence: str = "") -> Finding:
    of = run_.launches[launch]
    argument = None if name is None else of.argument(name)
    return Blame(Dataflow(run_)).reader_finding(of, argument, "cannot use it", evidence)


PROMISE = "buf1 was promised as int32[4], strides [1], on cpu"
FAKE = "mylib::ask.default: its real kernel does not return what its fake kernel describes"


def real_in(launch: str, name: str = "buf1") -> str:
    return f"in launch {launch} it is float32[4], strides [1], on cpu, in a storage of 16 bytes"


def reads(launch: str) -> str:
    return f"launch {launch} cpp_read reads its bytes as int32"


def test_the_operator_that_returned_a_tensor_is_to_blame(tmp_path: Path) -> None:
    run_ = run(tmp_path, ASKING, readers=5)
    finding = of_producer(run_, 0, "buf1", BUF1)
    assert finding.what == "mylib::ask returned float32[4] where int32[4] was promised"
    assert finding.where == place_of(run_.launches[0], "buf1")
    assert finding.evidence == (PROMISE, real_in("0.0"), FAKE, reads("0.1"), reads("0.2"), reads("0.3"))


def test_the_kernel_that_wrote_a_tensor_is_to_blame(tmp_path: Path) -> None:
    run_ = run(tmp_path, FILLING, readers=3, outputs=("buf1",))
    finding = of_producer(run_, 2, "buf1", BUF1)  # first noticed in the second reader
    assert finding.what == "cpp_fill wrote float32[4] where int32[4] was promised"
    assert finding.where == place_of(run_.launches[0], "buf1")
    assert finding.evidence == (
        *(PROMISE, real_in("0.2")),
        *(reads("0.2"), reads("0.1"), reads("0.3")),
        "it is an output of the model",
    )


def test_an_input_has_no_producer(tmp_path: Path) -> None:
    finding = of_producer(run(tmp_path, ASKING), 0, "x", X)
    assert finding.what == "image is float32[4] where int32[4] was promised"
    assert finding.where == Place(input="image", argument="x")
    assert finding.evidence == (
        "image was promised as int32[4], strides [1], on cpu",
        real_in("0.0"),
        "launch 0.0 mylib::ask reads it next",
    )


def test_a_tensor_that_no_launch_wrote_is_that_of_its_reader(tmp_path: Path) -> None:
    journal = JournalWriter()
    journal.launch(0, READING, BUF1)
    run_ = open_run(run_directory(tmp_path, MANIFEST, journal))
    finding = of_producer(run_, 0, "buf1", BUF1)
    assert finding.what == "cpp_read wrote float32[4] where int32[4] was promised"
    assert finding.evidence == (PROMISE, real_in("0.0"))


@pytest.mark.parametrize("maker", [ASKING, FILLING])
def test_a_reader_that_cannot_use_what_it_was_passed(tmp_path: Path, maker: int) -> None:
    run_ = run(tmp_path, maker)
    finding = of_reader(run_, 1, "buf1", "it may fail")
    maker_place = place_of(run_.launches[0], "buf1")
    assert finding.what == "cpp_read cannot use it"
    assert finding.where == (maker_place if maker == ASKING else place_of(run_.launches[1], "buf1"))
    assert finding.origin == maker_place
    assert finding.evidence == (f"launch 0.0 {MANIFEST.sites[maker].kernel} wrote it",)
    assert finding.possible == ("it may fail",)


def test_a_reader_that_cannot_use_an_input(tmp_path: Path) -> None:
    run_ = run(tmp_path, FILLING)
    finding = of_reader(run_, 0, "x")
    assert finding.where == place_of(run_.launches[0], "x", input_="image")
    assert finding.origin == Place(input="image")
    assert finding.evidence == ("it is image, an input of the model",)


def test_a_reader_without_a_single_argument_at_fault(tmp_path: Path) -> None:
    run_ = run(tmp_path, ASKING)
    for name in (None, "buf1"):  # a result is no argument that it was passed
        finding = of_reader(run_, 0, name)
        assert finding.where == place_of(run_.launches[0], name or "")
        assert (finding.origin, finding.evidence) == (None, ())
