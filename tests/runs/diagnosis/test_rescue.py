"""Rescue of the flight recorder's memory into files of the run."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import Phase, SaveStatus
from aoti_debug.base.errors import RunDirError
from aoti_debug.package.pt2 import program_weights
from aoti_debug.repro.repro import ReproOptions, write_repro
from aoti_debug.runs.diagnosis import rescue
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.diagnosed_run import open_diagnosed
from aoti_debug.runs.run import runner
from aoti_debug.runs.run.options import RunOptions
from aoti_debug.runs.rundir import flight_recorder, load_tensors, rescued_tensors
from aoti_debug.runs.rundir import run_directory as rundir
from aoti_debug.runs.rundir.flight_recorder import FlightStatus
from aoti_debug.runs.rundir.formats import shared_files, tensor_file_format
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from tests.crashed_run import MANIFEST, NOBODY, SEGV, X, Y, bits, both_launches, crashed, link
from tests.factories import JournalWriter, run_directory
from tests.flight_file import FlightFile, Given


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory of this test where /dev/shm would be."""
    monkeypatch.setattr(shared_files, "DIRECTORY", tmp_path)


def values(run: RunDir, launch: str) -> dict[str, list[object]]:
    loaded = load_tensors.load_launch(run, run.launch(launch), Phase.BEFORE)
    return {name: value.tolist() for name, value in loaded.items()}


@pytest.mark.usefixtures("shared")
def test_the_suspect_and_the_launches_before_it_are_saved(tmp_path: Path) -> None:
    path = crashed(tmp_path, both_launches())
    done = rescue.rescue(path)
    assert ([str(key) for key in done.launches], done.tensors, done.failure) == (["0.0", "0.1"], 3, "")
    run = rundir.open_run(path)
    assert values(run, "0.0") == {"x": [[1, 2], [3, 4]]}
    assert values(run, "0.1") == {"y": [[5, 6], [7, 8]], "w": [[9, 11], [10, 12]]}
    assert load_tensors.load_launch(run, run.launch("0.1"), Phase.BEFORE)["w"].stride() == (1, 2)
    saved = run.launch("0.1").args[1].files[Phase.BEFORE]
    assert saved.path == "tensors/0/0001_second/before_launch_second_w_cpu.safetensors"
    assert not (path / shared_files.FLIGHT_RECORDER).is_symlink()
    assert not list(tmp_path.glob("aoti_debug-*"))
    assert rescue.rescue(path).launches == ()
    assert values(open_diagnosed(path).run, "0.0") == {"x": [[1, 2], [3, 4]]}


@pytest.mark.usefixtures("shared")
@pytest.mark.parametrize("status", [FlightStatus.REFERRED, FlightStatus.KEPT])
def test_weights_that_their_file_has_are_referred_to(tmp_path: Path, status: FlightStatus) -> None:
    """A host compares them before the launch; what a device has copied is compared here."""
    model, data = tmp_path / "model.pt2", bits(5, 6, 7, 8)
    with zipfile.ZipFile(model, "w") as archive:
        archive.writestr("model/data/weights/y", data)
    place = model.read_bytes().index(data)
    file = FlightFile(weights="\t".join(map(str, _described(model))))
    referred = status is FlightStatus.REFERRED
    hashes = tensor_file_format.content_hashes(memoryview(data)) if referred else (0, 0)
    changed = Given(1, bits(9, 10, 11, 12), 128, place=place)
    file.launch(1, Given(0, data, 0, status, place, hashes), changed)
    path = crashed(tmp_path, file)
    assert rescue.rescue(path).tensors == 2
    run = rundir.open_run(path)
    y, w = (argument.files[Phase.BEFORE] for argument in run.launch("0.1").args[:2])
    assert (y.status, Path(y.path).name) == (SaveStatus.REFERRED, "before_launch_second_y_cpu.weight.json")
    assert (y.hash, y.bytes) == (tensor_file_format.content_hashes(memoryview(data)), 16)
    assert (w.status, Path(w.path).suffix) == (SaveStatus.WRITTEN, ".safetensors")
    assert values(run, "0.1") == {"y": [[5, 6], [7, 8]], "w": [[9, 11], [10, 12]]}
    model.unlink()
    with pytest.raises(RunDirError, match="which does not exist"):
        values(run, "0.1")


@pytest.mark.usefixtures("shared")
def test_a_weight_of_an_unknown_file_is_not_made_up(tmp_path: Path) -> None:
    file = FlightFile(weights="a path\twith a tab\t10\t0")
    file.launch(1, Given(0, bits(5, 6, 7, 8), 0, FlightStatus.REFERRED, 64, (1, 2)))
    path = crashed(tmp_path, file)
    assert rescue.rescue(path).tensors == 0
    saved = rundir.open_run(path).launch("0.1").args[0].files[Phase.BEFORE]
    assert (saved.status, saved.reason) == (
        SaveStatus.SKIPPED,
        "the file of the weights, which has its bytes, is not known",
    )


def _described(model: Path) -> tuple[str, int, str]:
    weights = program_weights.describe(model, {})
    return weights.path, weights.size, weights.sha256


@pytest.mark.usefixtures("shared")
def test_the_headline_tells_what_the_rescued_tensors_tell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def headline(run: RunDir, *_: object) -> str:
        return f"y has {values(run, '0.1')['y']}"

    monkeypatch.setattr("aoti_debug.runs.diagnosis.verdict_text.headline", headline)
    verdict = open_diagnosed(crashed(tmp_path, both_launches())).verdict
    assert verdict is not None
    assert verdict.headline == "y has [[5.0, 6.0], [7.0, 8.0]]"


@pytest.mark.usefixtures("shared")
def test_no_more_launches_than_were_asked_for(tmp_path: Path) -> None:
    file = both_launches()
    file.keep = 1
    assert [str(key) for key in rescue.rescue(crashed(tmp_path, file)).launches] == ["0.1"]


@pytest.mark.usefixtures("shared")
def test_opening_a_run_that_was_not_finished_rescues_it(tmp_path: Path) -> None:
    path = crashed(tmp_path, both_launches(), Exit(ExitKind.RUNNING), pid=NOBODY)
    run = open_diagnosed(path).run
    assert run.state is ExitKind.ABORTED
    assert values(run, "0.1") == {"y": [[5, 6], [7, 8]], "w": [[9, 11], [10, 12]]}


@pytest.mark.usefixtures("shared")
def test_a_run_that_goes_on_is_left_alone(tmp_path: Path) -> None:
    from datetime import datetime

    started = datetime.now().astimezone().isoformat(timespec="seconds")
    path = crashed(tmp_path, both_launches(), Exit(ExitKind.RUNNING), pid=os.getpid(), started=started)
    assert open_diagnosed(path).run.launch("0.1").args[0].files == {}
    assert (path / shared_files.FLIGHT_RECORDER).exists()


@pytest.mark.usefixtures("shared")
def test_a_clean_run_gives_the_memory_back(tmp_path: Path) -> None:
    path = crashed(tmp_path, both_launches(), Exit(ExitKind.CLEAN))
    assert rescue.rescue(path) == rescue.Rescue()
    assert not (path / shared_files.FLIGHT_RECORDER).is_symlink()
    assert not (path / "tensors").exists()
    assert not list(tmp_path.glob("aoti_debug-*"))


@pytest.mark.usefixtures("shared")
def test_what_was_not_kept_says_why(tmp_path: Path) -> None:
    file = FlightFile()
    file.launch(1, Given(0, bits(5, 6), 0), Given(1, bytes(1 << 20), 0, FlightStatus.TOO_LARGE))
    path = crashed(tmp_path, file)
    done = rescue.rescue(path)
    assert (done.launches, done.tensors) == ((), 0)
    files = [argument.files[Phase.BEFORE] for argument in rundir.open_run(path).launch("0.1").args[:2]]
    assert [saved.status for saved in files] == [SaveStatus.SKIPPED] * 2
    assert files[0].reason == "the flight recorder has only a part of its bytes"
    assert files[1].reason == "larger than the flight recorder's memory (AOTI_DEBUG_FLIGHT_BYTES)"


@pytest.mark.usefixtures("shared")
def test_other_launches_are_no_substitute_for_the_suspect(tmp_path: Path) -> None:
    file = FlightFile()
    file.launch(0, Given(0, bits(1, 2, 3, 4), 0))
    path = crashed(tmp_path, file)
    assert rescue.rescue(path).launches == ()


@pytest.mark.usefixtures("shared")
def test_what_the_run_saved_itself_stays(tmp_path: Path) -> None:
    writer = JournalWriter(level=1)
    writer.call_begin()
    writer.launch_begin(0, 0, X, Y)
    writer.tensor_file(0, 0, Phase.BEFORE, "tensors/0/0000_first/x.safetensors")
    path = run_directory(tmp_path / "runs", MANIFEST, writer, exit=SEGV)
    file = FlightFile()
    file.launch(0, Given(0, bits(1, 2, 3, 4), 0))
    link(path, tmp_path, file.bytes())
    assert rescue.rescue(path).tensors == 0
    saved = rundir.open_run(path).launch("0.0").args[0].files[Phase.BEFORE]
    assert saved.path == "tensors/0/0000_first/x.safetensors"


@pytest.mark.usefixtures("shared")
def test_a_run_that_is_deleted_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    path = crashed(tmp_path, both_launches())
    run = rundir.open_run(path)
    verdict = diagnose(run)
    recording = flight_recorder.read(path / shared_files.FLIGHT_RECORDER)
    shutil.rmtree(path)
    assert verdict is not None
    assert recording is not None
    assert rescue.save(run, rescue._kept(run, verdict, recording)).failure
    assert not path.exists()


@pytest.mark.usefixtures("shared")
def test_without_room_on_the_disk_the_memory_stays(tmp_path: Path) -> None:
    path = crashed(tmp_path, both_launches())
    (path / "tensors").write_text("in the way")
    done = rescue.rescue(path)
    assert (done.tensors, done.failure) == (0, "not every tensor could be rescued: Not a directory")
    assert "could be rescued" in rundir.open_run(path).launch("0.1").args[0].files[Phase.BEFORE].reason
    (path / "tensors").unlink()
    assert values(open_diagnosed(path).run, "0.0") == {"x": [[1, 2], [3, 4]]}
    assert not list(tmp_path.glob("aoti_debug-*"))


@pytest.mark.usefixtures("shared")
def test_a_recording_of_another_version(tmp_path: Path) -> None:
    path = crashed(tmp_path, None)
    shared = link(path, tmp_path, FlightFile().bytes(version=9))
    assert "version 9" in rescue.rescue(path).failure
    assert not shared.exists()


@pytest.mark.usefixtures("shared")
def test_a_damaged_index(tmp_path: Path) -> None:
    path = crashed(tmp_path, None)
    (path / rescued_tensors.NAME).write_text('{"format": 1, "tensors": [{}]}')
    with pytest.raises(RunDirError, match=r"rescued\.json is damaged"):
        _ = rundir.open_run(path).launches


# ---- shared memory of dead processes


@pytest.mark.usefixtures("shared")
def test_leftovers_are_saved_and_freed(tmp_path: Path) -> None:
    path = crashed(tmp_path, both_launches(), Exit(ExitKind.RUNNING), pid=NOBODY)
    crumbs = tmp_path / "aoti_debug-4194304-7-crumbs.bin"
    crumbs.write_bytes(b"x" * 4096 + str(path).encode().ljust(4096, b"\0"))
    (path / "crumbs.bin").symlink_to(crumbs)
    orphan = tmp_path / "aoti_debug-4194304-8-flight.bin"
    orphan.write_bytes(str(tmp_path / "gone").encode().ljust(4096, b"\0"))
    old = tmp_path / "aoti_debug-4194304-9"
    old.write_bytes(b"x")
    other = tmp_path / "unrelated"
    other.write_bytes(b"x")
    runner.reclaim()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["runs", "unrelated"]
    assert values(rundir.open_run(path), "0.0") == {"x": [[1, 2], [3, 4]]}
    assert (path / "crumbs.bin").read_bytes().startswith(b"x" * 4096)


@pytest.mark.usefixtures("shared")
def test_a_run_whose_tool_still_lives_is_left_to_it(tmp_path: Path) -> None:
    path = crashed(
        tmp_path, both_launches(), Exit(ExitKind.RUNNING), pid=NOBODY, name=f"20261120-231501-{os.getpid()}-2"
    )
    runner.reclaim()
    assert (path / shared_files.FLIGHT_RECORDER).exists()


@pytest.mark.usefixtures("shared")
def test_memory_that_is_not_here_is_no_matter(tmp_path: Path) -> None:
    path = crashed(tmp_path, both_launches(), Exit(ExitKind.RUNNING), pid=NOBODY)
    (tmp_path / f"aoti_debug-{NOBODY}-1-flight.bin").unlink()
    assert rescue.rescue(path) == rescue.Rescue()
    assert (path / shared_files.FLIGHT_RECORDER).is_symlink()


@pytest.mark.usefixtures("shared")
def test_memory_of_the_living_is_left_alone(tmp_path: Path) -> None:
    import fcntl

    alive = tmp_path / f"aoti_debug-{os.getpid()}-7-flight.bin"
    alive.write_bytes(b"x")
    locked = tmp_path / "aoti_debug-4194304-7-flight.bin"
    locked.write_bytes(b"x")
    with locked.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        runner.reclaim()
    assert alive.exists()
    assert locked.exists()
    runner.reclaim()
    assert not locked.exists()


# ---- real packages


def test_one_run_is_enough_for_a_fault_that_does_not_come_again(
    faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAULTY_OPS", "segv")
    result = runner.run(RunOptions(faulty_package, out=tmp_path / "runs", flight=2))
    monkeypatch.delenv("FAULTY_OPS")
    assert result.verdict is not None
    assert result.verdict.launch is not None
    suspect = result.verdict.launch
    tensors = {
        launch.id: list(load_tensors.load_launch(result.run, launch, Phase.BEFORE).values())
        for launch in result.run.launches
    }
    previous, guilty = (launch.id for launch in result.run.launches[-2:])
    assert guilty == suspect.id
    assert [id_ for id_, loaded in tensors.items() if loaded] == [previous, guilty]
    assert torch.equal(tensors[guilty][0], torch.relu(tensors[previous][0]))
    assert not (result.run.path / shared_files.FLIGHT_RECORDER).is_symlink()
    repro = write_repro(ReproOptions(suspect.kernel, run=result.run.path, output=tmp_path / "repro"))
    monkeypatch.setenv("FAULTY_OPS", "segv")
    done = subprocess.run([sys.executable, str(repro.script)], capture_output=True, text=True, check=False)
    assert "fault reproduced" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 11


def test_a_clean_run_leaves_nothing(faulty_package: Path, tmp_path: Path) -> None:
    before = set(os.listdir("/dev/shm"))
    result = runner.run(RunOptions(faulty_package, out=tmp_path / "runs", flight=2))
    assert (result.verdict, result.lost) == (None, "")
    assert not (result.run.path / shared_files.FLIGHT_RECORDER).is_symlink()
    assert not (result.run.path / rescued_tensors.NAME).exists()
    assert {name for name in set(os.listdir("/dev/shm")) - before if str(result.run.info.pid) in name} == set()


def test_the_tool_itself_may_be_killed(faulty_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_OPS", "hang")
    base = tmp_path / "runs"
    command = [
        sys.executable,
        "-m",
        "aoti_debug",
        "run",
        "-v",
        str(faulty_package),
        "--out",
        str(base),
        "--flight",
        "2",
    ]
    tool = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
    assert tool.stderr is not None
    while b"faulty::act" not in (line := tool.stderr.readline()):
        assert line, "the model was never called"
    os.kill(tool.pid, signal.SIGKILL)
    tool.wait()
    (path,) = (p for p in base.iterdir() if not p.is_symlink())
    shared = Path(os.readlink(path / shared_files.FLIGHT_RECORDER))
    run = _once_ended(path)
    assert diagnose(run) is not None
    assert [launch.id for launch in run.launches if any(a.files for a in launch.args)][-1] == run.launches[-1].id
    assert not shared.exists()


def _once_ended(path: Path) -> RunDir:
    """The model's process ends a moment after the tool that watched over it."""
    import time

    for _ in range(100):
        run = open_diagnosed(path).run
        if run.state is not ExitKind.RUNNING:
            return run
        time.sleep(0.1)
    raise AssertionError("the model's process still lives")
