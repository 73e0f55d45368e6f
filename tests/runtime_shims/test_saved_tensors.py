"""Level 1: the files of tensors."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from aoti_debug.runs.rundir.formats.tensor_file_format import ALIGNMENT
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.reference_hash import content_hash
from tests.runtime_shims.runtime_library import IN, INOUT, OUT, OUTPUT_SLOT, Handle, Runtime, Slot, address_of
from tests.torch_features import BCOMPLEX32

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
WRITTEN, LINKED, SKIPPED = range(3)
BEFORE, AFTER = range(2)


def header_of(path: Path) -> dict[str, Any]:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    assert (8 + length) % ALIGNMENT == 0  # the elements can be mapped
    header: dict[str, Any] = json.loads(data[8 : 8 + length])
    return header


def bytes_of(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def save(runtime: Runtime, *tensors: torch.Tensor, kernel: str = "k", role: int = IN) -> None:
    """One call with one launch that takes the tensors as x0, x1, …"""
    site = runtime.site(0, kernel, *(Slot(f"x{i}", role=role, value=i) for i in range(len(tensors))))
    given = [Handle(tensor) for tensor in tensors]
    with runtime.call(), runtime.launch(site, *(handle.value for handle in given)):
        pass
    runtime.unload()


def test_names_contents_and_metadata(load: Load, run: Path, journal: Decode) -> None:
    runtime = load(LEVEL=1)
    site = runtime.site(0, "cpp_fused_add_0", Slot("a", role=IN, value=0), Slot("b", role=OUT, value=1))
    a, b = torch.randn(4, 6)[:, 1:].t(), torch.full((3,), 7.0)
    given = Handle(a), Handle(b)
    with runtime.call():
        pass
    with runtime.call(), runtime.launch(site, *(handle.value for handle in given)):
        b += 1
    runtime.unload()
    folder = run / "tensors/1/0000_cpp_fused_add_0"
    assert sorted(os.listdir(folder)) == [
        "after_launch_cpp_fused_add_0_a_cpu.safetensors",
        "after_launch_cpp_fused_add_0_b_cpu.safetensors",
        "before_launch_cpp_fused_add_0_a_cpu.safetensors",
        "before_launch_cpp_fused_add_0_b_cpu.safetensors",
    ]
    for phase, expected in (("before", 7.0), ("after", 8.0)):
        assert torch.equal(load_file(folder / f"{phase}_launch_cpp_fused_add_0_a_cpu.safetensors")["a"], a)
        saved = load_file(folder / f"{phase}_launch_cpp_fused_add_0_b_cpu.safetensors")
        assert list(saved) == ["b"]
        assert torch.equal(saved["b"], torch.full((3,), expected))
    assert header_of(folder / "before_launch_cpp_fused_add_0_a_cpu.safetensors") == {
        "__metadata__": {
            "dtype": "torch.float32",
            "format": "1",
            "shape": "[5,4]",
            "strides": "[1,6]",
            "storage_bytes": "96",
            "storage_offset": "1",
        },
        "a": {"dtype": "F32", "shape": [5, 4], "data_offsets": [0, 80]},
    }
    assert [(r.call, r.launch, r.slot, r.phase, r.status, r.bytes) for r in journal().of("tensor_file")] == [
        *((1, 0, 0, BEFORE, WRITTEN, 80), (1, 0, 1, BEFORE, WRITTEN, 12)),
        *((1, 0, 0, AFTER, LINKED, 80), (1, 0, 1, AFTER, WRITTEN, 12)),
    ]
    for record in journal().of("tensor_file"):
        data = load_file(run / record.path)
        content = bytes_of(next(iter(data.values())))
        assert (record.hash0, record.hash1) == (content_hash(content), content_hash(content, 0xD1B54A32D192ED03))


NATIVE = ("float32", "float64", "float16", "bfloat16", "complex64", "bool", "uint8", "int8", "int16", "int32", "int64")
NATIVE_TOO = ("uint16", "uint32", "uint64", "float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz")


@pytest.mark.parametrize("name", [*NATIVE, *NATIVE_TOO, "float8_e8m0fnu", "float4_e2m1fn_x2"])
def test_dtypes_that_safetensors_knows(load: Load, run: Path, name: str) -> None:
    dtype = getattr(torch, name)
    raw = torch.arange(6 * dtype.itemsize, dtype=torch.uint8) % (2 if name == "bool" else 120)
    tensor = raw.view(dtype).reshape(2, 3)
    save(load(LEVEL=1), tensor)
    path = run / "tensors/0/0000_k/before_launch_k_x0_cpu.safetensors"
    loaded = load_file(path)["x0"]
    assert (loaded.dtype, loaded.shape) == (dtype, tensor.shape)
    assert bytes_of(loaded) == bytes_of(tensor)
    assert header_of(path)["__metadata__"]["dtype"] == f"torch.{name}"


PAIRS = {"complex32": torch.float16, "complex128": torch.float64} | dict.fromkeys(BCOMPLEX32, torch.bfloat16)


@pytest.mark.parametrize(("name", "real"), PAIRS.items())
def test_complex_numbers_as_pairs(load: Load, run: Path, name: str, real: torch.dtype) -> None:
    tensor = torch.randn(3, 5, 2, dtype=torch.float64).to(real).view(getattr(torch, name)).squeeze(-1).t()
    save(load(LEVEL=1), tensor)
    path = run / "tensors/0/0000_k/before_launch_k_x0_cpu.safetensors"
    loaded = load_file(path)["x0"]
    assert (loaded.dtype, loaded.shape) == (real, (5, 3, 2))
    assert torch.equal(loaded, torch.view_as_real(tensor).contiguous())
    metadata = header_of(path)["__metadata__"]
    assert (metadata["dtype"], metadata["shape"]) == (f"torch.{name}", "[5,3]")


def test_shapes(load: Load, run: Path) -> None:
    base = torch.randn(50, 60)
    tensors = [
        *(torch.tensor(2.0), torch.empty(0, 3), base.expand(7, 50, 60), base[::3, ::2]),
        *(torch.randn(2000, 1500).t(), torch.randn(3_000_000)),  # gathered in parts; too large to be written inline
    ]
    save(load(LEVEL=1), *tensors)
    for i, tensor in enumerate(tensors):
        loaded = load_file(run / f"tensors/0/0000_k/before_launch_k_x{i}_cpu.safetensors")[f"x{i}"]
        assert torch.equal(loaded, tensor)


def test_equal_bytes_are_links(load: Load, run: Path, journal: Decode) -> None:
    runtime = load(LEVEL=1)
    site = runtime.site(0, "k", Slot("w", role=IN))
    other = runtime.site(1, "k2", Slot("w", role=IN))
    renamed = runtime.site(2, "k3", Slot("v", role=IN))
    w = torch.randn(100_000)
    copy, view = w.clone(), torch.empty(200_000)[::2].copy_(w)
    one, equal, strided = Handle(w), Handle(copy), Handle(view)
    with runtime.call():
        for id_, given in ((site, one), (other, equal), (renamed, one), (site, strided)):
            with runtime.launch(id_, given.value):
                pass
        w[0] += 1
        with runtime.launch(site, one.value):
            pass
    runtime.unload()
    files = {(r.launch, r.phase): run / r.path for r in journal().of("tensor_file")}
    inode = {key: path.stat().st_ino for key, path in files.items()}
    assert inode[0, BEFORE] == inode[0, AFTER] == inode[1, BEFORE] == inode[1, AFTER]
    assert len({inode[launch, BEFORE] for launch in (0, 2, 3, 4)}) == 4  # name, layout and bytes differ
    assert [r.status for r in journal().of("tensor_file")] == [
        *(WRITTEN, LINKED, LINKED, LINKED, WRITTEN, LINKED, WRITTEN, LINKED, WRITTEN, LINKED),
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8, torch.complex128])
@pytest.mark.parametrize("strided", [False, True], ids=["contiguous", "strided"])
def test_large_tensors(load: Load, run: Path, journal: Decode, dtype: torch.dtype, strided: bool) -> None:
    """More than a megabyte: hashed while they are written, unless they begin as an earlier one."""
    numel = 3 * (1 << 20) // dtype.itemsize + 5
    x = (torch.rand(2 * numel) * 200).to(dtype)[::2] if strided else (torch.rand(numel) * 200).to(dtype)
    runtime = load(LEVEL=1)
    site = runtime.site(0, "k", Slot("x", role=INOUT))
    given = Handle(x)
    contents = []
    with runtime.call():
        for _ in range(3):
            contents.append(bytes_of(x))
            with runtime.launch(site, given.value):
                x[-1] += 1  # the beginning stays
            contents.append(bytes_of(x))
    runtime.unload()
    records = journal().of("tensor_file")
    assert [r.status for r in records] == [WRITTEN, WRITTEN, LINKED, WRITTEN, LINKED, WRITTEN]
    for record, content in zip(records, contents, strict=True):
        assert (record.hash0, record.hash1) == (content_hash(content), content_hash(content, 0xD1B54A32D192ED03))
        assert (run / record.path).read_bytes()[-len(content) :] == content


def test_long_and_odd_names(load: Load, run: Path, journal: Decode, library: Path) -> None:
    runtime = load(LEVEL=1)
    kernel, argument = "ns/op.<default>~%ü" + "k" * 300, "../../etc/passwd" + "\t"
    site = runtime.site(0, kernel, Slot(argument), Slot(argument + "2" * 300, value=1), Slot("a" * 400, value=2))
    x = torch.ones(2)
    given = Handle(x)
    with runtime.call(), runtime.launch(site, given.value, given.value, given.value):
        pass
    runtime.unload()
    records = journal().of("tensor_file")
    assert len({r.path for r in records}) == 6
    for record in records:
        folder, name = record.path.split("/")[-2:]
        assert record.path.count("/") == 3
        assert len(folder.encode()) <= 255
        assert len(name.encode()) <= 255
        assert name.endswith(".safetensors")
        assert "%2Fop.%3Cdefault%3E%7E%25%C3%BC" in folder
        (key,) = load_file(run / record.path)
        assert key == (argument, argument + "2" * 300, "a" * 400)[record.slot]
    assert not list(run.parent.glob("**/passwd*"))


def file_name(library: Path, kernel: str, argument: str) -> tuple[str, str]:
    directory, file = ctypes.create_string_buffer(1024), ctypes.create_string_buffer(1024)
    ctypes.CDLL(str(library)).h_file_name(kernel.encode(), argument.encode(), directory, file)
    return directory.value.decode(), file.value.decode()


def test_file_names(library: Path) -> None:
    assert file_name(library, "mylib::op.default", "stride,=@+-_x") == (
        "tensors/c0/0003_mylib::op.default",
        "after_launch_mylib::op.default_stride,=@+-_x_cpu.safetensors",
    )
    stem = "after_launch_k_" + "a" * 300 + "_cpu"
    digest = f"{content_hash(stem.encode()):016x}"[:8]
    cut = stem[: 255 - len(".safetensors") - 9]
    assert file_name(library, "k", "a" * 300)[1] == f"{cut}~{digest}.safetensors"
    assert len(f"{cut}~{digest}.safetensors") == 255


def test_outputs_that_the_callee_allocates(load: Load, run: Path, journal: Decode) -> None:
    runtime = load(LEVEL=1)
    site = runtime.site(0, "k", Slot("y", OUTPUT_SLOT, OUT))
    slot = ctypes.c_uint64(0xDEAD)
    y = torch.arange(4.0)
    given = Handle(y)
    with runtime.call(), runtime.launch(site, address_of(slot)):
        slot.value = given.address
    runtime.unload()
    (record,) = journal().of("tensor_file")
    assert record.phase == AFTER
    assert torch.equal(load_file(run / record.path)["y"], y)


@pytest.mark.parametrize(("phase", "phases"), [("before", {BEFORE}), ("after", {AFTER}), ("both", {BEFORE, AFTER})])
def test_phase(load: Load, journal: Decode, phase: str, phases: set[int]) -> None:
    runtime = load(LEVEL=1, PHASE=phase)
    save(runtime, torch.ones(3), role=INOUT)
    assert {r.phase for r in journal().of("tensor_file")} == phases


def test_filter_and_launch(load: Load, journal: Decode) -> None:
    runtime = load(LEVEL=1, FILTER="triton_*,!*_1", LAUNCH="1.2", PHASE="after")
    names = ("triton_0", "triton_1", "other", "triton_2")
    sites = [runtime.site(i, name, Slot("x")) for i, name in enumerate(names)]
    given = Handle(torch.ones(3))
    for _ in range(3):
        with runtime.call():
            for site in (sites[0], sites[1], sites[3], sites[2]):
                with runtime.launch(site, given.value):
                    pass
    runtime.unload()
    assert [(r.call, r.launch) for r in journal().of("tensor_file")] == [(1, 2)]
    assert len(journal().of("launch_end")) == 12


def test_what_cannot_be_read_is_skipped_with_a_reason(load: Load, journal: Decode) -> None:
    quantized = torch.quantize_per_tensor(torch.randn(5), 0.1, 3, torch.quint8)
    save(load(LEVEL=1, PHASE="before"), torch.eye(3).to_sparse_csr(), quantized, torch.empty(3, device="meta"))
    assert [(r.status, r.reason) for r in journal().of("tensor_file")] == [
        (SKIPPED, "not read: layout sparse_csr"),
        (SKIPPED, "not read: quantized quint8"),
        (SKIPPED, "not read: a meta tensor has no elements"),
    ]


def test_view_beyond_its_storage_is_not_read(load: Load, journal: Decode) -> None:
    storage = torch.ones(10)
    view = storage.as_strided((2, 3), (3, 1), 4)
    storage.untyped_storage().resize_(16)
    save(load(LEVEL=1, PHASE="before"), view)
    (record,) = journal().of("tensor_file")
    assert (record.status, record.reason) == (SKIPPED, "not read: it reaches beyond its storage")


def test_limit_of_a_tensor(load: Load, journal: Decode) -> None:
    save(load(LEVEL=1, MAX_TENSOR_BYTES="1K", PHASE="after"), torch.ones(257), torch.ones(256))
    assert [(r.status, r.reason) for r in journal().of("tensor_file")] == [
        (SKIPPED, "larger than AOTI_DEBUG_MAX_TENSOR_BYTES"),
        (WRITTEN, ""),
    ]


LIMITS = {
    "bytes": ({"MAX_BYTES": "1000"}, "AOTI_DEBUG_MAX_BYTES is reached"),
    "files": ({"MAX_FILES": "2"}, "AOTI_DEBUG_MAX_FILES is reached"),
    "room": ({"KEEP_FREE_BYTES": "1000T"}, "the disk would have less than AOTI_DEBUG_KEEP_FREE_BYTES left"),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_stop_the_saving(
    load: Load, journal: Decode, run: Path, capfd: pytest.CaptureFixture[str], limit: str
) -> None:
    variables, reason = LIMITS[limit]
    runtime = load(LEVEL=1, PHASE="before", **variables)
    save(runtime, *(torch.full((100,), float(i)) for i in range(5)))
    records = journal().of("tensor_file")
    assert len(records) == {"bytes": 2, "files": 2, "room": 0}[limit]
    (note,) = journal().of("note")
    assert (note.code, note.text.partition(": a file")[0]) == (1, f"tensors are no longer saved: {reason}")
    assert (": a file needs 1 MiB, and " in note.text) == (limit == "room")
    assert capfd.readouterr().err == f"aoti-debug: {note.text}\n"
    assert len(journal().of("call_end")) == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("cannot mount a tmpfs here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_full_disk(load: Load, small_disk: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from tests.runtime_shims import journal_decoder

    runtime = load(LEVEL=1, RUN=small_disk, PHASE="before")
    save(runtime, torch.randn(50_000), torch.randn(400_000))
    found = journal_decoder.decode(small_disk / "journal.bin")
    (record,) = found.of("tensor_file")
    assert load_file(small_disk / record.path)["x0"].shape == (50_000,)
    (note,) = found.of("note")
    assert note.text.startswith("tensors are no longer saved: ")
    assert len(capfd.readouterr().err.splitlines()) == 1
    assert len(found.of("call_end")) == 1
    assert [path.name for path in small_disk.glob("tensors/.tmp*")] == []


def test_file_size_limit_of_the_process(load: Load, journal: Decode, capfd: pytest.CaptureFixture[str]) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    runtime = load(LEVEL=1, PHASE="before")
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, before[1]))
    try:
        save(runtime, torch.randn(10), torch.randn(2_000_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [r.status for r in journal().of("tensor_file")] == [WRITTEN]
    assert "File too large" in journal().of("note")[0].text
    assert len(capfd.readouterr().err.splitlines()) == 1


def test_folder_that_cannot_be_made(load: Load, run: Path, journal: Decode) -> None:
    (run / "tensors").write_text("in the way")
    save(load(LEVEL=1, PHASE="before"), torch.randn(10))
    assert journal().of("tensor_file") == []
    assert journal().of("note")[0].text.startswith("tensors are no longer saved: cannot save ")


def test_shared_name_is_saved_once(load: Load, journal: Decode) -> None:
    runtime = load(LEVEL=1, PHASE="before")
    site = runtime.site(0, "index_put", Slot("buf8", value=0), Slot("buf8", value=1))
    given = Handle(torch.ones(3))
    with runtime.call(), runtime.launch(site, given.value, given.value):
        pass
    runtime.unload()
    assert [r.slot for r in journal().of("tensor_file")] == [0]


def test_tensors_stay_as_they_were(load: Load) -> None:
    tensor = torch.randn(1000, 1000)
    expected = tensor.clone()
    save(load(LEVEL=1), tensor.t())
    assert np.array_equal(tensor.numpy(), expected.numpy())
