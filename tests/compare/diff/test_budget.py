from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.base.errors import UsageError
from aoti_debug.compare.diff import budget
from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.difference import Diff
from tests.compare.chains import chain

ADD = ("aten.add.Tensor",) * 4


@pytest.fixture(scope="module")
def differing(tmp_path_factory: pytest.TempPathFactory) -> Diff:
    base = tmp_path_factory.mktemp("budget")
    return diff_runs(chain(base / "a", ADD), chain(base / "b", ADD, wrong=1))


def excesses(text: str, diff: Diff, folder: Path) -> tuple[str, ...]:
    path = folder / "budget.toml"
    path.write_text(text)
    return budget.read(path).excesses(diff)


def test_without_a_rule_everything_must_be_equal(differing: Diff, tmp_path: Path) -> None:
    found = excesses("", differing, tmp_path)
    assert found[0] == "0.1 cpp_fused_add_1 buf1: it must be equal"
    assert len(found) == 3


@pytest.mark.parametrize(
    ("rule", "count"),
    [
        ("atol = 1", 0),
        ("atol = 0.5", 3),
        ('atol = 1\nkernel = "*_1"', 2),
        ('atol = 1\nname = "buf[23]"', 1),
        ("atol = 1\nshare = 0.5", 3),
        ("rtol = 1.0", 0),
        ("ulp = 1", 3),
        ("ulp = 1e9", 0),
    ],
)
def test_limits(rule: str, count: int, differing: Diff, tmp_path: Path) -> None:
    assert len(excesses(f"[[tensor]]\n{rule}\n", differing, tmp_path)) == count


def test_the_first_table_that_matches_holds(differing: Diff, tmp_path: Path) -> None:
    text = '[[tensor]]\nname = "buf1"\natol = 0\n[[tensor]]\natol = 1\n'
    (only,) = excesses(text, differing, tmp_path)
    assert only == "0.1 cpp_fused_add_1 buf1: atol 1 is more than 0"


def test_launches_that_only_one_run_has(tmp_path: Path) -> None:
    short, long = chain(tmp_path / "a", ADD[:3]), chain(tmp_path / "b", ADD)
    for run in (short, long):
        (run.path / "package.pt2").unlink()  # without their graphs, launches are paired by position
    diff = diff_runs(short, long)
    assert excesses("", diff, tmp_path) == ("1 launch in one run only, of 0",)
    assert excesses("[launches]\nonly_in_one = 1\n", diff, tmp_path) == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[tensor]\n", "is not TOML"),
        ("[[tensors]]\nulp = 1\n", "the budget has no tensors; it has tensor, launches"),
        ("[[tensor]]\nulps = 1\n", "[[tensor]] has no ulps"),
        ("[[tensor]]\nulp = -1\n", "ulp is a number from 0, not -1"),
        ("[[tensor]]\nulp = true\n", "ulp is a number from 0, not True"),
        ("[[tensor]]\nrtol = nan\n", "rtol is a number from 0, not nan"),
        ("[[tensor]]\nulp = 1\nname = 3\n", "name is a pattern, not 3"),
        ('[[tensor]]\nname = "*"\n', "a [[tensor]] has no limit"),
        ("tensor = 3\n", "it needs [[tensor]] tables"),
        ("tensor = [3]\n", "[[tensor]] is a table"),
        ("[launches]\nonly_in_one = -1\n", "only_in_one is a number from 0, not -1"),
        ("[launches]\nmore = 1\n", "[launches] has no more"),
    ],
)
def test_bad_budgets(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "budget.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        budget.read(path)
    assert problem in str(error.value)
    assert error.value.hint


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the budget"):
        budget.read(tmp_path / "missing.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is not text"):
        budget.read(tmp_path / "binary")
