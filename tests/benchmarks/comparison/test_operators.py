"""The benchmark of PyTorch's operators as something that is cut off, goes on later, and uses several GPUs."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

from benchmarks.comparison import operators
from benchmarks.comparison.operator_results import Outcome, Result, Row, Rows, print_tables
from benchmarks.comparison.operators import Batch, Bench, batches
from benchmarks.models import operator_samples
from benchmarks.models.operator_samples import Target

FLOAT, INT = Target("cpu", "float32"), Target("cpu", "int64", dynamic=True)
NAMES = {FLOAT: [f"f{number}" for number in range(40)], INT: [f"i{number}" for number in range(30)]}


def options(**changed: object) -> argparse.Namespace:
    values = {"only": None, "sample": None, "batch": 4, "jobs": 2, "seconds": 60.0, "minutes": None, "device": "cpu"}
    return argparse.Namespace(**(values | changed))


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_samples, "names", lambda target: list(NAMES[target]))


@pytest.mark.usefixtures("database")
def test_the_order_is_shuffled_over_everything_and_always_the_same(tmp_path: Path) -> None:
    first, second = (batches([FLOAT, INT], options(), Rows(tmp_path / "none")) for _ in range(2))
    assert first == second
    assert {target: sorted(n for b in first if b.target == target for n in b.names) for target in NAMES} == {
        target: sorted(names) for target, names in NAMES.items()
    }
    assert {batch.target for batch in first[:6]} == {FLOAT, INT}
    assert [name for batch in first for name in batch.names if batch.target == FLOAT] != NAMES[FLOAT]


@pytest.mark.usefixtures("database")
def test_a_sample_stays_the_same_when_a_part_of_it_is_done(tmp_path: Path) -> None:
    rows = Rows(tmp_path / "rows")
    asked = options(sample=3)
    everything = {(b.target, name) for b in batches([FLOAT, INT], asked, rows) for name in b.names}
    done = next(name for target, name in everything if target == FLOAT)
    rows.add(Row(FLOAT, Result(done, Outcome.GOOD, "")))
    left = {(b.target, name) for b in batches([FLOAT, INT], asked, rows) for name in b.names}
    assert (len(everything), everything - left) == (6, {(FLOAT, done)})


def test_results_are_kept_when_they_come(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    rows = Rows(file)
    rows.add(Row(FLOAT, Result("sin", Outcome.GOOD, "1 launch; 0.0 replayed")))
    rows.add(Row(INT, Result("cos", Outcome.NO_EXPORT, "no"), torch="0.1"))
    again = Rows(file)
    assert again.rows == rows.rows
    assert (again.has(FLOAT, "sin"), again.has(INT, "sin"), again.has(INT, "cos")) == (True, False, False)


def test_a_line_that_was_cut_off_is_written_again(tmp_path: Path) -> None:
    file = tmp_path / "rows"
    Rows(file).add(Row(FLOAT, Result("sin", Outcome.GOOD, "")))
    whole = file.read_text()
    file.write_text(whole + whole[:20])
    rows = Rows(file)
    assert [row.result.operator for row in rows.rows] == ["sin"]
    rows.add(Row(FLOAT, Result("cos", Outcome.GOOD, "")))
    assert [row.result.operator for row in Rows(file).rows] == ["sin", "cos"]


def test_a_table_for_each_torch(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        Row(FLOAT, Result("sin", Outcome.GOOD, "1 launch; 0.0 replayed"), torch="2.11"),
        Row(INT, Result("cos", Outcome.OTHER_BITS, "two"), torch="2.14"),
    ]
    assert print_tables(rows[:1]) == 0
    assert print_tables(rows) == 1
    said = capsys.readouterr().out
    assert "torch 2.11, cpu" in said
    assert "| float32 | 1 | 1 | 0 | 0 | 0 | 0 | 1 | 0 |" in said
    assert "| int64+dynamic | 1 | 0 | 0 | 0 | 0 | 0 | 0 | 1 |" in said
    assert "int64+dynamic cos: OTHER BITS: two" in said


def test_the_gpus_that_may_be_used_are_taken_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    bench = Bench(options(device="cuda", jobs=4), tmp_path, Rows(tmp_path / "rows"))
    found: list[str] = []

    def processed(_: Batch, place: str) -> list[Result]:
        found.append(place)
        return []

    monkeypatch.setattr(bench, "_processed", processed)
    for _ in range(4):
        bench.take(Batch(FLOAT, ("sin",)))
    assert found == ["2", "5", "2", "5"]


ENDS = """
import sys, time
print('{"operator": "%s", "outcome": "good", "said": ""}' % sys.argv[1], flush=True)
if len(sys.argv) > 2:
    time.sleep(100)
"""


def test_what_a_process_has_said_before_its_time_was_over_counts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Bench, "_command", lambda _, batch: [sys.executable, "-c", ENDS, *batch.names])
    rows = Rows(tmp_path / "rows")
    Bench(options(seconds=3.0), tmp_path, rows).take(Batch(FLOAT, ("sin", "cos")))
    assert [row.result.operator for row in rows.rows] == ["sin", "cos"]


def test_one_that_is_stopped_ends_its_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Bench, "_command", lambda _, batch: [sys.executable, "-c", ENDS, *batch.names])
    rows = Rows(tmp_path / "rows")
    bench = Bench(options(seconds=90.0), tmp_path, rows)

    def add(row: Row) -> None:
        Rows.add(rows, row)
        bench.stop()

    monkeypatch.setattr(rows, "add", add)
    bench.take(Batch(FLOAT, ("sin", "cos")))
    assert [row.result.operator for row in rows.rows] == ["sin"]


def test_an_operator_that_ends_its_process_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ends = "import sys\nif 'bad' in sys.argv: sys.exit('gone')\n" + ENDS
    monkeypatch.setattr(Bench, "_command", lambda _, batch: [sys.executable, "-c", ends, *batch.names])
    rows = Rows(tmp_path / "rows")
    Bench(options(), tmp_path, rows).take(Batch(FLOAT, ("sin", "bad")))
    said = {row.result.operator: (row.result.outcome, row.result.said) for row in rows.rows}
    assert said == {
        "sin": (Outcome.GOOD, ""),
        "bad": (Outcome.FAILED, "the process ended: exit code 1: gone"),
    }


def test_a_dtype_that_torch_does_not_have() -> None:
    with pytest.raises(SystemExit):
        operators.targets(options(dtypes="float33", samples=2))
