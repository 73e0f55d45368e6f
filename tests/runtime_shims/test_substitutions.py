"""Launches that are skipped, get other results, or before which the run stops."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import Action, NoteCode, Phase
from aoti_debug.compare.what_if.substituted_run import Instruction, Replace, Round, Skip, Stop, Wait, write
from aoti_debug.runs.run.saved_outputs import write_tensor
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.runtime_library import IN, OUT, OUTPUT_SLOT, Handle, Runtime, Slot, address_of, handles

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
X, OUT_0 = Slot("x", role=IN), Slot("buf0", role=OUT, value=1)


@pytest.fixture(params=["host", "device"])
def start(request: pytest.FixtureRequest, load: Load, library: Path, tmp_path: Path) -> Callable[..., Runtime]:
    """A runtime with instructions, whose tensors are in host memory or on the fake device."""
    on_device = request.param == "device"
    used = request.getfixturevalue("device_library") if on_device else library

    def start_(instructions: Sequence[Instruction], **variables: object) -> Runtime:
        write(tmp_path / "instructions", instructions)
        runtime = load(used, SUBSTITUTE=tmp_path / "instructions", PRINT="none", **variables)
        runtime.keep(on_device)
        return runtime

    return start_


def recorded(tmp_path: Path, tensor: torch.Tensor) -> Path:
    write_tensor(tmp_path / "recorded.safetensors", "buf0", tensor)
    return tmp_path / "recorded.safetensors"


def launch(runtime: Runtime, out: torch.Tensor, value: float | torch.Tensor, launches: int = 1) -> list[int]:
    """Launches that fill `out`, unless they are told otherwise; returns what they were told."""
    site = runtime.site(0, "fill", X, OUT_0)
    given = [Handle(torch.zeros(2)), Handle(out)]
    if hasattr(runtime.lib, "f_mark"):
        for handle in given:
            runtime.lib.f_mark(handle.pointer)
    told = []
    with runtime.call():
        for _ in range(launches):
            opened = runtime.launch_of(site, *(handle.value for handle in given))
            told.append(opened.begin())
            if told[-1] == Action.STOP:
                break
            if told[-1] == Action.RUN:
                out.copy_(torch.as_tensor(value))
            opened.end()
    if hasattr(runtime.lib, "f_mark"):
        for handle in given:
            runtime.lib.f_unmark(handle.pointer)
    runtime.unload()
    return told


def notes(journal: Journal, code: NoteCode) -> list[str]:
    return [note.text for note in journal.of("note") if note.code == code]


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "with gaps"])
def test_a_result_is_replaced(start: Callable[..., Runtime], journal: Decode, tmp_path: Path, layout: str) -> None:
    whole = torch.full((8, 8), -1.0)
    out = {"contiguous": whole[:4], "transposed": whole[:4].t(), "with gaps": whole[::2, 1:5]}[layout]
    expected = torch.arange(float(out.numel())).reshape(out.shape)
    runtime = start([Replace("0.1", "buf0", recorded(tmp_path, expected))])
    assert launch(runtime, out, 7.0, launches=2) == [Action.RUN, Action.RUN]
    assert torch.equal(out, expected)
    untouched = torch.ones_like(whole, dtype=torch.bool)
    untouched.as_strided(out.shape, out.stride(), out.storage_offset()).zero_()
    assert (whole[untouched] == -1.0).all()
    assert notes(journal(), NoteCode.SUBSTITUTED) == ["results replaced: 1, launches skipped: 0"]


def test_the_launch_itself_is_recorded_before_its_result_is_replaced(
    start: Callable[..., Runtime], run: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    out = torch.zeros(4)
    launch(start([Replace("0.0", "buf0", recorded(tmp_path, torch.ones(4)))], LEVEL=1), out, 7.0)
    (saved,) = run.rglob("after_launch_fill_buf0_*.safetensors")
    assert load_file(saved)["buf0"].tolist() == [7.0] * 4
    assert out.tolist() == [1.0] * 4


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (torch.ones(5), "it is float32[4] here, and float32[5] was recorded"),
        (torch.ones(4, dtype=torch.int32), "it is float32[4] here, and int32[4] was recorded"),
        (torch.ones(2, 2), "it is float32[4] here, and float32[2, 2] was recorded"),
    ],
)
def test_a_result_of_another_kind_is_refused(
    start: Callable[..., Runtime], journal: Decode, tmp_path: Path, other: torch.Tensor, reason: str
) -> None:
    out = torch.zeros(4)
    launch(start([Replace("0.0", "buf0", recorded(tmp_path, other))]), out, 7.0)
    assert out.tolist() == [7.0] * 4
    assert notes(journal(), NoteCode.NOT_SUBSTITUTED) == [f"0.0 buf0 was not replaced: {reason}"]


def test_a_file_that_is_too_short_is_refused(start: Callable[..., Runtime], journal: Decode, tmp_path: Path) -> None:
    path, out = recorded(tmp_path, torch.ones(4)), torch.zeros(4)
    runtime = start([Replace("0.0", "buf0", path), Replace("0.0", "buf9", path)])
    path.write_bytes(path.read_bytes()[:-1])
    launch(runtime, out, 7.0)
    assert out.tolist() == [7.0] * 4
    size, missing = notes(journal(), NoteCode.NOT_SUBSTITUTED)
    assert size.endswith("has another size")
    assert missing == "0.0 buf9 was not replaced: it is no tensor here"


def test_a_launch_is_skipped(start: Callable[..., Runtime], journal: Decode) -> None:
    out = torch.zeros(4)
    assert launch(start([Skip("0.0"), Skip("0.9")]), out, 7.0) == [Action.SKIP]
    assert out.tolist() == [0.0] * 4
    (summary,) = notes(journal(), NoteCode.SUBSTITUTED)
    assert summary == "results replaced: 0, launches skipped: 1; not reached: 0.9"
    assert len(journal().of("launch_end")) == 1


def test_a_launch_that_makes_its_result_is_not_skipped(load: Load, journal: Decode, tmp_path: Path) -> None:
    write(tmp_path / "instructions", [Skip("0.0")])
    runtime = load(SUBSTITUTE=tmp_path / "instructions")
    site = runtime.site(0, "makes", Slot("buf0", OUTPUT_SLOT, OUT))
    handle = Handle(torch.zeros(2))
    made = handles(handle)
    with runtime.call():
        opened = runtime.launch_of(site, address_of(made))
        assert opened.begin() == Action.RUN
        opened.end()
    runtime.unload()
    assert notes(journal(), NoteCode.NOT_SUBSTITUTED) == ["0.0 was not skipped: it makes its results itself"]


def test_the_run_stops_before_a_launch(start: Callable[..., Runtime], journal: Decode) -> None:
    out = torch.zeros(4)
    assert launch(start([Stop("0.1")]), out, 7.0, launches=3) == [Action.RUN, Action.STOP]
    assert notes(journal(), NoteCode.STOPPED) == ["stopped before launch 0.1 fill"]
    assert (len(journal().of("launch_begin")), len(journal().of("launch_end"))) == (2, 1)
    assert journal().of("fault") == []


def test_the_process_waits_before_a_launch(load: Load, tmp_path: Path) -> None:
    wait = tmp_path / "wait"
    wait.touch()
    waiting = wait.with_name("wait.waiting")
    seen: list[str] = []

    def release() -> None:
        while not waiting.exists():
            time.sleep(0.01)
        seen.append(waiting.read_text())
        wait.unlink()

    thread = threading.Thread(target=release)
    thread.start()
    write(tmp_path / "instructions", [Wait("0.0", wait)])
    assert launch(load(SUBSTITUTE=tmp_path / "instructions"), torch.zeros(2), 1.0) == [Action.RUN]
    thread.join()
    assert int(seen[0]) > 0
    assert not waiting.exists()


@pytest.mark.parametrize("line", ["jump\t0.1", "skip", "skip\tx", "value\t0.1\tbuf0\t6\t4\t0", "wait\t0.1"])
def test_what_is_no_instruction_is_reported(load: Load, journal: Decode, tmp_path: Path, line: str) -> None:
    (tmp_path / "instructions").write_text(f"skip\t0.0\n{line}\n")
    out = torch.zeros(2)
    assert launch(load(SUBSTITUTE=tmp_path / "instructions"), out, 1.0) == [Action.RUN]
    (note,) = notes(journal(), NoteCode.NOT_SUBSTITUTED)
    assert note == f"{tmp_path}/instructions, line 2: this is no instruction"


TARGETS = ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float32"]


def awkward(dtype: torch.dtype) -> torch.Tensor:
    """Numbers of every size, ties, limits of narrower dtypes, NaN and infinities."""
    generator = torch.Generator().manual_seed(0)
    exponents = torch.arange(-150, 128, dtype=torch.float64)
    sizes = torch.cat([torch.exp2(exponents) * factor for factor in (1.0, 1.0625, 1.125, 1.1875, 1.5, 1.96875)])
    limits = torch.tensor(
        [448.0, 464.0, 465.0, 480.0, 57344.0, 61440.0, 61439.0, 65504.0, 65520.0, 3.39e38], dtype=torch.float64
    )
    drawn = torch.randn(1000, generator=generator, dtype=torch.float64) * 100
    whole = torch.cat([sizes, limits, drawn, torch.tensor([0.0, float("inf"), float("nan")], dtype=torch.float64)])
    return torch.cat([whole, -whole]).to(dtype)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("own", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_a_result_is_rounded_as_torch_casts(
    start: Callable[..., Runtime], journal: Decode, own: torch.dtype, target: str
) -> None:
    values = awkward(own)
    out = torch.zeros_like(values)
    runtime = start([Round("0.0", "buf0", target, Phase.AFTER)])
    launch(runtime, out, values)
    narrow = getattr(torch, target)
    whole = values.clamp(-448, 448) if target == "float8_e4m3fn" else values  # earlier versions of torch give NaN there
    expected = whole.to(narrow).to(own)
    assert torch.equal(out.isnan(), expected.isnan())
    assert torch.equal(out[~out.isnan()], expected[~out.isnan()])
    assert notes(journal(), NoteCode.SUBSTITUTED) == ["tensors rounded: 1"]


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "with gaps"])
def test_what_a_launch_reads_is_rounded_while_it_runs(start: Callable[..., Runtime], layout: str) -> None:
    whole = torch.linspace(0.1, 7.7, 64).reshape(8, 8)
    before = whole.clone()
    x = {"contiguous": whole[:4], "transposed": whole[:4].t(), "with gaps": whole[::2, 1:5]}[layout]
    seen = copy_launch(start([Round("0.0", "x", "bfloat16", Phase.BEFORE)]), x, torch.zeros_like(x))
    assert torch.equal(seen, before.as_strided(x.shape, x.stride(), x.storage_offset()).bfloat16().float())
    assert torch.equal(whole, before)


def test_memory_of_the_host_that_is_not_writable_is_rounded(load: Load, library: Path, tmp_path: Path) -> None:
    write(tmp_path / "instructions", [Round("0.0", "x", "float8_e5m2", Phase.BEFORE)])
    runtime = load(library, SUBSTITUTE=tmp_path / "instructions", PRINT="none")
    with mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        x = torch.frombuffer(memory, dtype=torch.float32)[:4]
        x.copy_(torch.tensor([0.1, 0.2, 0.3, 1e-3]))
        before = x.clone()
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mprotect(ctypes.c_void_p(x.data_ptr()), mmap.PAGESIZE, mmap.PROT_READ) == 0
        seen = copy_launch(runtime, x, torch.zeros(4))
        assert torch.equal(seen, before.to(torch.float8_e5m2).float())
        assert torch.equal(x, before)
        del x


def test_memory_that_the_launch_has_written_is_not_given_back(start: Callable[..., Runtime]) -> None:
    x = torch.tensor([0.1, 0.2, 0.3, 0.4])
    copy_launch(start([Round("0.0", "x", "bfloat16", Phase.BEFORE)]), x, x[1:3], value=5.0)
    assert x[1:3].tolist() == [5.0, 5.0]


def test_what_cannot_be_rounded_is_said(start: Callable[..., Runtime], journal: Decode) -> None:
    out = torch.zeros(4, dtype=torch.int32)
    rounds = [Round("0.0", name, "bfloat16", Phase.AFTER) for name in ("buf0", "buf7")]
    launch(start(rounds), out, 3)
    assert out.tolist() == [3] * 4
    assert notes(journal(), NoteCode.NOT_SUBSTITUTED) == [
        "0.0 buf0 was not rounded: it is int32[4], which is not rounded to bfloat16",
        "0.0 buf7 was not rounded: it is no tensor here",
    ]


def copy_launch(runtime: Runtime, x: torch.Tensor, out: torch.Tensor, value: float | None = None) -> torch.Tensor:
    """One launch that writes `value` or what it reads; returns what it read."""
    site = runtime.site(0, "copy", X, OUT_0)
    given = [Handle(x), Handle(out)]
    on_device = hasattr(runtime.lib, "f_mark")
    if on_device:
        for handle in given:
            runtime.lib.f_mark(handle.pointer)
    with runtime.call():
        opened = runtime.launch_of(site, *(handle.value for handle in given))
        assert opened.begin() == Action.RUN
        seen = x.clone()
        out.copy_(seen if value is None else torch.full_like(out, value))
        opened.end()
    if on_device:
        for handle in given:
            runtime.lib.f_unmark(handle.pointer)
    runtime.unload()
    return seen
