"""What the benchmark of costs refuses to measure."""

from __future__ import annotations

import sys

import pytest

from benchmarks.performance import overhead
from tests.torch_features import SIDE_STREAMS


def test_whether_torch_has_streams_is_seen_in_its_files() -> None:
    assert overhead.has_streams() is SIDE_STREAMS


def test_streams_of_an_older_torch_are_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(overhead, "has_streams", lambda: False)
    monkeypatch.setattr(sys, "argv", ["overhead", "--device", "cuda", "--only", "streams"])
    with pytest.raises(SystemExit) as caught:
        overhead.main()
    assert caught.value.code == 2
    assert "streams need torch from 2.14 on: " in capsys.readouterr().err
