from __future__ import annotations

from pathlib import Path

import pytest

from aoti_debug.runs.diagnosis.findings import Finding
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.session import triage

ACT = "native::act.default"


@pytest.mark.slow
class TestTriage:
    """Of a package with an operator of native_library.py between two kernels."""

    @pytest.fixture
    def found(
        self, native_package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
    ) -> Finding:
        monkeypatch.setenv("NATIVE_OPS", request.param)
        options = TriageOptions(model=native_package, out=tmp_path, compare=False, threads=2, stall=5.0)
        return triage(options).record.finding

    @pytest.mark.parametrize("found", ["share"], indirect=True)
    def test_calls_that_differ(self, found: Finding) -> None:
        assert found.kind.value == "threads"
        assert "of 8 calls on 2 threads: not bit-equal to the same calls alone" in found.what
        assert found.where is not None
        assert found.where.kernel == ACT
        assert any(f"{ACT} differs first" in sentence for sentence in found.evidence)
        assert found.next[0].endswith("--threads 2 --jitter")

    @pytest.mark.parametrize("found", ["meet and read"], indirect=True)
    def test_a_crash(self, found: Finding) -> None:
        assert (found.kind.value, found.where is not None and found.where.kernel) == ("threads", ACT)
        assert "invalid memory access" in found.what
        assert "the same 8 calls alone ended well" in found.evidence[0]

    @pytest.mark.parametrize("found", [""], indirect=True)
    def test_equal_calls(self, found: Finding) -> None:
        assert not found.kind.is_fault
        assert "8 calls on 2 threads, in 4 runs: bit-equal to the same calls alone" in " ".join(
            (found.what, *found.evidence)
        )
