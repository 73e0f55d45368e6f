from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.instrument.wrapper.promised_layouts import UNKNOWN
from aoti_debug.package.argument_values import Layout
from aoti_debug.package.inputs.symbolic_sizes import Symbols
from aoti_debug.package.manifest import Kind, Promise, Role
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage.contracts import layouts
from aoti_debug.triage.contracts.layouts import Devices, Promised
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

PROMISED = Promised("cpu", "float32", (4, 8), (8, 1))
REAL = tensor(4, 8).layout


@pytest.mark.parametrize(
    ("promised", "real", "texts"),
    [
        (PROMISED, REAL, None),
        (replace(PROMISED, device=""), replace(REAL, device="cuda:1"), None),
        (replace(PROMISED, device="cuda"), replace(REAL, device="cuda:1"), None),
        (replace(PROMISED, sizes=(None, 8)), REAL, None),
        (replace(PROMISED, strides=(None, 1)), replace(REAL, strides=(9, 1)), None),
        (Promised("cpu", "float32", (1, 8), (8, 1)), tensor(1, 8, strides=(3, 1)).layout, None),
        (Promised("cpu", "float32", (2, 8), (8, 1)), tensor(2, 8, strides=(3, 1)).layout, ("strides [8, 1]", "[3, 1]")),
        (Promised("cpu", "float32", (0, 8), (8, 1)), tensor(0, 8, strides=(3, 2)).layout, None),
        (Promised("cpu", "float32", (4, 8), (8,)), REAL, None),  # strides of which nothing is known
        (replace(PROMISED, dtype="int32"), REAL, ("int32[4, 8]", "float32[4, 8]")),
        (replace(PROMISED, sizes=(4, 9)), REAL, ("float32[4, 9]", "float32[4, 8]")),
        (replace(PROMISED, sizes=(None, 9)), REAL, ("float32[?, 9]", "float32[4, 8]")),
        (replace(PROMISED, sizes=(32,), strides=(1,)), REAL, ("float32[32]", "float32[4, 8]")),
        (replace(PROMISED, strides=(1, 4)), REAL, ("strides [1, 4]", "strides [8, 1]")),
        (replace(PROMISED, strides=(None, 4)), REAL, ("strides [?, 4]", "strides [8, 1]")),
        (replace(PROMISED, device="cuda"), REAL, ("on cuda", "on cpu")),
        (replace(PROMISED, device="cuda:0"), replace(REAL, device="cuda:1"), ("on cuda:0", "on cuda:1")),
    ],
)
def test_layouts_that_are_and_are_not_as_promised(
    promised: Promised, real: Layout, texts: tuple[str, str] | None
) -> None:
    assert layouts.differs(promised, real) is (texts is not None)
    expected, found = layouts.contrast(promised, real)
    if texts is None:
        assert (expected, found) == (str(promised), layouts.describe(real))
    else:
        assert expected.endswith(texts[0])
        assert found.endswith(texts[1])


def test_a_contrast_leaves_out_what_is_equal() -> None:
    real = tensor(4, 8, strides=(1, 4), device="cuda:0").layout
    assert layouts.contrast(PROMISED, real) == (
        "float32[4, 8] with strides [8, 1] on cpu",
        "float32[4, 8] with strides [1, 4] on cuda:0",
    )


def test_a_layout_in_full() -> None:
    assert PROMISED.full == "float32[4, 8], strides [8, 1], on cpu"
    assert replace(PROMISED, device="").full == "float32[4, 8], strides [8, 1]"
    assert layouts.full(REAL) == "float32[4, 8], strides [8, 1], on cpu, in a storage of 128 bytes"


def test_a_promise_with_symbols() -> None:
    symbols = Symbols()
    symbols.bind("s0", 5)
    promise = Promise("buf0", "cuda:0", "float32", ("s0", "u1"), ("u1", "1"))
    assert layouts.resolve(promise, symbols, "cuda:1") == Promised("cuda:1", "float32", (5, None), (None, 1))


def devices(base: Path, *written: str, promised: tuple[str, ...] = ("cuda:0",), device: str = "cuda") -> Devices:
    """Of a run whose launches each read the input x on cuda:7, and write a buffer on the device of that name."""
    launch = site("k", arg("x", Role.INOUT), arg("y"), arg("buf0", Role.OUT), kind=Kind.TRITON)
    promises = tuple(Promise(f"buf{n}", name, "float32", ("4",), ("1",)) for n, name in enumerate(promised))
    manifest = replace(make_manifest(launch, device=device), promises=promises, inputs=("x",))
    journal = JournalWriter()
    for number, name in enumerate(written):
        journal.launch(number, 0, *(tensor(4, device=each) for each in ("cuda:7", "cuda:7", name)))
    return Devices(open_run(run_directory(base, manifest, journal)))


def test_the_device_of_a_model_is_that_of_most_of_its_buffers(tmp_path: Path) -> None:
    assert devices(tmp_path / "a", "cuda:1", "cuda:2", "cuda:2", "cpu", "cpu", "cpu").model == "cuda:2"
    assert devices(tmp_path / "b", "cpu").model == "cuda"
    assert devices(tmp_path / "c").model == "cuda"
    assert devices(tmp_path / "d", "cuda:1", device="cpu").model == "cpu"


def test_a_package_that_was_compiled_for_another_device(tmp_path: Path) -> None:
    moved = devices(tmp_path / "a", "cuda:1", promised=("cuda:0", "cuda:0", "cuda:3", "cpu", "cpu", "cpu", ""))
    assert [moved.real(promised) for promised in ("cuda:0", "cuda:1", "cuda:3", "cpu")] == [
        *("cuda:1", "cuda:1", "cuda:3", "cpu"),
    ]
    anywhere = devices(tmp_path / "d", "cuda:1", promised=("cuda",))
    assert anywhere.real("cuda") == "cuda:1"
    unknown = devices(tmp_path / "b", promised=("cuda:0",))
    assert [unknown.real(promised) for promised in ("cuda:0", "cuda:3", "cpu")] == ["cuda", "cuda", "cpu"]
    nowhere = devices(tmp_path / "c", "cuda:1", promised=())
    assert nowhere.real(UNKNOWN) == UNKNOWN
