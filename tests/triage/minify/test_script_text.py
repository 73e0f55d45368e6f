"""Scripts of small parts, whole: tests/triage/minify/golden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from aoti_debug.compare.fx_repro.module_text import module_text
from aoti_debug.compare.outcome import REFUSED
from aoti_debug.runs.diagnosis.findings import Finding, FindingKind
from aoti_debug.triage.minify.attempt import Attempt, InputForm, InputMode, script_of
from aoti_debug.triage.minify.script_text import IN_EAGER, ScriptCheck, ScriptSetup, checks_of, script_text
from aoti_debug.triage.minify.start_parts import part_of
from aoti_debug.triage.results import finding_kinds
from tests.triage.minify import parts

GOLDEN = Path(__file__).parent / "golden"
RELU, ADD = "aten.relu.default", "aten.add.Tensor"
SETTING = ScriptSetup({"cpp.simdlen": 1}, ("/home/u/model",), ("my_ops",), ("/home/u/ops.so",), 20.0)


@pytest.mark.parametrize("check", list(ScriptCheck), ids=lambda check: check.name.lower())
def test_the_whole_script(check: ScriptCheck, golden: Callable[[Path, str], None]) -> None:
    start = parts.start(RELU, ADD)
    region = part_of(start, start.units)
    assert region is not None
    module = module_text(start.reference, start.graph, region)
    title = 'FAULT in 0.3 cpp_fused_relu_0 of model.pt2: "a \\ b"'
    text = script_text(title, module, {"x": "torch.randn([4])"}, check, SETTING, 20 if check is ScriptCheck.ENDS else 1)
    compile(text, "repro.py", "exec")
    golden(GOLDEN / f"{check.name.lower()}.py.txt", text)


def test_inputs_are_random_or_files_beside_the_script() -> None:
    start = parts.start(RELU, ADD)
    script = script_of(Attempt(start, start.units, ScriptCheck.SAME), "title", ScriptSetup())
    assert script is not None
    assert 'torch.load(Path(__file__).with_name("x.pt"))' in script.text
    assert script.inputs.files == {"x.pt": start.folder / "0.pt"}
    small = InputForm(InputMode.SEED, {4: 2})
    script = script_of(Attempt(start, start.units, ScriptCheck.SAME, small), "title", ScriptSetup())
    assert script is not None
    assert "torch.randn([2])" in script.text
    assert script.inputs.files == {}


@pytest.mark.parametrize(("check", "is_written"), [(ScriptCheck.SAME, False), (ScriptCheck.ENDS, True)])
def test_random_numbers_are_not_compared(check: ScriptCheck, is_written: bool) -> None:
    start = parts.start(RELU, "aten.bernoulli.default", random=("node_1",))
    assert (script_of(Attempt(start, start.units, check), "title", ScriptSetup()) is not None) is is_written


def test_eager_returns_first_where_it_does() -> None:
    good, bad = parts.start(RELU, ADD), parts.start(RELU, ADD, missing=("node_1",))
    scripts = [
        script_of(Attempt(start, start.units, ScriptCheck.ENDS), "title", ScriptSetup()) for start in (good, bad)
    ]
    assert [script is not None and IN_EAGER in script.text for script in scripts] == [True, False]


def test_indices_are_as_small_as_the_sizes() -> None:
    start = parts.start(RELU)
    integers = replace(parts.TENSOR, dtype="int64", smallest=-1, largest=31)
    start = replace(start, lines=tuple(replace(line, tensor=integers) for line in start.lines))
    script = script_of(
        Attempt(start, start.units, ScriptCheck.SAME, InputForm(InputMode.SEED, {4: 2})), "title", ScriptSetup()
    )
    assert script is not None
    assert "torch.randint(-1, 2, [2])" in script.text


def test_the_module_is_on_the_device_of_its_inputs() -> None:
    start = replace(parts.start(RELU), device="cuda")
    for check in ScriptCheck:
        script = script_of(Attempt(start, start.units, check), "title", ScriptSetup())
        assert script is not None
        assert script.text.count("Launch().eval()") == script.text.count('Launch().eval().to("cuda")') > 0
        assert '.pt")).to("cuda")' in script.text


@pytest.mark.parametrize(("error", "is_shown"), [(0.5, False), (0.01, False), (3.0, True)])
def test_rounding_like_that_of_eager_is_no_difference(error: float, is_shown: bool) -> None:
    start = parts.start(RELU, ADD)
    script = script_of(Attempt(start, start.units, ScriptCheck.SAME, InputForm(InputMode.SEED)), "title", ScriptSetup())
    assert script is not None
    names: dict[str, Any] = {"__name__": "script"}
    source = script.text.replace("torch.randn([4])", "(torch.arange(4) + 16.03)").replace(
        "torch.float32", "torch.bfloat16"
    )
    source = source.replace("node_0, 1", "node_0, 0.3")
    with torch.enable_grad():  # the script switches gradients off, for this block only
        exec(source, names)  # eager rounds by up to 1/16
        eager = names["Launch"]()(*names["make_inputs"]())
        said = names["observed"](lambda *_: [tensor + error for tensor in eager])
    assert torch.is_grad_enabled()
    assert bool(said) is is_shown, said


KINDS = [kind for kind in finding_kinds.by_value().values() if kind.is_fault and kind is not REFUSED]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.value)
def test_every_kind_of_finding_has_checks(kind: FindingKind) -> None:
    assert checks_of(Finding(kind, "what"))


def test_no_script_shows_what_eager_refuses() -> None:
    assert checks_of(Finding(REFUSED, "index -1 is out of bounds")) == ()
