"""Memory that runs out: the recording ends, the model and the process go on."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
import torch

from tests.runtime_shims import journal_decoder
from tests.runtime_shims.child import in_child
from tests.runtime_shims.runtime_library import INOUT, Handle, Opaque, Runtime, Slot, handles

Load = Callable[..., Runtime]
EVERY = 2**63
STEPS = ("begin", "first launch", "second launch", "end", "end of the run")
HOST: dict[str, dict[str, object]] = {
    "host level 1": {"LEVEL": 1, "PHASE": "both"},
    "host level 2": {"LEVEL": 2, "GUARDS": 1},
    "host level 3": {"LEVEL": 3, "FLIGHT": 8, "FLIGHT_BYTES": "32M"},
    "host watchpoints": {"LEVEL": 3, "WATCH": "x > 1", "ON_HIT": "save", "SUMMARIES": 1},
}
DEVICE: dict[str, dict[str, object]] = {
    "device level 1": {"LEVEL": 1, "PHASE": "both"},
    "device level 2": {"LEVEL": 2, "GUARDS": 1},
    "device level 3": {"LEVEL": 3, "FLIGHT": 8, "FLIGHT_BYTES": "32M"},
    "device hashes": {"LEVEL": "hash", "SUMMARIES": 1},
    "device watchpoints": {"LEVEL": 3, "WATCH": "x > 1", "ON_HIT": "save"},
}


class Model:
    """Two calls, as generated code makes them: nothing is asked of the runtime while its level is 0."""

    def __init__(self, runtime: Runtime, tensors: Sequence[torch.Tensor], marked: bool) -> None:
        self.runtime = runtime
        self.site = runtime.site(0, "k", Slot("x", role=INOUT))
        self.given = [Handle(tensor) for tensor in tensors]
        self.allocations = 0  # while some fail
        for handle in self.given if marked else ():
            runtime.lib.f_mark(handle.pointer)

    def run(self, step: str, first: int, n_failing: int, failure: str | None = None) -> None:
        """Runs both; in one step of the first, or all of it, or at the end of the run, allocations fail."""

        @contextmanager
        def failing_in(name: str) -> Iterator[None]:
            if step != name:
                yield
                return
            with self.runtime.failing(first, n_failing, failure):
                yield
                self.allocations = self.runtime.lib.h_allocations()

        lib, storage = self.runtime.lib, ctypes.byref(Opaque())
        lib.h_containers(1)
        with failing_in("call"):
            with failing_in("begin"):
                active = lib.h_level() != 0
                if active:
                    lib.h_call_begin(storage, 0, None, None)
            for name, handle in zip(("first launch", "second launch"), self.given, strict=True):
                with failing_in(name):
                    self.launch(handle)
            with failing_in("end"):
                if active:
                    lib.h_call_end(storage, 0)
        if lib.h_level() != 0:
            with self.runtime.call():
                self.launch(self.given[0])
        with failing_in("end of the run"):
            lib.h_containers(-1)

    def launch(self, handle: Handle) -> None:
        if self.runtime.lib.h_level() != 0:
            with self.runtime.launch(self.site, handle.value):
                pass


def sweep(
    load: Load,
    library: Path,
    folder: Path,
    variables: dict[str, object],
    step: str,
    numels: tuple[int, int],
    every: bool,
) -> None:
    """Has each allocation of a step fail in turn, or it and all that follow in the step.

    A run of its own for each: it must end, and be over with the last model.
    """
    marked = library.stem == "fake_device"
    tensors = [torch.full((numel,), 2.0 + i) for i, numel in enumerate(numels)]  # a child has no threads for this

    def work() -> None:
        for first in count():
            (folder / "progress").write_text(str(first))
            run = folder / f"run{first}"
            run.mkdir()
            runtime = load(library, RUN=run, PRINT="stderr", **variables)
            runtime.lib.h_use_one_thread()
            model = Model(runtime, tensors, marked)
            model.run(step, first, EVERY if every else 1)
            if (run / "journal.bin").exists() and (run / "journal.bin").stat().st_size != 0:
                found = journal_decoder.decode(run / "journal.bin")
                assert len(found.of("run_end")) == 1 or found.of("call_begin") == [], first
            assert list(run.glob("tensors/.tmp*")) == [], first
            runtime.unload()
            if model.allocations <= first:
                return

    try:
        assert in_child(work) == 0
    except AssertionError as error:
        raise AssertionError(f"allocation {(folder / 'progress').read_text()}: {error}") from error


@pytest.mark.parametrize("every", [False, True], ids=["one fails", "all fail"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("settings", HOST)
def test_on_a_host(load: Load, library: Path, tmp_path: Path, settings: str, step: str, every: bool) -> None:
    sweep(load, library, tmp_path, HOST[settings], step, (3, 4096), every)


@pytest.mark.parametrize("every", [False, True], ids=["one fails", "all fail"])
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("settings", DEVICE)
def test_on_a_device(load: Load, device_library: Path, tmp_path: Path, settings: str, step: str, every: bool) -> None:
    sweep(load, device_library, tmp_path, DEVICE[settings], step, (3, 4096), every)


@pytest.mark.parametrize(("failure", "why"), [(None, "out of memory"), ("a planted failure", "a planted failure")])
def test_the_reason_is_told(
    load: Load, library: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], failure: str | None, why: str
) -> None:
    told, noted = set(), set()
    for first in count():
        run = tmp_path / f"run{first}"
        run.mkdir()
        runtime = load(library, RUN=run, PRINT="none", LEVEL=1)
        model = Model(runtime, [torch.ones(3), torch.ones(4)], False)
        model.run("call", first, 1, failure)
        runtime.unload()
        told |= set(capfd.readouterr().err.splitlines())
        if (run / "journal.bin").exists():
            noted |= {note.text for note in journal_decoder.decode(run / "journal.bin").of("note")}
        if model.allocations <= first:
            break
    beginnings = ("nothing is recorded", "recording stopped", "tensors are no longer saved")
    assert told == {f"aoti-debug: {beginning}: {why}" for beginning in beginnings}
    assert f"recording stopped: {why}" in noted


@pytest.mark.parametrize("every", [False, True], ids=["one fails", "all fail"])
@pytest.mark.parametrize("settings", ["device level 2", "device watchpoints"])
def test_as_the_library_is_unloaded(
    load: Load, device_library: Path, tmp_path: Path, settings: str, every: bool
) -> None:
    x = torch.full((3,), 2.0)

    def work() -> None:
        for first in range(40):
            run = tmp_path / f"run{first}"
            run.mkdir()
            runtime = load(device_library, RUN=run, **DEVICE[settings])
            with runtime.call():
                Model(runtime, [x], True).launch(Handle(x))
            runtime.lib.h_fail_allocations(first, EVERY if every else 1, None)
            runtime.unload()
            assert len(journal_decoder.decode(run / "journal.bin").of("run_end")) == 1, first

    assert in_child(work) == 0


@pytest.mark.parametrize("every", [False, True], ids=["one fails", "all fail"])
def test_while_tensors_are_printed(load: Load, device_library: Path, tmp_path: Path, every: bool) -> None:
    """A print fails or is missing; the next one is written."""
    x = torch.full((3,), 2.0)

    def work() -> None:
        runtime = load(device_library, LEVEL=0)
        given = Handle(x)
        runtime.lib.f_mark(given.pointer)
        for first in count():
            with runtime.failing(first, EVERY if every else 1):
                runtime.lib.h_print(b"{}", handles(given), 1, None, 0)
                runtime.lib.h_print(b"{}", handles(given), 1, None, 0)
                allocations = runtime.lib.h_allocations()
            runtime.lib.h_containers(1)
            runtime.lib.h_containers(-1)
            assert runtime.lib.h_print(b"{}", handles(given), 1, None, 0) == 0
            if allocations <= first:
                break
        runtime.unload()

    assert in_child(work) == 0
