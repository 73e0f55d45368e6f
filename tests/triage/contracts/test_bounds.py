from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.package.argument_values import Tensor
from aoti_debug.package.manifest import Kind
from aoti_debug.runs.rundir.run_directory import open_run
from aoti_debug.triage.contracts import contracts
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor, triton_kernel


def problem(base: Path, value: Tensor, kind: Kind = Kind.CPP, device: str = "cpu", param: str = "") -> str:
    """The problem of an argument; a kernel gets it as `param`, one of in_ptr0, out_ptr0 and xnumel."""
    journal = JournalWriter()
    journal.launch_begin(0, 0, replace(value, layout=replace(value.layout, item_bytes=4)))
    journal.grid(0, 0, (1, 1, 1), 0x1000, 0x2000, 32)
    journal.launch_end(0)
    manifest = make_manifest(site("k", arg("x", param=param), kind=kind), kernels=[triton_kernel("k")])
    (launch,) = open_run(run_directory(base, manifest, journal)).launches
    return contracts.problem(launch, launch.args[0], value, device)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (tensor(4), ""),
        (tensor(0, data_ptr=0, storage_offset=-1), ""),
        (tensor(4, data_ptr=0), "float32[4] without memory: its address is 0"),
        (tensor(1, data_ptr=0), "float32[1] without memory: its address is 0"),
        (tensor(4, dtype="int8", data_ptr=0), "int8[4] without memory: its address is 0"),
        (tensor(4, data_ptr=1), ""),
        (tensor(4, storage_bytes=16), ""),
        (tensor(4, storage_bytes=15), "float32[4] from byte 0 to byte 16 of a storage of 15 bytes"),
        (tensor(4, storage_offset=2, storage_bytes=24), ""),
        (tensor(4, storage_offset=2, storage_bytes=23), "float32[4] from byte 8 to byte 24 of a storage of 23 bytes"),
        (
            tensor(4, dtype="int8", storage_offset=1, storage_bytes=4),
            "int8[4] from byte 1 to byte 5 of a storage of 4 bytes",
        ),
        (
            tensor(4, storage_offset=-1, storage_bytes=64),
            "float32[4] at element -1 of its storage: before its beginning",
        ),
    ],
)
def test_elements_outside_of_their_storage(tmp_path: Path, value: Tensor, text: str) -> None:
    assert problem(tmp_path, value) == text


@pytest.mark.parametrize(("data_ptr", "storage_offset"), [(0, 0), (0x1000, -1), (0x1000, 1)])
def test_elements_of_unknown_size_lie_anywhere(tmp_path: Path, data_ptr: int, storage_offset: int) -> None:
    value = tensor(4, data_ptr=data_ptr, storage_offset=storage_offset, storage_bytes=0)
    assert problem(tmp_path, replace(value, layout=replace(value.layout, item_bytes=0))) == ""


@pytest.mark.parametrize(
    ("kind", "device", "real", "differs"),
    [
        (Kind.CPP, "cuda:0", "cpu", False),
        (Kind.CPP, "cuda:0", "cuda:0", True),
        (Kind.TRITON, "cuda:0", "cuda:0", False),
        (Kind.TRITON, "cuda:0", "cuda:1", True),
        (Kind.TRITON, "cuda:1", "cuda:10", True),
        (Kind.TRITON, "cuda:0", "cpu", True),
        (Kind.TRITON, "cuda", "cuda:3", False),
        (Kind.TRITON, "cuda", "cpu", True),
        (Kind.SHIM_OUT, "cuda:0", "cpu", False),
    ],
)
def test_addresses_on_another_device(tmp_path: Path, kind: Kind, device: str, real: str, differs: bool) -> None:
    runs_on = "cpu" if kind is Kind.CPP else device
    text = f"float32[4] on {real}, but the kernel runs on {runs_on}" if differs else ""
    assert problem(tmp_path, tensor(4, device=real), kind, device) == text


@pytest.mark.parametrize(
    ("value", "param", "is_address"),
    [
        (tensor(1), "", True),
        (tensor(), "", False),
        (tensor(), "in_ptr0", True),
        (tensor(4), "xnumel", False),
    ],
)
def test_a_number_of_a_tensor_on_another_device_is_no_address(
    tmp_path: Path, value: Tensor, param: str, is_address: bool
) -> None:
    assert bool(problem(tmp_path, value, Kind.TRITON, "cuda:0", param)) is is_address
