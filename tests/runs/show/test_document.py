from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.base.abi import CallKind, Phase
from aoti_debug.package.argument_values import Absent, Number
from aoti_debug.package.manifest import Certainty, CType, Form, Kind, Role
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.verdict import Proof
from aoti_debug.runs.rundir.argument_statistics import Measurer
from aoti_debug.runs.rundir.launch import LaunchStatus
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.rundir.run_json import ExitKind, RunStage
from aoti_debug.runs.show.document import document
from tests import schema
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, tensor, triton_kernel
from tests.runs.show.recorded import crashed, device_fault, hashes, level_2, replayed


def as_json(run: RunDir) -> dict[str, Any]:
    """What a program that reads the output sees."""
    made = document(run, diagnose(run), run.launches, Measurer(run))
    as_data: dict[str, Any] = json.loads(json.dumps(made, allow_nan=False))
    return as_data


@pytest.mark.parametrize("make", [level_2, hashes, replayed, crashed, device_fault])
def test_documents_are_as_the_schema_says(tmp_path: Path, make: Any) -> None:
    assert schema.problems(as_json(make(tmp_path))) == []


def test_the_schema_finds_what_is_wrong(tmp_path: Path) -> None:
    whole = as_json(level_2(tmp_path))
    for place, key, value, problem in [
        ((), "state", "over", "$.state: 'over' is none of"),
        ((), "launches", {}, "$.launches: {} is no array"),
        (("launches", 0), "surprise", 1, "$.launches[0]: surprise is not described"),
        (
            ("launches", 0, "args", 1, "tensor"),
            "shape",
            [1.5],
            "$.launches[0].args[1].tensor.shape[0]: 1.5 is no integer",
        ),
        (("launches", 0), "begin_ns", True, "$.launches[0].begin_ns: True is no integer"),
    ]:
        damaged = copy.deepcopy(whole)
        spot: Any = damaged
        for step in place:
            spot = spot[step]
        spot[key] = value
        (reported,) = schema.problems(damaged)
        assert reported.startswith(problem)
    del whole["launches"][0]["kernel"]
    assert schema.problems(whole) == ["$.launches[0]: no kernel"]


def test_the_schema_names_every_member_of_our_enums() -> None:
    defs = schema.SCHEMA["$defs"]
    launch, argument = defs["launch"]["properties"], defs["argument"]["properties"]
    pairs: list[tuple[list[Any], list[Any]]] = [
        (defs["state"]["enum"], [kind.value for kind in ExitKind]),
        (launch["kind"]["enum"], [kind.value for kind in Kind]),
        (launch["status"]["enum"], [status.value for status in LaunchStatus]),
        (launch["provenance"]["properties"]["certainty"]["enum"], [certainty.value for certainty in Certainty]),
        (argument["role"]["enum"], [role.name.lower() for role in Role]),
        (argument["form"]["enum"], [form.name.lower() for form in Form]),
        (argument["type"]["enum"], ["tensor", "number", *(absent.value for absent in Absent)]),
        (schema.SCHEMA["properties"]["verdict"]["properties"]["proof"]["enum"], [proof.value for proof in Proof]),
        (
            schema.SCHEMA["properties"]["exit"]["properties"]["stage"]["enum"],
            [*(stage.value for stage in RunStage), None],
        ),
    ]
    for described, ours in pairs:
        assert sorted(map(str, described)) == sorted(map(str, ours))


def test_a_launch_with_values(tmp_path: Path) -> None:
    launch = as_json(level_2(tmp_path))["launches"][0]
    assert (launch["id"], launch["kernel"], launch["kind"], launch["op"]) == (
        "0.0",
        "aoti_torch_cpu_addmm_out",
        "shim_out",
        "aten.addmm.out",
    )
    assert launch["source"] == [
        {"file": "/home/u/model.py", "line": 12, "function": "forward", "text": "y = torch.relu(x)"}
    ]
    assert launch["provenance"]["certainty"] == "exact"
    out, x, weight, beta = launch["args"]
    assert weight["tensor"] == {
        "dtype": "float32",
        "device": "cpu",
        "layout": "strided",
        "shape": [64, 32],
        "strides": [1, 64],
        "storage_offset": 16,
        "storage_bytes": 16384,
        "data_ptr": "0x2000",
    }
    assert weight["base"] == "l_weight"
    assert (beta["type"], beta["value"], beta["tensor"]) == ("number", 1.0, None)
    assert out["before"] == {
        "statistics": None,
        "reason": "not initialised",
        "values": None,
        "hash": None,
        "file": None,
        "replay": None,
    }
    assert (out["after"]["statistics"]["n_nan"], out["after"]["statistics"]["max"]) == (3, 41.5)
    assert (x["role"], x["after"]) == ("in", None)


def test_hashes_without_statistics(tmp_path: Path) -> None:
    found = as_json(hashes(tmp_path))
    assert (found["level"], found["calls"][0]["level"]) == ("hash", "hash")
    out, x, _, _ = found["launches"][0]["args"]
    assert (out["before"]["reason"], out["before"]["hash"]) == ("not initialised", None)
    for phase in (out["after"], x["before"]):
        assert (phase["statistics"], phase["reason"]) == (None, "only its hash was recorded")
    assert (out["after"]["hash"], x["before"]["hash"]) == ("0123456789abcdef", "00000000000000ff")


def test_replays_of_a_captured_call(tmp_path: Path) -> None:
    found = as_json(replayed(tmp_path))
    assert [(call["capturing"], call["replays"]) for call in found["calls"]] == [(True, 8)]
    assert [launch["replay"] for launch in found["launches"]] == [8, 8]
    x, y = found["launches"][1]["args"]
    assert (x["before"]["replay"], y["after"]["replay"]) == (8, 7)
    assert y["after"]["statistics"]["n_nan"] == 1


def test_numbers_that_json_has_not(tmp_path: Path) -> None:
    launch = as_json(level_2(tmp_path))["launches"][1]
    assert launch["args"][1]["after"]["values"] == [1.0, -2.5, pytest.approx(0.1), "nan"]
    writer = JournalWriter()
    writer.launch(0, 0, Number(float("-inf"), CType.F64), Number(2**64 - 1, CType.U64))
    scalars = [arg(name, Role.NONE, Form.SCALAR) for name in ("a", "b")]
    run = open_run(run_directory(tmp_path, make_manifest(site("k", *scalars)), writer, name="n"))
    assert [a["value"] for a in as_json(run)["launches"][0]["args"]] == ["-inf", 2**64 - 1]


def test_a_verdict(tmp_path: Path) -> None:
    as_data = as_json(device_fault(tmp_path))
    assert as_data["verdict"].items() >= {"proof": "certain", "suspects": ["0.1"], "surfaced": "0.5"}.items()
    assert as_data["faults"] == [{"launch": "0.5", "domain": "cuda", "code": 700, "text": "CUDA_ERROR_ILLEGAL_ADDRESS"}]
    assert as_data["launches"][1]["grids"] == [
        {
            "kernel": "triton_poi_fused_0",
            "grid": [4, 1, 1],
            "num_warps": 4,
            "shared_bytes": 128,
            "arguments": [
                {"name": "in_ptr0", "ctype": "CUdeviceptr", "value": 0x7F00},
                {"name": "out_ptr0", "ctype": "CUdeviceptr", "value": 0x7F80},
                {"name": "xnumel", "ctype": "int32_t", "value": 256},
            ],
        }
    ]


def test_constant_folding_and_skipped_files(tmp_path: Path) -> None:
    writer = JournalWriter(level=1)
    writer.call_begin(kind=CallKind.CONSTANT)
    writer.launch_begin(0, 0, tensor(2), kind=CallKind.CONSTANT)
    writer.call_begin()
    writer.launch_begin(0, 0, tensor(2))
    writer.tensor_file(0, 0, Phase.AFTER, "", status=2, reason="too large")  # type: ignore[arg-type]
    package = make_manifest(site("k", arg("x")), kernels=[triton_kernel("t")])
    as_data = as_json(open_run(run_directory(tmp_path, package, writer)))
    assert schema.problems(as_data) == []
    assert [call["id"] for call in as_data["calls"]] == ["c0", "0"]
    assert [launch["id"] for launch in as_data["launches"]] == ["c0.0", "0.0"]
    assert as_data["launches"][1]["args"][0]["after"] == {
        "statistics": None,
        "reason": "too large",
        "values": None,
        "hash": "0" * 32,
        "file": None,
        "replay": None,
    }
