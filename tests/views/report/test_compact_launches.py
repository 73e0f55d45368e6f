from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.show.document import document
from aoti_debug.views.redaction import NO_REDACTION, RedactedPart, Redaction
from aoti_debug.views.report.compact_launches import STATISTICS, Compactor, merge_phases, merge_recordings
from tests.runs.show.recorded import replayed
from tests.views.report.subjects import SECRETS, device_fault, run


def shown(opened: RunDir) -> list[dict[str, Any]]:
    launches: list[dict[str, Any]] = document(opened, None, opened.launches, Measurer(opened))["launches"]
    return launches


def test_sites_layouts_and_stacks_are_stored_once(tmp_path: Path) -> None:
    launches = shown(run(tmp_path, 2, fault=False))
    compactor = Compactor(NO_REDACTION, str(tmp_path))
    made = [compactor.launch(launch, [0]) for launch in [*launches, *launches]]
    tables = compactor.tables()
    assert [len(tables[name]) for name in ("sites", "stacks", "layouts")] == [3, 1, 3]
    first, second = made[0], made[1]
    assert (first["id"], tables["sites"][first["site"]]["kernel"]) == ("0.0", "cpp_fused_mul_0")
    assert tables["layouts"][first["args"][0][0]][:4] == ["int64", "cpu", "strided", [4]]
    assert second["args"][0][2][0][STATISTICS.index("max")] == 271828.25
    assert second["args"][3] == [None, 314159]
    assert second["duration"] > 0


def test_the_replay_that_measured_a_launch(tmp_path: Path) -> None:
    compactor = Compactor(NO_REDACTION, str(tmp_path))
    assert [compactor.launch(launch, [])["replay"] for launch in shown(replayed(tmp_path / "graph"))] == [8, 8]
    assert compactor.launch(shown(run(tmp_path / "eager", 2))[0], [])["replay"] is None


def test_grids_refer_to_their_kernel(tmp_path: Path) -> None:
    compactor = Compactor(NO_REDACTION, str(tmp_path))
    made = [compactor.launch(launch, []) for launch in shown(device_fault(tmp_path))]
    (kernel,) = compactor.tables()["kernels"]
    assert kernel == [
        "triton_poi_fused_0",
        [["in_ptr0", "CUdeviceptr"], ["out_ptr0", "CUdeviceptr"], ["xnumel", "int32_t"]],
    ]
    assert made[0]["grids"] == [[0, [4, 1, 1], 4, 128, [0x7F00, 0x7F80, 256]]]


def test_without_values(tmp_path: Path) -> None:
    compactor = Compactor(Redaction(frozenset({RedactedPart.TENSORS})), str(tmp_path))
    made = [compactor.launch(launch, []) for launch in shown(run(tmp_path, 2))]
    text = json.dumps([made, compactor.tables()])
    assert not any(secret in text for secret in SECRETS)
    assert "secret_table" in text


def test_without_source(tmp_path: Path) -> None:
    compactor = Compactor(Redaction(frozenset({RedactedPart.SOURCE})), str(tmp_path))
    made = [compactor.launch(launch, []) for launch in shown(run(tmp_path, 2))]
    text = json.dumps([made, compactor.tables()])
    assert "secret_table" not in text
    assert "271828" in text


def test_what_another_recording_knows_is_filled_in(tmp_path: Path) -> None:
    plain, measured = shown(run(tmp_path / "a")), shown(run(tmp_path / "b", 2, fault=False))
    filled = merge_recordings(plain[1], [measured[1]])
    assert filled["args"][2]["after"]["statistics"]["n_nan"] == 3
    assert plain[1]["args"][2]["after"] is None
    assert merge_recordings(plain[1], [measured[0]]) == plain[1]
    assert filled["status"] == "failed"


def test_of_two_records_of_a_phase_both_count() -> None:
    statistics = {"statistics": {"max": 1}, "reason": None, "values": None, "hash": "1", "file": None}
    saved = {"statistics": None, "reason": "not read", "values": None, "hash": "2", "file": "t.safetensors"}
    assert merge_phases(statistics, saved) == {**statistics, "reason": "not read", "file": "t.safetensors"}
    assert merge_phases(None, saved) == saved
    assert merge_phases(statistics, None) == statistics
