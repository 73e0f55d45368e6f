from __future__ import annotations

import json
import struct
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.base.abi import FaultDomain, Phase, SaveStatus
from aoti_debug.base.errors import RunDirError, UsageError
from aoti_debug.compare import stored_comparison
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import CType
from aoti_debug.package.pt2 import program_weights, trust
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.findings import NONFINITE, Place
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.formats import journal
from aoti_debug.runs.rundir.load_tensors import load_launch
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.show.document import document
from aoti_debug.triage.results import triage_directory
from aoti_debug.views.bundle.bundle import BundleOptions, write_bundle
from aoti_debug.views.bundle.contents import contents_of
from aoti_debug.views.redaction import RedactedPart
from aoti_debug.views.report import report
from aoti_debug.views.report.subject import ReportSubject
from tests.factories import JournalWriter, records_of, run_directory
from tests.saved_tensors import program_of, write_reference
from tests.views.report.subjects import (
    INDEX,
    ROWS,
    SECRETS,
    SOURCE,
    STACK,
    TABLE,
    comparison_of,
    manifest,
    run,
    saved_run,
    triage,
)

SOURCES = ("secret_", "made_by_inductor")


def members(path: Path) -> dict[str, bytes]:
    """Files of an archive by their names below its folder."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            found = {name: archive.read(name) for name in archive.namelist()}
    else:
        with tarfile.open(path) as packed:
            found = {m.name: file.read() for m in packed.getmembers() if (file := packed.extractfile(m))}
    (root,) = {name.partition("/")[0] for name in found}
    return {name.removeprefix(f"{root}/"): content for name, content in found.items()}


def unpacked(path: Path, into: Path) -> Path:
    with zipfile.ZipFile(path) as archive:
        archive.extractall(into)
    (root,) = into.iterdir()
    return root


def leaks(files: dict[str, bytes], secrets: tuple[str, ...]) -> list[tuple[str, str]]:
    """Where a secret shows: as text, or as a number in the journal's bytes."""
    return [(name, secret) for name, content in files.items() for secret in secrets if secret.encode() in content]


@pytest.mark.parametrize("ending", [".zip", ".tar.gz"])
def test_a_triage_with_all_that_may_be_sent(tmp_path: Path, ending: str) -> None:
    subject = report.of_triage(triage(tmp_path / "triages"))
    written = write_bundle(subject, BundleOptions(tmp_path / f"b{ending}"))
    files = members(written.path)
    assert set(files) == {
        *("triage.json", "versions.json", "report/index.html", "README.txt"),
        *("repro/repro.py", "repro/tensors/before_buf0.safetensors"),
        *(f"runs/20261120-231501-4711/{name}" for name in ("run.json", "manifest.json", "journal.bin", "stderr.log")),
        *(f"runs/20261120-231502-4712/{name}" for name in ("run.json", "manifest.json", "journal.bin", "stderr.log")),
    }
    assert [(item.name, item.size) for item in written.contents.items] == [(n, len(c)) for n, c in files.items()]
    assert [left.name for left in written.contents.left_out] == ["package.pt2"]
    assert leaks(files, (*SECRETS, *SOURCES))
    assert json.loads(files["versions.json"])["torch"] == "2.13.0"


def test_an_unpacked_triage_opens(tmp_path: Path) -> None:
    subject = report.of_triage(triage(tmp_path / "triages"))
    for parts in ((), (RedactedPart.TENSORS,), (RedactedPart.SOURCE,), tuple(RedactedPart)):
        name = "-".join(parts) or "all"
        root = unpacked(write_bundle(subject, BundleOptions(tmp_path / f"{name}.zip", parts)).path, tmp_path / name)
        opened = triage_directory.open_triage(root)
        assert opened.finding.kind is subject.finding.kind
        assert (opened.repro is None) == bool(parts)
        again = report.of_triage(opened)
        assert again.run is not None
        assert [launch.id for launch in again.run.launches] == ["0.0", "0.1"]
        assert "0.1" in report.html(again)


def test_what_the_receiver_types_is_said_and_names_nothing_of_the_sender(tmp_path: Path) -> None:
    """Commands are for the folder of the archive; those of a repro that is left out are left out."""
    subject = report.of_triage(triage(tmp_path / "triages"))
    replayed = f"python {subject.path / 'repro/repro.py'} --backend checked"
    finding = replace(subject.finding, next=(replayed, "aoti-debug show latest"))
    subject = replace(subject, finding=replace(finding, also=(replace(finding, repro=""),)))
    for parts in ((), (RedactedPart.TENSORS,)):
        files = members(write_bundle(subject, BundleOptions(tmp_path / f"{len(parts)}.zip", parts)).path)
        found = json.loads(files["triage.json"])["finding"]
        commands = (
            ["aoti-debug show latest"]
            if parts
            else ["python repro/repro.py --backend checked", "aoti-debug show latest"]
        )
        assert found["next"] == found["also"][0]["next"] == commands
        readme = files["README.txt"].decode()
        assert f"aoti-debug show {contents_of(subject, frozenset()).root}" in readme
        assert ("python repro/repro.py" in readme) == (not parts)
        assert str(tmp_path) not in readme


def test_without_tensors_no_value_is_inside(tmp_path: Path) -> None:
    subject = report.of_triage(triage(tmp_path / "triages"))
    written = write_bundle(subject, BundleOptions(tmp_path / "b.zip", (RedactedPart.TENSORS,)))
    files = members(written.path)
    assert leaks(files, SECRETS) == []
    assert not [name for name in files if "repro" in name or name.endswith(".log")]
    assert {left.name for left in written.contents.left_out} >= {"repro/", "runs/20261120-231501-4711/stderr.log"}
    assert b"secret_table" in files["report/index.html"]
    root = unpacked(written.path, tmp_path / "u")
    packed = (struct.pack("<d", 271828.25), struct.pack("<q", 314159))
    assert not [name for name, content in files.items() for secret in packed if secret in content]
    measured = 0
    for folder in (root / "runs").iterdir():
        opened = open_run(folder)
        text = json.dumps(document(opened, diagnose(opened), opened.launches, Measurer(opened)))
        assert not [secret for secret in SECRETS if secret in text]
        statistics = [s for x in opened.launches for a in x.args for s in a.stats.values()]
        assert all(s.statistics is None and s.values == b"" and s.hash is None for s in statistics)
        measured += len(statistics)
    assert measured == 3


def test_without_source_no_line_is_inside(tmp_path: Path) -> None:
    subject = report.of_triage(triage(tmp_path / "triages"))
    written = write_bundle(subject, BundleOptions(tmp_path / "b.zip", (RedactedPart.SOURCE,)))
    files = members(written.path)
    assert leaks(files, SOURCES) == []
    assert not [name for name in files if "repro" in name or name.endswith(".log")]
    finding = json.loads(files["triage.json"])["finding"]
    assert (finding["file"], finding["line"], finding["text"]) == ("/home/u/model.py", 28, "")
    assert finding["evidence"][0] == "out-of-bounds load from l_table: element 314159 of 32"
    assert b"271828" in files["report/index.html"]


def test_without_both_neither_is_inside(tmp_path: Path) -> None:
    subject = report.of_triage(triage(tmp_path / "triages"))
    files = members(write_bundle(subject, BundleOptions(tmp_path / "b.zip", tuple(RedactedPart))).path)
    assert leaks(files, (*SECRETS, *SOURCES)) == []


def test_the_report_of_a_restricted_bundle_is_made_again(tmp_path: Path) -> None:
    found = triage(tmp_path / "triages")
    page = report.write_triage(found)
    page.write_text("as it was made")
    whole = members(write_bundle(report.of_triage(found), BundleOptions(tmp_path / "a.zip")).path)
    assert whole["report/index.html"] == b"as it was made"
    restricted = members(
        write_bundle(report.of_triage(found), BundleOptions(tmp_path / "b.zip", (RedactedPart.TENSORS,))).path
    )
    assert b"left out: values of tensors" in restricted["report/index.html"]


def test_a_run_opens_from_its_bundle(tmp_path: Path) -> None:
    opened = run(tmp_path / "runs")
    written = write_bundle(report.of_run(opened), BundleOptions(tmp_path / "b.zip"))
    root = unpacked(written.path, tmp_path / "u")
    again = diagnose(open_run(root))
    assert again is not None
    assert again.what == "index 314159 is out of bounds with size 4"
    assert json.loads((root / "verdict.json").read_text())["launch"] == "0.1"


def test_of_saved_tensors_those_of_the_guilty_launch_are_sent(tmp_path: Path) -> None:
    subject = report.of_run(saved_run(tmp_path / "runs"))
    clean = write_bundle(subject, BundleOptions(tmp_path / "a.zip"))
    assert "tensors/0/table.safetensors" not in members(clean.path)
    assert [left.name for left in clean.contents.left_out] == ["tensors/"]
    assert "not in this bundle" in saved_reasons(unpacked(clean.path, tmp_path / "ua"))
    finding = replace(subject.finding, kind=NONFINITE, where=Place("0.1"))
    guilty = write_bundle(replace(subject, finding=finding), BundleOptions(tmp_path / "b.zip"))
    assert {"tensors/0/table.safetensors", "tensors/0/rows.safetensors"} <= set(members(guilty.path))
    root = open_run(unpacked(guilty.path, tmp_path / "ub"))
    assert Measurer(root).measure(root.launches[1].args[0], Phase.BEFORE).statistics is not None
    hidden = write_bundle(replace(subject, finding=finding), BundleOptions(tmp_path / "c.zip", (RedactedPart.TENSORS,)))
    assert not [name for name in members(hidden.path) if name.startswith("tensors")]


def saved_reasons(root: Path) -> set[str]:
    return {s.reason for launch in open_run(root).launches for a in launch.args for s in a.files.values()}


def test_a_repro_outside_of_the_triage_is_not_taken(tmp_path: Path) -> None:
    found = triage(tmp_path / "triages")
    elsewhere = tmp_path / "private"
    elsewhere.mkdir()
    (elsewhere / "key").write_text("private")
    subject = report.of_triage(found)
    for place in (str(elsewhere), f"{found.path}/repro/../../../private"):
        outside = replace(subject, finding=replace(subject.finding, repro=place))
        contents = contents_of(outside, frozenset())
        assert not [item.name for item in contents.items if "key" in item.name]
        assert any("outside" in left.why for left in contents.left_out)


def test_the_repros_of_all_findings_are_taken_unless_something_is_left_out(tmp_path: Path) -> None:
    found = triage(tmp_path / "triages")
    folder = found.path / "build_failure"
    folder.mkdir()
    (folder / "repro.py").write_text("print('it compiles')\n")
    subject = report.of_triage(found)
    first = replace(subject.finding, repro=str(folder), also=(subject.finding,))
    files = members(write_bundle(replace(subject, finding=first), BundleOptions(tmp_path / "b.zip")).path)
    assert {"build_failure/repro.py", "repro/repro.py"} <= set(files)
    record = json.loads(files["triage.json"])["finding"]
    assert (record["repro"], record["also"][0]["repro"]) == ("build_failure", "repro")
    redacted = contents_of(replace(subject, finding=first), frozenset({RedactedPart.SOURCE}))
    assert not [item.name for item in redacted.items if item.name.endswith("repro.py")]


def test_links_are_not_followed(tmp_path: Path) -> None:
    found = triage(tmp_path / "triages")
    (tmp_path / "secret.txt").write_text("private")
    (found.path / "repro/link").symlink_to(tmp_path / "secret.txt")
    log = found.path / "runs/20261120-231501-4711/stderr.log"
    log.unlink()
    log.symlink_to(tmp_path / "secret.txt")
    files = members(write_bundle(report.of_triage(found), BundleOptions(tmp_path / "b.zip")).path)
    assert leaks(files, ("private",)) == []
    assert "repro/link" not in files


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    subject = report.of_run(run(tmp_path / "runs"))
    (tmp_path / "b.zip").write_text("mine")
    with pytest.raises(UsageError, match="already exists"):
        write_bundle(subject, BundleOptions(tmp_path / "b.zip"))
    assert (tmp_path / "b.zip").read_text() == "mine"
    with pytest.raises(UsageError, match=r"ends in none of \.zip"):
        write_bundle(subject, BundleOptions(tmp_path / "b.rar"))


def test_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = report.of_triage(triage(tmp_path / "triages"))

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", full)
    with pytest.raises(UsageError, match="No space left"):
        write_bundle(subject, BundleOptions(tmp_path / "out" / "b.zip"))
    assert list((tmp_path / "out").iterdir()) == []


def test_long_logs_are_cut_at_their_beginning(tmp_path: Path) -> None:
    opened = run(tmp_path / "runs")
    (opened.path / "stderr.log").write_bytes(b"begin" + b"x" * (5 << 20) + b"end")
    written = write_bundle(report.of_run(opened), BundleOptions(tmp_path / "b.zip"))
    log = members(written.path)["stderr.log"]
    assert (log.endswith(b"end"), log.startswith(b"begin"), len(log)) == (True, False, 4 << 20)
    assert ("stderr.log", "its beginning") in [(left.name, left.why) for left in written.contents.left_out]


def test_what_is_not_known_by_name_stays_out(tmp_path: Path) -> None:
    opened = run(tmp_path / "runs")
    for name in ("package.pt2", "inputs.pt", "flight.bin", "core.4711"):
        (opened.path / name).write_bytes(b"x" * 10)
    written = write_bundle(report.of_run(opened), BundleOptions(tmp_path / "b.zip"))
    assert {left.name: left.size for left in written.contents.left_out} == {
        "package.pt2": 10,
        "inputs.pt": 10,
        "flight.bin": 10,
        "core.4711": 10,
    }


def test_journals_are_blanked_behind_their_last_record(tmp_path: Path) -> None:
    """A block that was used before holds older records behind its end; a torn record may hold anything."""
    subject: ReportSubject = report.of_run(run(tmp_path / "runs"))
    path = subject.path / "journal.bin"
    data = bytearray(path.read_bytes())
    data[-64:] = (SOURCE + STACK).encode()[:64]
    path.write_bytes(data)
    files = members(write_bundle(subject, BundleOptions(tmp_path / "b.zip", tuple(RedactedPart))).path)
    assert leaks(files, ("made_by", *SECRETS)) == []
    (tmp_path / "journal.bin").write_bytes(files["journal.bin"])
    assert len(records_of(journal.read(tmp_path / "journal.bin"))) == len(records_of(journal.read(path)))
    assert len(files["journal.bin"]) == len(data)


def test_a_comparison_is_sent_only_with_its_values(tmp_path: Path) -> None:
    opened = run(tmp_path / "runs", 2, fault=False)
    stored_comparison.write(comparison_of(opened), opened.path)
    subject = report.of_run(opened)
    files = members(write_bundle(subject, BundleOptions(tmp_path / "whole.zip")).path)
    assert files[stored_comparison.NAME] == (opened.path / stored_comparison.NAME).read_bytes()
    assert b"first_wrong" in files["report/index.html"]
    for part, secrets in ((RedactedPart.TENSORS, SECRETS), (RedactedPart.SOURCE, SOURCES)):
        written = write_bundle(subject, BundleOptions(tmp_path / f"{part.value}.zip", (part,)))
        redacted = members(written.path)
        assert stored_comparison.NAME not in redacted
        assert stored_comparison.NAME in {item.name for item in written.contents.left_out}
        assert leaks(redacted, secrets) == []


def referring(base: Path, table: Any) -> RunDir:
    """A run whose second launch failed, and had read a weight that the run refers to, as others had another one."""
    base.mkdir()
    program = program_of(base / "model.pt2", table)
    writer = JournalWriter(level=1)
    writer.call_begin()
    writer.launch_begin(0, 0, INDEX, INDEX)
    writer.tensor_file(
        0, 0, Phase.BEFORE, "tensors/0/x.weight.json", status=SaveStatus.REFERRED, size=7 << 30, content=2
    )
    writer.launch_end(0)
    writer.launch_begin(1, 1, TABLE, INDEX, ROWS, Number(5, CType.I64))
    path, size = "tensors/1/table.weight.json", table.nbytes
    writer.tensor_file(1, 0, Phase.BEFORE, path, status=SaveStatus.REFERRED, size=size, content=1)
    writer.fault(1, FaultDomain.EXCEPTION, text="out of bounds")
    run = run_directory(base / "runs", replace(manifest(), weights=program_weights.describe(program, {})), writer)
    for name in ("0/x", "1/table"):
        write_reference(run / f"tensors/{name}.weight.json", "l_table", table, program, table)
    trust.remember_run(open_run(run).manifest)
    return open_run(run)


def test_the_weights_of_the_guilty_launch_are_inside_and_the_others_listed(tmp_path: Path) -> None:
    table = torch.linspace(-1, 1, 32).reshape(4, 8)
    run = referring(tmp_path / "here", table)
    program = tmp_path / "here/model.pt2"
    written = write_bundle(report.of_run(run), BundleOptions(tmp_path / "b.zip"))
    left_out = {left.why: left.size for left in written.contents.left_out}
    assert left_out[f"weights in {program}: send it separately if you may share it"] == 7 << 30
    root = unpacked(written.path, tmp_path / "elsewhere")
    program.unlink()
    received = open_run(root)
    assert torch.equal(load_launch(received, received.launch("0.1"), Phase.BEFORE)["l_table"], table)
    assert "0.0" in report.html(report.of_run(received), frozenset())


def test_weights_that_are_gone_are_listed(tmp_path: Path) -> None:
    run = referring(tmp_path / "here", torch.linspace(-1, 1, 32).reshape(4, 8))
    (tmp_path / "here/model.pt2").unlink()
    written = write_bundle(report.of_run(run), BundleOptions(tmp_path / "b.zip"))
    assert not any("tensors/" in item.name for item in written.contents.items)
    assert any(left.why.startswith("weights in ") for left in written.contents.left_out)


def test_a_run_from_elsewhere_makes_no_command_read_files_of_this_machine(tmp_path: Path) -> None:
    table = torch.linspace(-1, 1, 32).reshape(4, 8)
    run = referring(tmp_path / "here", table)
    text = (run.path / "manifest.json").read_text()
    (run.path / "manifest.json").write_text(text.replace('"tool_version": "', '"tool_version": "9'))
    received = open_run(run.path)
    saved = received.launch("0.1").args[0].files[Phase.BEFORE]
    problem = "table.weight.json refers to a file of this machine, and the run was not made on this account"
    assert problem in received.missing_file(saved)
    with pytest.raises(RunDirError, match="refers to a file of this machine") as refused:
        load_launch(received, received.launch("0.1"), Phase.BEFORE)
    assert refused.value.hint == "make the run again here"
    written = write_bundle(report.of_run(received), BundleOptions(tmp_path / "b.zip"))
    assert not any("tensors/" in item.name for item in written.contents.items)
