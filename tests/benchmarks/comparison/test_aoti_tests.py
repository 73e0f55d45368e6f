"""The benchmark of PyTorch's AOTInductor tests: the models that it finds in a file, and what it says of processes."""

from __future__ import annotations

import queue
import re
import sys
import time
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.comparison.aoti_tests import Results, Run, take
from benchmarks.comparison.aoti_tests_case import difference
from benchmarks.comparison.aoti_tests_file import Case, Compiled, TorchTests
from benchmarks.comparison.aoti_tests_results import Outcome, Result, finished, read

STAND_INS = ("test_aot_inductor", "test_aot_inductor_utils", "test_control_flow", "test_torchinductor")
FILE = """
import unittest
import torch
from test_aot_inductor_utils import AOTIRunnerUtil, check_model, check_model_with_multiple_inputs, code_check_count
from test_control_flow import CondModels
from test_torchinductor import TestFailure, copy_tests, requires_multigpu

class AOTInductorTestsTemplate:
    def test_once(self):
        self.check_model(torch.nn.ReLU(), (torch.ones(3, device=self.device),), options={"max_autotune": True})
        self.code_check_count(None, (), "text", 1)

    def test_several(self):
        model = torch.nn.ReLU()
        inputs = [(torch.ones(n),) for n in (2, 5)]
        self.check_model_with_multiple_inputs(model, inputs, dynamic_shapes={"input": {0: torch.export.Dim.AUTO}})
        assert AOTIRunnerUtil.run_multiple(model, inputs) == ["of 2", "of 5"]
        assert AOTIRunnerUtil.run(model, inputs[0]) == "of 2"
        assert AOTIRunnerUtil.compile(model, example_inputs=inputs[1]) == "plain.pt2"
        assert AOTIRunnerUtil.run("cpu", torch.relu, inputs[1]) == "of 5"

    def test_exported(self):
        program = torch.export.export(torch.nn.ReLU(), (torch.ones(4),))
        torch._inductor.aoti_compile_and_package(program, inductor_configs={"freezing": True})

    def test_runner(self):
        AOTIRunnerUtil.legacy_load_runner("cpu", AOTIRunnerUtil.compile(torch.nn.ReLU(), (torch.ones(1),)))

    def test_cond(self):
        self.check_model(CondModels.Simple(), (torch.ones(3),))

    @unittest.skip("for another device")
    def test_elsewhere(self):
        self.check_model(torch.nn.ReLU(), (torch.ones(3),))

    def test_crash(self):
        self.check_model(torch.nn.ReLU(), (torch.ones(3),))

class Cpu(unittest.TestCase):
    check_model = check_model

copy_tests(AOTInductorTestsTemplate, Cpu, "cpu", {"test_crash": TestFailure(("cpu",), is_skip=True)})
copy_tests(AOTInductorTestsTemplate, Cpu, "cuda", {"test_once": TestFailure(("cuda",), is_skip=True)})
"""


COMPILE_AND_PACKAGE = torch._inductor.aoti_compile_and_package


class Taking:
    """Stands in for torch: each call returns a text."""

    def __init__(self) -> None:
        self.cases: list[Case] = []

    def __call__(self, case: Case) -> Compiled:
        self.cases.append(case)
        assert torch._inductor.aoti_compile_and_package is COMPILE_AND_PACKAGE
        return Compiled(Path("plain.pt2"), [f"of {inputs[0].numel()}" for inputs in case.inputs])


@pytest.fixture
def tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchTests]:
    module = ModuleType("torch._inductor.test_case")
    vars(module)["TestCase"] = unittest.TestCase  # torch's own needs a package that is not installed
    monkeypatch.setitem(sys.modules, "torch._inductor.test_case", module)
    file = tmp_path / "test_aot_inductor.py"
    file.write_text(FILE)
    yield TorchTests(file, "cpu")
    for name in STAND_INS:
        del sys.modules[name]


def shapes(case: Case) -> list[tuple[int, ...]]:
    return [tuple(inputs[0].shape) for inputs in case.inputs]


def test_a_model_is_handed_over_with_its_settings(tests: TorchTests) -> None:
    taking = Taking()
    tests.run("test_once", taking)
    (case,) = taking.cases
    assert isinstance(case.model, torch.nn.ReLU)
    assert shapes(case) == [(3,)]
    assert case.options == {"max_autotune": True}


def test_helpers_return_what_torch_has_made(tests: TorchTests) -> None:
    taking = Taking()
    tests.run("test_several", taking)
    assert list(map(shapes, taking.cases)) == [[(2,), (5,)], [(2,), (5,)], [(2,)], [(5,)], [(5,)]]
    assert taking.cases[0].dynamic_shapes == {"input": {0: torch.export.Dim.AUTO}}
    assert taking.cases[4].model is torch.relu
    assert len({case.key() for case in taking.cases}) == 5


def test_a_model_counts_once_with_the_same_settings() -> None:
    model, other = torch.nn.ReLU(), torch.nn.ReLU()
    case = Case(model, [(torch.ones(2), 3)])
    assert case.key() == Case(model, [(torch.zeros(2), 3)]).key()
    assert case.key() != Case(other, [(torch.ones(2), 3)]).key()
    assert case.key() != Case(model, [(torch.ones(2), 4)]).key()
    assert case.key() != Case(model, [(torch.ones(2), 3)], {"freezing": True}).key()
    before = case.key()
    with torch._inductor.config.patch(max_autotune=True):
        assert case.key() != before


def test_a_program_that_a_test_exports_is_a_model(tests: TorchTests) -> None:
    taking, original = Taking(), torch._inductor.aoti_compile_and_package
    tests.run("test_exported", taking)
    (case,) = taking.cases
    assert case.exported is not None
    assert shapes(case) == [(4,)]
    assert case.options == {"freezing": True}
    assert torch._inductor.aoti_compile_and_package is original


@pytest.mark.parametrize(
    ("name", "models", "reason"),
    [
        ("test_runner", 1, "it drives the runner of a library"),
        ("test_cond", 0, "test_control_flow.py is not beside the tests"),
        ("test_elsewhere", 0, "for another device"),
        ("test_crash", 0, "PyTorch skips it"),
    ],
)
def test_what_is_skipped_says_why(tests: TorchTests, name: str, models: int, reason: str) -> None:
    taking = Taking()
    with pytest.raises(unittest.SkipTest, match=reason):
        tests.run(name, taking)
    assert len(taking.cases) == models


def test_a_file_without_the_tests_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.py"
    file.write_text("x = 1")
    with pytest.raises(ImportError, match="has no class AOTInductorTestsTemplate"):
        TorchTests(file, "cpu")
    for name in STAND_INS:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("expected", "actual", "said"),
    [
        ([torch.ones(2), 3], [torch.ones(2), 3], ""),
        (
            [torch.ones(2), torch.zeros(2)],
            [torch.ones(2), torch.tensor([0.0, 0.5])],
            "1 of 2 .* 1 first: .* 1 elements, 0.5 apart",
        ),
        ([torch.tensor(float("nan"))], [torch.tensor(float("nan"))], ""),
        ([torch.ones(2)], [torch.ones(3)], r".*: torch.float32 \(2,\), torch.float32 \(3,\)"),
        ([1], [1.0], ".*: 1, 1.0"),
        ([torch.ones(2)], [], "1 tensors and numbers, and 0"),
    ],
)
def test_the_first_difference_is_said(expected: list[Tensor | int], actual: list[Tensor | int], said: str) -> None:
    found = difference(expected, actual)
    assert re.fullmatch(said, found)


def test_results_are_read_up_to_where_they_were_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "results.jsonl"
    first, second = Result("test_a#2", Outcome.EQUAL, "2", 1.5), Result("test_b", Outcome.NOT_RUN)
    file.write_text(f"{first.to_json()}\n{second.to_json()}\n" + first.to_json()[:20])
    assert read(file) == [first, second]
    assert finished(read(file)) == {"test_a"}
    assert read(tmp_path / "none") == []


BEGIN = "import sys, json, time\nfor line in sys.stdin:\n    test = line.strip()\n"
EQUAL = "    print(json.dumps({'case': test, 'outcome': 'equal bit for bit', 'said': '', 'seconds': 1}), flush=True)\n"
ENDED = "    print(json.dumps({'ended': test}), flush=True)\n"


def at(step: str) -> str:
    return f"    print(json.dumps({{'begun': test + '#2', 'step': '{step}'}}), flush=True)\n"


@pytest.fixture
def processed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Result]]:
    """Runs tests in processes that do what a script says."""

    def process(script: str, limit: float = 60.0, left: float = 60.0) -> list[Result]:
        monkeypatch.setattr(Run, "command", lambda _: [sys.executable, "-c", BEGIN + script])
        run = Run(tmp_path / "file.py", "cpu", tmp_path, limit, time.monotonic() + left, 1)
        tests, results = queue.SimpleQueue[str](), Results(tmp_path / "results.jsonl")
        for name in ("test_a", "test_b"):
            tests.put(name)
        take(run, tests, results, tmp_path / "cache")
        written = [result for result in results.found if result.outcome is not Outcome.NOT_RUN]
        assert read(results.file) == written
        return results.found

    return process


def told(results: list[Result]) -> list[tuple[str, Any]]:
    return [(result.case, result.outcome) for result in results]


def test_one_process_runs_several_tests(processed: Callable[..., list[Result]]) -> None:
    assert told(processed(EQUAL + ENDED)) == [("test_a", Outcome.EQUAL), ("test_b", Outcome.EQUAL)]


@pytest.mark.parametrize(("step", "outcome"), [("ours", Outcome.FAILED), ("plain", Outcome.TORCH)])
def test_a_process_that_dies_is_laid_to_the_step(
    processed: Callable[..., list[Result]], step: str, outcome: Outcome
) -> None:
    results = processed(EQUAL + at(step) + "    sys.exit('a last word')\n")
    assert told(results) == [
        ("test_a", Outcome.EQUAL),
        ("test_a#2", outcome),
        ("test_b", Outcome.EQUAL),
        ("test_b#2", outcome),
    ]
    assert results[1].said == f"the process ended at {step}: exit code 1: a last word"


def test_a_model_that_does_not_end_is_stopped(processed: Callable[..., list[Result]]) -> None:
    results = processed(at("export") + at("ours") + "    time.sleep(600)\n", limit=0.2)
    assert told(results) == [("test_a#2", Outcome.FAILED), ("test_b#2", Outcome.FAILED)]
    assert results[0].said == "the process ended at ours: no end within 0 s"


def test_what_no_time_is_left_for_is_not_run(processed: Callable[..., list[Result]]) -> None:
    results = processed(at("plain") + "    time.sleep(600)\n", left=0.5)
    assert [result.outcome for result in results] == [Outcome.NOT_RUN, Outcome.NOT_RUN]
