from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.compare.outcome import DIFFERS, WRONG_VALUE
from aoti_debug.package.manifest import Kind
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.checks import wrong_value
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from tests.triage.recorder import Recorder

FINDING = Finding(WRONG_VALUE, "15 of 30 elements are not what the program says", next=("python repro.py",))


@pytest.mark.parametrize("kind", [ArtifactKind.EXPORTED, ArtifactKind.PACKAGE])
def test_a_search_for_the_lowering_builds_as_the_triage_has_built(
    monkeypatch: pytest.MonkeyPatch, kind: ArtifactKind
) -> None:
    monkeypatch.setattr("aoti_debug.package.pt2.archive.inspect", lambda _: SimpleNamespace(kind=kind))
    code = UserCode(("passes",), (Path("ops.so"),))
    options = TriageOptions(Path("m.pt2"), inputs=Path("x.pt"), user_code=code, inductor_configs={"max_autotune": True})
    investigation: Any = SimpleNamespace(options=options)
    run: Any = SimpleNamespace(inputs=Path("runs/1/inputs.pt"))
    command = (
        "aoti-debug bisect m.pt2 --settings --inputs x.pt --import passes --load-library ops.so "
        "--inductor-config max_autotune=True"
    )
    expected = (*FINDING.next, *((command,) if kind is ArtifactKind.EXPORTED else ()))
    assert wrong_value.with_search(FINDING, investigation, run).next == expected


def test_a_search_calls_the_model_as_the_triage_has_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aoti_debug.package.pt2.archive.inspect", lambda _: SimpleNamespace(kind=ArtifactKind.EXPORTED))
    investigation: Any = SimpleNamespace(options=TriageOptions(Path("m.pt2"), random_inputs=4, calls=3))
    run: Any = SimpleNamespace(inputs=Path("runs/1/inputs.pt"))
    command = "aoti-debug bisect m.pt2 --settings --inputs runs/1/inputs.pt --calls 3"
    assert wrong_value.with_search(FINDING, investigation, run).next == (*FINDING.next, command)


@pytest.mark.parametrize("configs", [{}, {"freezing": True, "cpp.simdlen": 1}])
def test_settings_that_were_asked_for_may_be_why_outputs_differ(
    monkeypatch: pytest.MonkeyPatch, configs: dict[str, Any]
) -> None:
    monkeypatch.setattr("aoti_debug.package.pt2.archive.inspect", lambda _: SimpleNamespace(kind=ArtifactKind.EXPORTED))
    investigation: Any = SimpleNamespace(options=TriageOptions(Path("model.pt2"), inductor_configs=configs))
    suspicion: Any = SimpleNamespace(finding=Finding(DIFFERS, "output 0"), launch=None, run=None)
    found = wrong_value.confirm(investigation, suspicion).finding
    if not configs:
        assert (found.possible, found.next) == ((), ())
        return
    assert found.possible == ("freezing=True, cpp.simdlen=1, which the build was asked for, may be why",)
    (command,) = found.next
    assert command.startswith("aoti-debug bisect model.pt2 --settings")
    assert "--inductor-config freezing=True" in command


def test_the_bytes_of_tensors_count_what_is_only_read_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, inputs=("arg0",), outputs=("buf1",), weights=("weight",))
    recorder.journal.call_begin()
    recorder.launch("a", {"arg0": torch.ones(4), "weight": torch.ones(100)}, {"buf0": torch.ones(10)}, kind=Kind.CPP)
    recorder.launch("b", {"weight": torch.ones(100)}, {"buf0": torch.ones(10)}, kind=Kind.CPP)
    assert wrong_value.bytes_of_tensors(recorder.run()) == 4 * (4 + 100 + 10 + 10)
