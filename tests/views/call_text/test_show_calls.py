"""`aoti-debug show --calls` of real runs, and the same programs in eager."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from aoti_debug.app.cli import main
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.built_model import Built

Runs = Callable[[str], RunDir]


def calls(capsys: pytest.CaptureFixture[str], run: RunDir, *options: str) -> list[str]:
    capsys.readouterr()
    assert main.run(["show", "--calls", "--run", str(run.path), "--all", *options]) == 0
    return capsys.readouterr().out.splitlines()


def test_launches_by_module(saved: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    run = saved("blocks")
    lines = calls(capsys, run)
    assert [re.search(r"# (\d+\.\d+)$", line)[1] for line in lines if re.search(r"# \d", line)] == [  # type: ignore[index]
        launch.id for launch in run.launches
    ]
    at = lines.index("[nn.Mod] linear.0")
    weights = r"t\$\d+: f32\[64\], t\$\d+: f32\[16, 64\], t\$\d+: f32\[64, 64\]"
    assert re.fullmatch(rf"  aten::addmm\({weights}\) -> t\$\d+: f32\[16, 64\]  # 0\.0", lines[at + 1])
    held = [line for line in lines if "aten::rsqrt" in line]
    assert len(held) == 4
    assert all(line.endswith(f"# norm.{n}") or "#" not in line for n, line in enumerate(held))


def test_the_number_of_a_tensor_is_the_same_in_a_selection(saved: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    everything = calls(capsys, saved("blocks"))
    (linear,) = [line for line in calls(capsys, saved("blocks"), "--module", "linear.2") if "addmm" in line]
    assert linear in everything
    holding = calls(capsys, saved("blocks"), "--operator", "aten::rsqrt")
    assert all(line.lstrip() in map(str.lstrip, everything) for line in holding)
    assert not any("aten::addmm" in line for line in holding)
    assert calls(capsys, saved("blocks"), "--where", "numel > 1e9") == []
    assert len([line for line in calls(capsys, saved("blocks"), "--where", "absmax > 0") if "# 0." in line]) == len(
        saved("blocks").launches
    )


def test_eager_and_the_run_have_the_same_words(
    saved: Runs, built: Callable[[str], Built], capsys: pytest.CaptureFixture[str]
) -> None:
    run, program = saved("blocks"), str(built("blocks").program)
    compiled = calls(capsys, run, "--hashes", "--operator", "aten::addmm")
    eager = calls(capsys, run, "--hashes", "--operator", "aten::addmm", "--eager", program)
    assert [line for line in compiled if "nn.Mod" in line] == [line for line in eager if "nn.Mod" in line]
    first = [re.findall(r"\w+\[[\d, ]*\]\{hash=[0-9a-f]{16}\}", lines[1]) for lines in (compiled, eager)]
    assert len(first[0]) == 4
    assert first[0] == first[1]


def test_eager_takes_filters(saved: Runs, built: Callable[[str], Built], capsys: pytest.CaptureFixture[str]) -> None:
    lines = calls(capsys, saved("blocks"), "--eager", str(built("blocks").program), "--module", "norm.1")
    assert [line.partition("(")[0] for line in lines] == ["[nn.Mod] norm.1", "  aten::native_layer_norm"]


def test_branches_loops_and_numbers(
    saved: Runs, built: Callable[[str], Built], capsys: pytest.CaptureFixture[str]
) -> None:
    compiled = "\n".join(calls(capsys, saved("control")))
    assert re.search(r"aten::_local_scalar_dense\(t\$\d+: b8\[\]\)", compiled)
    eager = "\n".join(calls(capsys, saved("control"), "--eager", str(built("control").program)))
    assert "torch.cond(" in eager
    assert "torch.while_loop(" in eager


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["--hashes"], 2, "error: --hashes needs --calls"),
        (["--calls", "--where", "size > 3"], 2, "error: --where does not parse: there is no statistic 'size'"),
        (["--calls", "--module", "linear.9"], 2, "error: no launch of run"),
        (["--calls", "--eager", "none.pt2"], 3, "error: none.pt2 does not exist"),
    ],
)
def test_mistakes(saved: Runs, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, error: str) -> None:
    assert main.run(["show", "--run", str(saved("blocks").path), *arguments]) == code
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith(error)
    assert err[-1].startswith("hint: ")
