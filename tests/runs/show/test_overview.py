from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.base import terminal_cells
from aoti_debug.base.abi import LaunchFlag, NoteCode
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import Exit, ExitKind
from aoti_debug.runs.show.overview import excerpt, notes, overview
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor
from tests.runs.show.recorded import CPU, KERNELS, LAYER, crashed, device_fault, hashes, level_2, long_names, replayed


def lines(run: RunDir, limit: int | None = None, width: int = 100) -> list[str]:
    verdict = diagnose(run)
    around = verdict.suspects[0] if verdict and verdict.suspects else None
    return overview(run, verdict, excerpt(run.launches, limit, around), width)


def test_a_clean_run(tmp_path: Path) -> None:
    assert lines(level_2(tmp_path)) == [
        "run 20261120-231501-4711: no fault; no outputs",
        "  level 2  cpu  torch 2.13.0  pid 4711  2026-11-20T23:15:01+00:00",
        "  3 launches in 1 call, 12.3 ms in the model",
        "",
        "launch  kernel                        arguments                model line    largest magnitude",
        "------  ----------------------------  -----------------------  ------------  -----------------",
        "   0.0  aoti_torch_cpu_addmm_out      x, l_weight_view → buf0  model.py:12   3 NaN in buf0",
        "   0.1  cpp_fused_relu_sum_1          buf0 → buf0, buf1        model.py:14   1 NaN in buf1",
        "   0.2  aoti_torch_index_put_out [3]  buf1, buf0 → buf1        ~model.py:20     -7 in buf1",
        "kind is left out; --wide shows everything",
    ]


def test_settings_of_torch_stand_beside_its_version(tmp_path: Path) -> None:
    run = level_2(tmp_path)
    changed = run.with_info(replace(run.info, torch_settings={"default_dtype": "float64", "num_threads": 1}))
    assert lines(changed)[1] == f"{lines(run)[1]}  default_dtype float64  1 thread"


def test_hashes_stand_in_place_of_values(tmp_path: Path) -> None:
    printed = lines(hashes(tmp_path))
    assert printed[1].startswith("  level hash  cpu")
    titles, _, first, second = printed[4:8]
    assert titles.endswith("  hash")
    assert first.endswith("  #01234567 in buf0")
    assert second.endswith("  #deadbeef in buf0 and 1 more")


def test_the_last_replay_of_a_captured_call(tmp_path: Path) -> None:
    printed = lines(replayed(tmp_path))
    text = (
        "statistics of replay 8 of the CUDA graph that captured call 0, the last one, or of replay 7 where it had not "
        "measured a"
    )
    assert text in " ".join(printed)
    assert any(line.endswith("1 NaN in buf0") for line in printed)


def test_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AOTI_DEBUG_DIR", str(tmp_path))
    assert lines(crashed(tmp_path)) == [
        "run 20261120-231501-4711: fault: killed by SIGSEGV",
        "  level 3  cpu  torch 2.13.0  pid 4711  2026-11-20T23:15:01+00:00",
        "  3 launches in 1 call",
        "  note: tensors are no longer saved: the disk is full",
        "",
        "FAULT invalid memory access in mylib::op.default",
        "  in launch 0.2  mylib::op.default",
        "  model    line unknown",
        "  args     in      buf1  float32[2,2] cpu",
        "  error    SIGSEGV (Segmentation fault)",
        "  because  launch 0.2 began and never returned",
        "  next     AOTI_DEBUG_LAUNCH=0.2 aoti-debug run m.pt2 --level 1",
        "  next     aoti-debug show 0.2",
        "",
        "launch  kernel                    kind      arguments                model line   largest magnitude",
        "------  ------------------------  --------  -----------------------  -----------  -----------------",
        "   0.0  aoti_torch_cpu_addmm_out  shim_out  x, l_weight_view → buf0  model.py:12  -",
        "   0.1  cpp_fused_relu_sum_1      cpp       buf0 → buf0, buf1        model.py:14  -",
        "   0.2  mylib::op.default         proxy     buf1 → buf2              -            GUILTY",
    ]


def many(base: Path, count: int, ended: int, exit_: Exit) -> RunDir:
    writer = JournalWriter()
    writer.call_begin()
    package = make_manifest(site("k", arg("x")))
    for launch in range(count):
        if launch < ended:
            writer.launch(launch, 0, tensor(2))
        else:
            writer.launch_begin(launch, 0, tensor(2))
    return open_run(run_directory(base, package, writer, exit=exit_))


def shown(printed: list[str]) -> list[str]:
    return [line.split()[0] for line in printed if line.lstrip().startswith("0.")]


def test_a_long_run_shows_its_beginning(tmp_path: Path) -> None:
    printed = lines(many(tmp_path, 50, 50, Exit(ExitKind.CLEAN)), limit=10)
    assert shown(printed) == [f"0.{n}" for n in range(10)]
    assert printed[-1] == "launches 1 to 10 of 50; --all shows them all"


def test_a_long_run_with_a_fault_shows_what_was_around_it(tmp_path: Path) -> None:
    exit_ = Exit(ExitKind.FAULT, "killed by SIGSEGV", signal="SIGSEGV")
    printed = lines(many(tmp_path, 40, 39, exit_), limit=8)
    assert shown(printed) == [f"0.{n}" for n in range(32, 40)]


@pytest.mark.parametrize(
    ("around", "start"),
    [(None, 0), (0, 0), (5, 0), (20, 14), (39, 32)],
    ids=["none", "first", "near", "middle", "last"],
)
def test_excerpts(tmp_path: Path, around: int | None, start: int) -> None:
    launches = many(tmp_path, 40, 40, Exit(ExitKind.CLEAN)).launches
    part = excerpt(launches, 8, None if around is None else launches[around])
    assert (part.start, len(part.shown), part.total) == (start, 8, 40)
    assert excerpt(launches, None, None).shown == launches


def test_what_is_going_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoti_debug.runs.rundir.run_directory._is_alive", lambda info: True)
    printed = lines(many(tmp_path, 2, 1, Exit(ExitKind.RUNNING)))
    assert printed[0] == "run 20261120-231501-4711: running"
    assert [line.split()[-1] for line in printed[-2:]] == ["-", "running"]
    nothing = open_run(run_directory(tmp_path, CPU, name="new", level=3, exit=Exit(ExitKind.RUNNING)))
    assert lines(nothing)[-1] == "nothing has been launched yet"


def test_an_empty_grid_and_an_error(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.launch_begin(0, 0, tensor(2))
    writer.launch_end(0, flags=LaunchFlag.NOT_STARTED)
    writer.launch_begin(1, 0, tensor(2))
    writer.launch_end(1, status=1)
    printed = lines(open_run(run_directory(tmp_path, make_manifest(site("k", arg("x"))), writer)))
    assert [line.rpartition("  ")[2] for line in printed[-2:]] == ["empty grid", "failed"]


def test_level_0(tmp_path: Path) -> None:
    printed = lines(open_run(run_directory(tmp_path, CPU)))
    assert printed[-1] == "  no journal: level 0 records nothing"


def test_a_journal_that_was_written_over(tmp_path: Path) -> None:
    writer = JournalWriter()
    writer.blocks_reused = 3
    writer.launch(0, 1, tensor(2), tensor(2))
    printed = lines(open_run(run_directory(tmp_path, CPU, writer)))
    assert "  note: the journal was full: its oldest launches were overwritten" in printed


def test_suspects_and_where_a_fault_was_noticed(tmp_path: Path) -> None:
    one = lines(device_fault(tmp_path / "one"))
    assert [line.split()[-1] for line in one[-6:]] == ["-", "GUILTY", "-", "-", "-", "failed"]
    four = lines(device_fault(tmp_path / "four", every=4))
    assert [line.split()[-1] for line in four[-6:]] == [*["suspect"] * 4, "-", "failed"]


@pytest.mark.parametrize("width", [80, 100, 119, 120, 150, 200, 260])
def test_one_launch_is_one_line(tmp_path: Path, width: int) -> None:
    printed = lines(long_names(tmp_path), width=width)
    rows = [line for line in printed if line.lstrip().startswith("0.")]
    assert shown(printed) == [f"0.{n}" for n in range(30)]
    assert printed.index(rows[-1]) - printed.index(rows[0]) == 29
    assert max(map(terminal_cells.count, printed)) <= width
    assert printed[-1].startswith("names are shortened")
    titles = ("kernel", "arguments", "model line", "largest magnitude")
    starts = [printed[printed.index("") + 1].index(title) for title in titles]
    assert all(rows[0][start - 1] == " " and rows[0][start] != " " for start in starts)
    assert rows[0].endswith("_out")
    assert " 2.25 in " in rows[0]


def test_nothing_is_shortened_where_the_width_is_not_limited(tmp_path: Path) -> None:
    printed = lines(long_names(tmp_path), width=terminal_cells.UNLIMITED)
    rows = [line for line in printed if line.lstrip().startswith("0.")]
    assert len(rows) == 30
    assert "…" not in "".join(printed)
    assert "--wide" not in printed[-1]
    names = ", ".join(f"{LAYER}_{n}" for n in range(6))
    assert f"{names} → {LAYER}_out" in rows[1]
    assert KERNELS[1] in rows[1]
    assert "modeling_with_a_name_of_many_columns.py:1234" in rows[1]


def test_kernels_that_differ_at_their_ends_stay_different(tmp_path: Path) -> None:
    rows = [line.split()[1] for line in lines(long_names(tmp_path, 3)) if line.lstrip().startswith("0.")]
    assert [row.partition("…")[0] for row in rows] == [
        k[: row.index("…")] for k, row in zip(KERNELS, rows, strict=True)
    ]
    assert all(k.endswith(row.partition("…")[2]) for k, row in zip(KERNELS, rows, strict=True))
    assert len(set(rows)) == 3


def test_equal_notes_are_counted(tmp_path: Path) -> None:
    writer = JournalWriter()
    for text in ("weights: swapped, on the active side", "a note", "weights: swapped, on the active side"):
        writer.note(NoteCode.WEIGHTS, text)
    run = open_run(run_directory(tmp_path, make_manifest(), writer))
    assert notes(run) == ["weights: swapped, on the active side (2 times)", "a note"]
