"""A package that another program loads as one of many ranks."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.machine.current_rank import Rank
from aoti_debug.runs.rundir import ranks_directory
from tests.runtime_shims import journal_decoder
from tests.runtime_shims.runtime_library import Handle, Runtime, Slot

Load = Callable[..., Runtime]


def one_launch(runtime: Runtime) -> None:
    site = runtime.site(0, "k", Slot("x"))
    handle = Handle(torch.ones(3))
    with runtime.call(), runtime.launch(site, handle.value):
        pass


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes this process a rank of four."""

    def become(number: int) -> None:
        for name, value in {
            "RANK": str(number),
            "WORLD_SIZE": "4",
            "LOCAL_WORLD_SIZE": "4",
            "LOCAL_RANK": str(3 - number),
            "TORCHELASTIC_RUN_ID": "jöb",
            "TORCHELASTIC_RESTART_COUNT": "2",
            "MASTER_ADDR": "a",
            "MASTER_PORT": "1",
        }.items():
            monkeypatch.setenv(name, value)

    return become


def test_ranks_share_a_directory_which_python_finds_too(
    load: Load, tmp_path: Path, rank: Callable[[int], None]
) -> None:
    for number in (3, 0):
        rank(number)
        runtime = load(RUN=None, DIR=tmp_path, PRINT="none", BACKTRACE="0")
        one_launch(runtime)
        runtime.unload()
    claimed = ranks_directory.claim(tmp_path, Rank(1, 4, 4, "jöb", "a:1", "2"))
    read = ranks_directory.read(claimed.parent)
    assert (read.info.world_size, read.info.run_id, read.info.restart) == (4, "jöb", "2")
    assert sorted(read.ranks) == [0, 1, 3]
    info = json.loads((read.ranks[3] / "run.json").read_text())
    assert info["rank"] == {"number": 3, "world_size": 4, "machine": socket.gethostname()}
    assert info["exit"]["kind"] == "clean"
    assert (tmp_path / "latest").resolve() == claimed.parent


def test_a_second_package_of_a_rank_gets_a_folder_inside(
    load: Load, tmp_path: Path, rank: Callable[[int], None]
) -> None:
    rank(1)
    for _ in range(2):
        runtime = load(RUN=None, DIR=tmp_path, PRINT="none", BACKTRACE="0")
        one_launch(runtime)
        runtime.unload()
    assert (tmp_path / "latest" / "rank1" / f"process-{os.getpid()}" / "journal.bin").exists()


@pytest.mark.parametrize(("ranks", "is_chosen"), [("0-1,3", True), ("0,2", False), ("3-4", True), ("4-3", True)])
def test_ranks_that_are_not_chosen_keep_their_journals(
    load: Load, tmp_path: Path, rank: Callable[[int], None], ranks: str, is_chosen: bool
) -> None:
    rank(3)
    runtime = load(RUN=None, DIR=tmp_path, LEVEL="1", RANKS=ranks, PRINT="none", BACKTRACE="0")
    one_launch(runtime)
    runtime.unload()
    run = tmp_path / "latest" / "rank3"
    journal = journal_decoder.decode(run / "journal.bin")
    assert len(journal.of("launch_begin")) == 1
    assert (run / "tensors").exists() == is_chosen
    assert len(journal.of("note")) == (ranks == "4-3")  # is no range


def test_a_rank_notes_that_it_was_ended(load: Load, tmp_path: Path, rank: Callable[[int], None]) -> None:
    """SIGTERM is what torchrun sends to the other ranks when one has failed. The host's handler runs, too."""
    rank(2)
    received: list[int] = []
    previous = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        runtime = load(RUN=None, DIR=tmp_path, PRINT="none", BACKTRACE=None)
        one_launch(runtime)
        os.kill(os.getpid(), signal.SIGTERM)
        assert received == [signal.SIGTERM]
        runtime.unload()
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert " signal 15 " in (tmp_path / "latest" / "rank2" / "backtrace.txt").read_text()


def test_sigterm_ends_a_system_call_if_the_hosts_handler_needs_it(
    load: Load, tmp_path: Path, rank: Callable[[int], None]
) -> None:
    """Python's handlers run in the main thread, when the call has returned."""

    def stop(number: int, _: object) -> None:
        raise InterruptedError(number)

    rank(2)
    reader, writer = os.pipe()
    late = threading.Timer(10, os.write, (writer, b"late"))
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        runtime = load(RUN=None, DIR=tmp_path, PRINT="none", BACKTRACE=None)
        one_launch(runtime)
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()
        late.start()
        with pytest.raises(InterruptedError):
            os.read(reader, 4)
        assert late.is_alive()
        runtime.unload()
    finally:
        late.cancel()
        signal.signal(signal.SIGTERM, previous)
        os.close(reader)
        os.close(writer)


def test_an_untrusted_link_is_not_followed(load: Load, tmp_path: Path, rank: Callable[[int], None]) -> None:
    rank(1)
    base = tmp_path / "runs"
    (tmp_path / "elsewhere").mkdir()
    base.mkdir()
    known = Rank(1, 4, 4, "jöb", "a:1", "2")
    link = base / f".ranks-{ranks_directory._key(known, ranks_directory._launcher())}"
    link.symlink_to("../elsewhere")
    runtime = load(RUN=None, DIR=base, PRINT="none", BACKTRACE="0")
    one_launch(runtime)
    runtime.unload()
    assert (base / "latest" / "rank1" / "journal.bin").exists()
    assert list((tmp_path / "elsewhere").iterdir()) == []
