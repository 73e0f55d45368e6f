from __future__ import annotations

from pathlib import Path
from typing import Any

from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.findings import CLEAN, NONFINITE, Finding
from aoti_debug.views.report import launch_graph
from tests.views.report.subjects import FINDING, run


def edges(found: dict[str, Any]) -> set[tuple[str, str]]:
    names = [node["name"] for node in found["nodes"]]
    return {(names[start], names[end]) for start, end in found["edges"]}


def test_the_chain_leads_from_the_origin_to_the_guilty_launch(tmp_path: Path) -> None:
    opened = run(tmp_path)
    found = launch_graph.graph_of(opened, FINDING, diagnose(opened))
    assert edges(found) == {
        ("index", "cpp_fused_mul_0"),
        ("cpp_fused_mul_0", "buf0"),
        ("buf0", "aoti_torch_cpu_index_Tensor"),
        ("l_table", "aoti_torch_cpu_index_Tensor"),
    }
    roles = {node["name"]: node["role"] for node in found["nodes"]}
    assert (roles["index"], roles["aoti_torch_cpu_index_Tensor"], roles["l_table"]) == ("origin", "guilty", "argument")
    table = next(node for node in found["nodes"] if node["name"] == "l_table")
    assert table["more"] == "float32[4,8], element 314159"


def test_without_a_chain_the_neighbours_are_shown(tmp_path: Path) -> None:
    opened = run(tmp_path, fault=False)
    finding = Finding(NONFINITE, "NaN", FINDING.where)
    found = launch_graph.graph_of(opened, finding, None)
    assert [node["name"] for node in found["nodes"] if node["role"] == "guilty"] == ["aoti_torch_cpu_index_Tensor"]
    assert edges(found) == {
        ("arg0_1", "cpp_fused_mul_0"),
        ("cpp_fused_mul_0", "buf0"),
        ("buf0", "aoti_torch_cpu_index_Tensor"),
        ("l_table", "aoti_torch_cpu_index_Tensor"),
        ("aoti_torch_cpu_index_Tensor", "buf1"),
        ("buf1", "cpp_fused_exp_1"),
    }


def test_a_clean_run_has_no_graph(tmp_path: Path) -> None:
    opened = run(tmp_path, fault=False)
    assert launch_graph.graph_of(opened, Finding(CLEAN, ""), None) == launch_graph.EMPTY
