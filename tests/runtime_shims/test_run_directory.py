"""Where a run goes, and the life of a run: unloading, forks, several packages in one process."""

from __future__ import annotations

import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.machine.files import results_home
from tests.runtime_shims import journal_decoder
from tests.runtime_shims.child import in_child
from tests.runtime_shims.runtime_library import Handle, Runtime, Slot

Load = Callable[..., Runtime]


def one_launch(runtime: Runtime) -> None:
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(3))
    with runtime.call(), runtime.launch(site, handle.value):
        pass


def test_embedded_run(load: Load, tmp_path: Path) -> None:
    base = tmp_path / "some where" / "runs"
    package = tmp_path / 'a "b".pt2'
    with package.open("w"), package.open(), (tmp_path / "pt2").open("w"):
        runtime = load(RUN=None, DIR=base, FILTER="k*,!*_1", PHASE="after", PRINT="none")
    one_launch(runtime)
    (folder,) = [path for path in base.iterdir() if not path.is_symlink()]
    assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{os.getpid()}", folder.name)
    assert os.readlink(base / "latest") == folder.name
    info = json.loads((folder / "run.json").read_text())
    started = info.pop("started")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d", started)
    assert info == {
        "format": 1,
        "tool_version": "0.1.0",
        "torch_version": "2.13.0",
        "pid": os.getpid(),
        "level": 3,
        "filters": ["k*", "!*_1"],
        "module_filters": [],
        "line_filters": [],
        "phase": "after",
        "device": "cpu",
        "command": [os.fsdecode(word) for word in Path("/proc/self/cmdline").read_bytes().split(b"\0")[:-1]],
        "loaded_from": {"library": os.path.realpath(runtime.lib._name), "packages": [str(package)]},
        "host": "embedded",
        "exit": {"kind": "running", "detail": None},
    }
    assert json.loads((folder / "manifest.json").read_text())["sites"] == []
    runtime.unload()
    assert json.loads((folder / "run.json").read_text())["exit"] == {"kind": "clean", "detail": None}
    assert len(journal_decoder.decode(folder / "journal.bin").of("run_end")) == 1


def test_the_place_of_a_package_that_was_deleted_while_it_was_open(load: Load, tmp_path: Path) -> None:
    package = tmp_path / "model.pt2"
    with package.open("w"):
        package.unlink()
        runtime = load(RUN=None, DIR=tmp_path / "runs", PRINT="none")
    one_launch(runtime)
    (folder,) = [path for path in (tmp_path / "runs").iterdir() if not path.is_symlink()]
    assert json.loads((folder / "run.json").read_text())["loaded_from"]["packages"] == [str(package)]


def test_a_program_ends_a_run_and_the_next_call_begins_another(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    runtime = load(RUN=first, PRINT="none")
    assert runtime.lib.aoti_debug_end_run() == 1
    one_launch(runtime)
    with runtime.call():
        assert runtime.lib.aoti_debug_end_run() == 0
    assert runtime.lib.aoti_debug_end_run() == 1
    ended = journal_decoder.decode(first / "journal.bin")
    assert (len(ended.of("call_begin")), len(ended.of("run_end"))) == (2, 1)
    monkeypatch.setenv("AOTI_DEBUG_RUN", str(second))
    monkeypatch.setenv("AOTI_DEBUG_LEVEL", "2")
    one_launch(runtime)
    monkeypatch.setenv("AOTI_DEBUG_LEVEL", "0")
    assert runtime.lib.aoti_debug_end_run() == 1
    assert runtime.lib.h_level() == 0
    one = journal_decoder.decode(second / "journal.bin")
    assert (len(one.of("call_begin")), len(one.of("tensor_stats")), len(one.of("run_end"))) == (1, 1, 1)
    runtime.unload()


def test_runs_are_never_overwritten(load: Load, tmp_path: Path) -> None:
    base = tmp_path / "runs"
    for _ in range(3):
        runtime = load(RUN=None, DIR=base, PRINT="none")
        one_launch(runtime)
        runtime.unload()
    folders = [path for path in base.iterdir() if not path.is_symlink()]
    assert len(folders) == 3
    assert (base / "latest").resolve() in folders


def test_default_directory(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runtime = load(RUN=None, LEVEL=1)
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(3))
    with runtime.call():
        monkeypatch.chdir("/")  # a host may go elsewhere
        with runtime.launch(site, handle.value):
            pass
    runtime.unload()
    latest = tmp_path / "aoti-debug/runs" / "latest"
    assert len(list(latest.glob("tensors/0/0000_k/*.safetensors"))) == 2


@pytest.mark.parametrize(
    ("home", "taken", "folder"),
    [
        (None, ["aoti-debug"], "aoti-debug-results/runs"),
        ("mine/home", ["aoti-debug"], "mine/home/runs"),
        ("aoti-debug", ["aoti-debug"], None),
        (None, ["aoti-debug", "aoti-debug-results"], None),
    ],
)
def test_the_home_is_a_place_that_is_free_or_marked(
    load: Load,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    home: str | None,
    taken: list[str],
    folder: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in taken:
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    for _ in range(2):
        runtime = load(RUN=None, HOME=home, PRINT="none")
        one_launch(runtime)
        runtime.unload()
    assert all([path.name for path in (tmp_path / name).iterdir()] == ["file"] for name in taken)
    if folder is None:
        assert "nothing is recorded: aoti-debug" in capfd.readouterr().err
        return
    assert len([path for path in (tmp_path / folder).iterdir() if not path.is_symlink()]) == 2
    assert results_home.is_home((tmp_path / folder).parent)
    assert ((tmp_path / folder).parent / ".gitignore").read_text() == "*\n"


def test_in_a_home_runs_lie_in_it(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results_home.mark(tmp_path / "home")
    monkeypatch.chdir(tmp_path / "home")
    runtime = load(RUN=None, PRINT="none")
    one_launch(runtime)
    runtime.unload()
    assert len(list((tmp_path / "home/runs").glob("2*"))) == 1


def test_a_parents_directory_is_adopted(load: Load, run: Path) -> None:
    (run / "manifest.json").write_text("the parent's")
    runtime = load(PRINT="none")
    one_launch(runtime)
    runtime.unload()
    assert sorted(os.listdir(run)) == ["journal.bin", "manifest.json"]
    assert (run / "manifest.json").read_text() == "the parent's"


def test_two_packages_in_one_process(load: Load, run: Path) -> None:
    first, second = load(PRINT="none"), load(PRINT="none")
    one_launch(first)
    one_launch(second)
    one_launch(first)
    first.unload()
    second.unload()
    assert len(journal_decoder.decode(run / "journal.bin").of("launch_end")) == 2
    inner = run / f"process-{os.getpid()}"
    assert len(journal_decoder.decode(inner / "journal.bin").of("launch_end")) == 1
    assert json.loads((inner / "run.json").read_text())["host"] == "embedded"


def test_more_packages_lie_side_by_side(load: Load, run: Path) -> None:
    packages = [load(PRINT="none") for _ in range(4)]
    for package in packages:
        one_launch(package)
    for package in packages:
        package.unload()
    name = f"process-{os.getpid()}"
    assert sorted(str(path.parent.relative_to(run)) for path in run.rglob("journal.bin")) == [
        ".",
        name,
        f"{name}-2",
        f"{name}-3",
    ]


@pytest.mark.parametrize("parent", [True, False])
def test_directory_that_cannot_be_made(
    load: Load, tmp_path: Path, capfd: pytest.CaptureFixture[str], parent: bool
) -> None:
    (tmp_path / "file").write_text("")
    inside = tmp_path / "file" / "runs"
    runtime = load(LEVEL=1, **({"RUN": inside} if parent else {"RUN": None, "DIR": inside}))
    one_launch(runtime)
    assert runtime.lib.h_level() == 0
    one_launch(runtime)
    runtime.unload()
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("aoti-debug: nothing is recorded: ")
    assert line.endswith("Not a directory")


def test_printing_goes_on_without_a_directory(load: Load, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    runtime = load(LEVEL=2, RUN=None, DIR=tmp_path / "file" / "runs")
    one_launch(runtime)
    runtime.unload()
    lines = capfd.readouterr().err.splitlines()
    assert lines[0].startswith("aoti-debug: nothing is recorded: ")
    assert lines[1:3] == ["0.0 before k", f"0.0   in x  float32[3]  cpu  #{lines[2][-8:]}"]


def test_level_0_leaves_nothing(load: Load, run: Path) -> None:
    runtime = load(LEVEL=0)
    assert runtime.lib.h_level() == 0
    runtime.unload()
    assert os.listdir(run) == []


def test_fork_between_calls(load: Load, run: Path) -> None:
    runtime = load(LEVEL=1)
    one_launch(runtime)

    def child() -> None:
        for _ in range(3):
            one_launch(runtime)

    before = (run / "journal.bin").read_bytes()
    assert in_child(child) == 0
    assert (run / "journal.bin").read_bytes() == before
    one_launch(runtime)
    runtime.unload()
    assert len(journal_decoder.decode(run / "journal.bin").of("launch_end")) == 2
    (inner,) = run.glob("process-*")
    found = journal_decoder.decode(inner / "journal.bin")
    assert [(r.call, r.launch) for r in found.of("launch_end")] == [(0, 0), (1, 0), (2, 0)]
    assert found.header["pid"] != os.getpid()
    assert len(list(inner.glob("tensors/*/*/*.safetensors"))) == 6


def test_fork_within_a_launch(load: Load, run: Path) -> None:
    runtime = load(LEVEL=2, PRINT="none")
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(3))
    pid = os.getpid()
    status = None
    with runtime.call():
        with runtime.launch(site, handle.value):
            child = os.fork()
        # Parent and child both leave the launch.
        if child == 0:
            with runtime.launch(site, handle.value):
                pass
    if os.getpid() != pid:
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0
    runtime.unload()
    found = journal_decoder.decode(run / "journal.bin")
    assert len(found.of("launch_begin")) == len(found.of("launch_end")) == 1
    assert len(found.of("call_end")) == 1


def test_statistics_in_the_child_of_a_fork(load: Load, run: Path) -> None:
    runtime = load(LEVEL=2, PRINT="none")
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(2_000_000))

    def measure() -> None:
        with runtime.call(), runtime.launch(site, handle.value):
            pass

    measure()  # OpenMP has its threads now
    assert in_child(measure) == 0
    runtime.unload()
    (inner,) = run.glob("process-*")
    (stats,) = journal_decoder.decode(inner / "journal.bin").of("tensor_stats")
    assert stats.mean == 1


def test_threads_that_end_before_the_library_goes(load: Load, run: Path) -> None:
    runtime = load(PRINT="none")
    for _ in range(20):
        thread = threading.Thread(target=one_launch, args=(runtime,))
        thread.start()
        thread.join()
    runtime.unload()
    found = journal_decoder.decode(run / "journal.bin")
    assert len(found.of("launch_end")) == 20
    assert len({r.block for r in found.of("launch_end")}) == 20


def test_thread_that_outlives_the_library(load: Load, run: Path) -> None:
    runtime = load(PRINT="none")
    recorded, unloaded = threading.Event(), threading.Event()

    def work() -> None:
        one_launch(runtime)
        recorded.set()
        unloaded.wait()

    thread = threading.Thread(target=work)
    thread.start()
    recorded.wait()
    runtime.unload()
    unloaded.set()
    thread.join()
    assert len(journal_decoder.decode(run / "journal.bin").of("run_end")) == 1


def test_unused_space_is_given_back(load: Load, run: Path) -> None:
    runtime = load(PRINT="none")
    one_launch(runtime)
    assert (run / "journal.bin").stat().st_size == 64 + 8 * 65536
    runtime.unload()
    assert (run / "journal.bin").stat().st_size == 64 + 2 * 65536
