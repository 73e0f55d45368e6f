"""Received run directories, triages and bundles that want to be more than read."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.base.machine.files import untrusted_files
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding
from tests.received import HOSTILE, a_run, edit_json, received, rename_everything

FILES = ("run.json", "manifest.json", "journal.bin", "rescued.json", "backtrace.json")


def read_all(run: Path, tmp_path: Path) -> list[int]:
    """The exit codes of every command that reads."""
    page, archive = tmp_path / "page.html", tmp_path / "archive.zip"
    archive.unlink(missing_ok=True)
    return [
        main.run(["show", "--run", str(run), "--wide"]),
        main.run(["show", "--run", str(run), "--json"]),
        main.run(["show", "0.0", "--run", str(run)]),
        main.run(["report", str(run), "-o", str(page)]),
        main.run(["bundle", str(run), "-o", str(archive)]),
    ]


def test_a_received_run_is_read(tmp_path: Path) -> None:
    assert read_all(received(tmp_path), tmp_path) == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("kind", ["link", "folder", "fifo", "socket"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_none_is_neither_followed_nor_waited_for(tmp_path: Path, name: str, kind: str) -> None:
    run = received(tmp_path)
    outside = tmp_path / "outside"
    if (run / name).exists():
        (run / name).rename(outside)
    else:
        outside.write_text('{"format": 1, "tensors": [], "stacks": [], "python": []}')
    if kind == "link":
        (run / name).symlink_to(outside)
    elif kind == "folder":
        (run / name).mkdir()
    elif kind == "fifo":
        os.mkfifo(run / name)
    else:
        os.mknod(run / name, 0o140600)
    of_a_launch = 0 if name == "backtrace.json" else 6  # its page has no stacks
    assert read_all(run, tmp_path) == [6, 6, of_a_launch, 6, 6]


def test_tensors_behind_a_link_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = received(tmp_path)
    (run / "tensors").rename(tmp_path / "outside")
    (run / "tensors").symlink_to(tmp_path / "outside")
    assert set(read_all(run, tmp_path)[2:]) == {6}
    assert "is a symbolic link" in capsys.readouterr().err


def test_a_link_among_the_tensors_is_not_read(tmp_path: Path) -> None:
    run = received(tmp_path)
    for file in (run / "tensors" / "0").iterdir():
        file.rename(tmp_path / file.name)
        file.symlink_to(tmp_path / file.name)
    assert set(read_all(run, tmp_path)) == {6}


def test_latest_leads_nowhere_else(tmp_path: Path) -> None:
    elsewhere = a_run(tmp_path / "elsewhere")
    sent = tmp_path / "sent"
    sent.mkdir()
    for target in (elsewhere, "../elsewhere/" + elsewhere.name):
        (sent / "latest").symlink_to(target)
        assert main.run(["show", "--run", str(sent)]) == 6
        (sent / "latest").unlink()
    (sent / "run").symlink_to(elsewhere)
    (sent / "latest").symlink_to("run")
    assert main.run(["show", "--run", str(sent)]) == 6


def test_a_report_is_not_written_through_a_link(tmp_path: Path) -> None:
    run = received(tmp_path)
    (tmp_path / "home").mkdir()
    (run / "report").symlink_to(tmp_path / "home")
    assert main.run(["report", str(run)]) == 2
    assert list((tmp_path / "home").iterdir()) == []


def test_a_bundle_takes_nothing_from_outside(tmp_path: Path) -> None:
    run = received(tmp_path)
    (tmp_path / "home").mkdir()
    for name in ("index.html", "stderr.log", "stdout.log", "crumbs.bin"):
        (tmp_path / "home" / name).write_text("a secret of the reader")
    (run / "report").symlink_to(tmp_path / "home")
    for name in ("stderr.log", "stdout.log", "crumbs.bin"):
        (run / name).symlink_to(tmp_path / "home" / name)
    (run / "everything").symlink_to("/")
    assert main.run(["bundle", str(run), "-o", str(tmp_path / "b.tar.gz")]) == 0
    with tarfile.open(tmp_path / "b.tar.gz") as archive:
        contents = [archive.extractfile(member) for member in archive.getmembers()]
        assert not any(b"a secret of the reader" in file.read() for file in contents if file is not None)


def test_the_lines_of_the_readers_own_source_are_not_in_a_report(tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text("import os\nKEY = 'swordfish'\n")
    run = received(tmp_path)

    def name_it(manifest: dict[str, object]) -> None:
        for site in manifest["sites"]:  # type: ignore[attr-defined]
            site["provenance"]["source"] = [{"file": str(secret), "line": 1, "function": "f", "text": "import os"}]

    edit_json(run / "manifest.json", name_it)
    assert main.run(["report", str(run), "-o", str(tmp_path / "page.html")]) == 0
    assert "swordfish" not in (tmp_path / "page.html").read_text()


def test_no_library_that_a_received_run_names_is_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = received(tmp_path, pid=4194304)
    library = shutil.which("sh")
    (run / "backtrace.txt").write_text("thread 1 signal 11 code 1 address 0x0 pc 0x1010 caller 0x1020\n")
    (run / "backtrace.maps").write_text(f"1000-9000 r-xp 00000000 00:00 1 {library}\n")
    looked_into: list[Path] = []

    def look_into(path: Path, _: object) -> dict[int, str]:
        looked_into.append(path)
        return {}

    monkeypatch.setattr("aoti_debug.base.native.crash_stacks._in_library", look_into)
    assert main.run(["show", "--run", str(run)]) == 0
    assert looked_into == []


def test_a_triage_names_runs_of_its_own_only(tmp_path: Path) -> None:
    elsewhere = a_run(tmp_path / "elsewhere", command=("aoti-debug", "of another run"))
    triage = tmp_path / "triage"
    finding = findings.to_json(Finding(findings.FAULT, "it failed"))
    data = {"format": 1, "finding": finding, "steps": [], "versions": {}, "command": [], "package": None}
    (triage / "runs").mkdir(parents=True)
    (triage / "runs" / "inside").symlink_to(elsewhere)
    for name in (str(elsewhere), f"../elsewhere/{elsewhere.name}", "runs/inside"):
        (triage / "triage.json").write_text(json.dumps({**data, "run": name}))
        assert main.run(["report", str(triage)]) == 0
        assert "of another run" not in (triage / "report" / "index.html").read_text()


@pytest.mark.parametrize("output", ["show", "detail", "error", "repro", "bundle"])
def test_no_escape_sequence_reaches_the_terminal(
    tmp_path: Path, output: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = received(tmp_path, command=("aoti-debug", HOSTILE))
    edit_json(run / "manifest.json", lambda data: data.update(rename_everything(data, HOSTILE), device="cpu"))
    commands = {
        "show": ["show", "--run", str(run)],
        "detail": ["show", "0.0", "--run", str(run), "--all", "--source"],
        "error": ["show", "nothing", "--run", str(run)],
        "repro": ["repro", "first" + HOSTILE, "--run", str(run)],
        "bundle": ["bundle", str(run), "-o", str(tmp_path / "b.zip")],
    }
    assert main.run(commands[output]) == (2 if output in ("error", "repro") else 0)
    printed = capsys.readouterr()
    for text in (printed.out, printed.err):
        assert all(c.isprintable() or c in "\n\t" for c in text)
        assert not any(line.startswith("next: rm") for line in text.splitlines()) or output in ("error", "repro")
        text.encode()


@pytest.mark.parametrize(
    ("member", "right"),
    [
        ("started", []),
        ("exit", []),
        *((member, [-1, 2**80, -(2**40)]) for member in ("pid", "calls", "level")),
        *((member, [[]]) for member in ("imports", "command")),
        ("timings", [{}]),
    ],
)
def test_wrong_types_in_run_json_are_damage(tmp_path: Path, member: str, right: list[object]) -> None:
    run = received(tmp_path)
    values: tuple[object, ...] = (-1, 2**80, -(2**40), [], {}, "-1", [[[]]], True)
    for value in values:

        def change(data: dict[str, object], value: object = value) -> None:
            data[member] = value

        edit_json(run / "run.json", change)
        is_right = any(value == other and type(value) is type(other) for other in right)
        assert (value, main.run(["show", "--run", str(run)])) == (value, 0 if is_right else 6)


def rescued(**fields: object) -> dict[str, object]:
    known = {"launch": "0.0", "slot": 0, "bytes": 16, "hash": ["0", "0"], "path": "tensors/x", "reason": ""}
    return {"format": 1, "tensors": [known | fields]}


@pytest.mark.parametrize("slot", [-(2**40), -1, 2, 2**70])
def test_a_tensor_of_no_argument_is_damage(tmp_path: Path, slot: int) -> None:
    run = received(tmp_path)
    (run / "rescued.json").write_text(json.dumps(rescued(slot=slot)))
    assert set(read_all(run, tmp_path)) == {6}


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a\0b", "\ud800", "x" * 300, "tensors"])
def test_a_rescued_tensor_lies_in_the_run(tmp_path: Path, path: str) -> None:
    run = received(tmp_path)
    (run / "rescued.json").write_text(json.dumps(rescued(path=path)))
    assert set(read_all(run, tmp_path)) == {6}


def test_a_tensor_that_was_not_rescued_lies_nowhere(tmp_path: Path) -> None:
    run = received(tmp_path)
    (run / "rescued.json").write_text(json.dumps(rescued(path="")))
    assert set(read_all(run, tmp_path)) == {0}


@pytest.mark.parametrize("name", ["run.json", "manifest.json", "rescued.json", "backtrace.json"])
@pytest.mark.parametrize("text", ["[" * 200_000, '{"format":1,"a":' * 200_000, "", "\0", '{"format":1,"format":1}'])
def test_json_that_is_none(tmp_path: Path, name: str, text: str) -> None:
    run = received(tmp_path)
    (run / name).write_text(text)
    assert main.run(["show", "--run", str(run)]) == 6


@pytest.mark.parametrize(
    ("name", "code"),
    [*((f"{name}.json", 6) for name in ("run", "manifest", "rescued", "backtrace")), ("crumbs.bin", 0)],
)
def test_a_huge_sparse_file_is_not_read(tmp_path: Path, name: str, code: int) -> None:
    run = received(tmp_path)
    with (run / name).open("ab") as file:
        file.truncate(1 << 40)
    began = time.monotonic()
    assert main.run(["show", "--run", str(run)]) == code
    assert time.monotonic() - began < 5


def test_the_holes_of_a_sparse_journal_are_skipped(tmp_path: Path) -> None:
    run = received(tmp_path)
    os.truncate(run / "journal.bin", 1 << 40)
    began = time.monotonic()
    assert main.run(["show", "--run", str(run)]) == 0
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bytes_of_a_journal_are_damage(tmp_path: Path, seed: int) -> None:
    import random

    choose = random.Random(seed)
    run = received(tmp_path)
    whole = (run / "journal.bin").read_bytes()
    used = len(whole.rstrip(b"\0"))
    shown, bundled = set(), set()
    for _ in range(25):
        data = bytearray(whole)
        for _ in range(choose.choice((1, 2, 8))):
            data[choose.randrange(used)] = choose.choice((0, 1, 127, 128, 255))
        (run / "journal.bin").write_bytes(data)
        shown.add(main.run(["show", "--run", str(run)]))
        (tmp_path / "b.zip").unlink(missing_ok=True)
        bundled.add(main.run(["bundle", str(run), "--no-tensors", "-o", str(tmp_path / "b.zip")]))
    assert (shown, bundled) == ({0, 6}, {0, 6})  # some bytes say nothing that is checked, as an address


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x", "", ".", "a\0", "\ud800", "link/x", "fifo", "folder"])
@pytest.mark.parametrize("use", [untrusted_files.open_file, untrusted_files.check, untrusted_files.read_bytes])
def test_only_regular_files_below_a_directory_are_opened(
    tmp_path: Path, name: str, use: Callable[[Path, str], object]
) -> None:
    (tmp_path / "x").write_text("outside")
    inner = tmp_path / "inner"
    (inner / "folder").mkdir(parents=True)
    (inner / "link").symlink_to(tmp_path)
    os.mkfifo(inner / "fifo")
    with pytest.raises(OSError, match=r"\[Errno \d+\]"):
        use(inner, name)
