"""The parts of a compared build that are not eager's, bit for bit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aoti_debug.compare.bisect.equality import Equality, UnequalLaunch, equality_of, joined, numbered, of_first_set
from aoti_debug.compare.measure.output_errors import OutputError
from aoti_debug.compare.protocol.measurement import EXPORTED_EAGER, Advance, StateChange

SAME = OutputError(index=0, dtype="float32", elements=8, different=0, relative=0.0)
OTHER = OutputError(index=1, dtype="float32", elements=8, different=3, relative=1e-7)
KEPT = StateChange(name="cache", call=0, launch="0.1", advance=Advance.RIGHT, change=1.0, difference=0.0)

DRAWING = SimpleNamespace(reason="random numbers: prims.inductor_seeds.default", outputs=())


def comparison(folder: Path, **members: Any) -> Any:
    plain = {
        "outputs": (SAME,),
        "states": (),
        "refusal": None,
        "unfinished": "",
        "outputs_missing": "",
        "states_failure": "",
        "setting": None,
        "rows": (),
        "coverage": SimpleNamespace(compared=2),
        "directory": str(folder),
    }
    return SimpleNamespace(**plain | members)


@pytest.mark.parametrize(
    ("members", "outputs", "unknown"),
    [
        ({}, (), ""),
        ({"outputs": (SAME, OTHER)}, ("output 1: 3 of 8 elements differ",), ""),
        ({"states": (KEPT,)}, (), ""),
        (
            {
                "states": (
                    StateChange(name="cache", call=2, launch="0.1", advance=Advance.RIGHT, change=1.0, difference=1e-7),
                )
            },
            ("state cache after call 2",),
            "",
        ),
        ({"outputs": ()}, (), "the model returns no tensor"),
        ({"unfinished": "it was killed"}, (), "it was killed"),
        ({"refusal": SimpleNamespace(error="IndexError: no")}, (), "eager raises IndexError: no"),
        ({"states_failure": "a weight is not known"}, (), "a weight is not known"),
        ({"rows": (DRAWING,)}, (), "the program draws random numbers, others in each run"),
    ],
)
def test_outputs_and_states_count_bit_for_bit(
    tmp_path: Path, members: dict[str, Any], outputs: tuple[str, ...], unknown: str
) -> None:
    found = equality_of(comparison(tmp_path, **members))
    assert (found.outputs, found.unknown) == (outputs, unknown)
    assert found.is_equal is (not outputs and not unknown)


def test_hashes_are_those_of_what_was_returned(tmp_path: Path) -> None:
    (tmp_path / EXPORTED_EAGER).mkdir()
    file = tmp_path / EXPORTED_EAGER / "0.safetensors"
    hashes = []
    for content in (b"1", b"2", b"1"):
        file.write_bytes(content)
        hashes.append(equality_of(comparison(tmp_path)).eager)
    assert hashes[0] == hashes[2] != hashes[1]


def test_every_set_of_inputs_counts() -> None:
    first = Equality(compared=2, eager="a", returned="b")
    launch = UnequalLaunch(launch="0.1", kernel="cpp_1")
    second = numbered(Equality(launches=(launch,), outputs=("output 0",), eager="c", returned="d"), 2)
    found = joined([first, second])
    assert not found.is_equal
    assert found.outputs == ("output 0 (inputs 2)",)
    assert [launch.launch for launch in found.launches] == ["0.1 of inputs 2"]
    assert (of_first_set(found.eager), of_first_set(found.returned)) == ("a", "b")
