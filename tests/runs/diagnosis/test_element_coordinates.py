from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.manifest import Role
from aoti_debug.runs.diagnosis.element_coordinates import with_coordinates
from aoti_debug.runs.diagnosis.findings import FAULT, Finding, Place
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run of one launch, which reads the input `ids` of two rows and three columns."""
    package = replace(
        make_manifest(site("cpp_fused_index_0", arg("arg0_1"), arg("buf0", Role.OUT))),
        inputs=("arg0_1",),
        input_names=("ids",),
    )
    journal = JournalWriter()
    journal.call_begin()
    journal.launch(0, 0, tensor(2, 3), tensor(4))
    return open_run(run_directory(tmp_path, package, journal))


@pytest.mark.parametrize(
    ("place", "coordinates"),
    [
        (Place(input="ids", element=5), (1, 2)),
        (Place(input="arg0_1", element=0), (0, 0)),
        (Place("0.0", "cpp_fused_index_0", argument="buf0", element=3), (3,)),
        (Place("0.0", "cpp_fused_index_0", argument="buf0", element=4), ()),
        (Place("0.0", "cpp_fused_index_0", argument="buf0", element=-1), ()),
        (Place("0.7", "gone", argument="buf0", element=1), ()),
        (Place(input="other", element=1), ()),
        (Place(input="ids"), ()),
    ],
)
def test_elements_that_lie_in_their_tensor_have_coordinates(
    run: RunDir, place: Place, coordinates: tuple[int, ...]
) -> None:
    found = with_coordinates(Finding(FAULT, "SIGSEGV", place, origin=place, chain=(place,)), run)
    for located in (found.where, found.origin, *found.chain):
        assert located == replace(place, coordinates=coordinates)


def test_no_place_stays_none(run: RunDir) -> None:
    assert with_coordinates(Finding(FAULT, "SIGSEGV"), run) == Finding(FAULT, "SIGSEGV")
