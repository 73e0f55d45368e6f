from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Kind, Role
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage.contracts.contracts import consequence
from aoti_debug.triage.contracts.layouts import Promised
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor

PROMISED = Promised("cpu", "float32", (4, 8), (8, 1))
REAL = tensor(4, 8)


def effect(
    base: Path, promised: Promised, real: Tensor, role: Role = Role.IN, kind: Kind = Kind.CPP, item_bytes: int = -1
) -> str:
    if item_bytes >= 0:
        real = replace(real, layout=replace(real.layout, item_bytes=item_bytes))
    journal = JournalWriter()
    journal.launch(0, 0, real)
    path = run_directory(base, make_manifest(site("add", arg("buf0", role), kind=kind)), journal)
    (launch,) = open_run(path).launches
    return consequence(launch, launch.args[0], promised, real).removeprefix("launch 0.0 add ")


@pytest.mark.parametrize(
    ("real", "promised", "text"),
    [
        (tensor(4, 8, dtype="float64"), {}, "reads 4 bytes per element of a tensor with 8 bytes per element"),
        (
            tensor(4, 8, dtype="float16"),
            {},
            "reads 4 bytes per element of a tensor with 2 bytes per element, up to 64 bytes past the end of its memory",
        ),
        (tensor(4, 8, dtype="int32"), {}, "reads its bytes as float32"),
        (REAL, {"dtype": "unknown"}, "reads its bytes as unknown"),
        (tensor(5, 8), {}, "accesses it as float32[4, 8]"),
        (tensor(3, 8), {}, "accesses it as float32[4, 8], up to 32 bytes past the end of its memory"),
        (tensor(3, 8, storage_bytes=128), {}, "accesses it as float32[4, 8]"),
        (tensor(3, 8, storage_bytes=127), {}, "accesses it as float32[4, 8], up to 1 bytes past the end of its memory"),
        (
            tensor(3, 8, storage_offset=2, storage_bytes=128),
            {},
            "accesses it as float32[4, 8], up to 8 bytes past the end of its memory",
        ),
        (tensor(3, 8), {"sizes": (4, None)}, "accesses it as float32[4, ?]"),
        (tensor(3, 8), {"strides": (None, 1)}, "accesses it as float32[4, 8]"),
        (REAL, {"device": "cuda:0"}, "uses its address as one of cuda:0"),
        (tensor(4, 8, strides=(1, 4)), {}, "reads its elements in the wrong order, with the promised strides"),
    ],
)
def test_consequences_for_a_generated_kernel(
    tmp_path: Path, real: Tensor, promised: dict[str, object], text: str
) -> None:
    assert effect(tmp_path, replace(PROMISED, **promised), real) == text  # type: ignore[arg-type]


def test_an_element_of_unknown_size(tmp_path: Path) -> None:
    real = tensor(4, 8, dtype="float64")
    assert effect(tmp_path, PROMISED, real, item_bytes=0) == "reads its bytes as float32"


def test_a_kernel_that_writes_too(tmp_path: Path) -> None:
    assert (
        effect(tmp_path, PROMISED, tensor(4, 8, dtype="int32"), Role.INOUT) == "reads and writes its bytes as float32"
    )


def test_an_operator_takes_any_layout(tmp_path: Path) -> None:
    assert effect(tmp_path, PROMISED, tensor(3, dtype="int8"), kind=Kind.SHIM_OUT) == "reads it next"
