from __future__ import annotations

import contextlib
import os
from pathlib import Path

from aoti_debug.base.machine.steps import Steps
from aoti_debug.compare.compare_run import Scope, compare_run
from aoti_debug.compare.evaluation_process import LOG, EvaluationProcess
from tests.compare.chains import chain

ADD = ("aten.add.Tensor",) * 3


def _is_alive(process: EvaluationProcess) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, 0)
        return True
    return False


def test_a_process_that_was_prepared_evaluates(tmp_path: Path) -> None:
    run = chain(tmp_path / "run", ADD, wrong=1)
    prepared = EvaluationProcess("cpu", tmp_path / LOG)
    assert _is_alive(prepared)
    comparison = compare_run(run, Scope(), tmp_path, Steps(None), prepared)
    assert comparison.first_wrong is not None
    assert comparison.first_wrong.launch.id == "0.1"
    assert not _is_alive(prepared)


def test_one_that_died_meanwhile_is_replaced(tmp_path: Path) -> None:
    run = chain(tmp_path / "run", ADD, wrong=1)
    prepared = EvaluationProcess("cpu", tmp_path / LOG)
    prepared._child.kill()
    prepared._child.wait()
    comparison = compare_run(run, Scope(), tmp_path, Steps(None), prepared)
    assert comparison.first_wrong is not None


def test_one_that_is_not_needed_ends(tmp_path: Path) -> None:
    prepared = EvaluationProcess("cpu", tmp_path / LOG)
    prepared.close()
    prepared.close()
    assert not _is_alive(prepared)
