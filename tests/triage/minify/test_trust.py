"""Programs that were not made here: nothing of them runs, also when a search is resumed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from aoti_debug.base.errors import UsageError
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import FAULT, Finding
from aoti_debug.triage.minify import minify as module
from aoti_debug.triage.minify.minify import key_of, minify
from aoti_debug.triage.minify.script_results import Known, ScriptTrials
from aoti_debug.triage.minify.start_parts import MinifyOptions


def test_a_search_that_goes_on_asks_for_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)), program)
    program.chmod(0o666)
    options = MinifyOptions(program, out=tmp_path / "out")
    folder = options.out / key_of(options)[:12]
    folder.mkdir(parents=True)
    ScriptTrials(folder, key_of(options)).know(Known("triage", findings.to_json(Finding(FAULT, "SIGSEGV"))))
    monkeypatch.setattr(module, "known_finding", lambda *_: pytest.fail("it resumes"))
    with pytest.raises(UsageError, match="can be written by other users; torch would unpickle its objects"):
        minify(options)
