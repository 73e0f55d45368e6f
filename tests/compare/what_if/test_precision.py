"""`aoti-debug precision` as it is called, and what it says about parts that are rounded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

from aoti_debug.app.cli.main import group
from aoti_debug.base.dtypes import FLOAT_FORMATS
from aoti_debug.base.errors import AotiDebugError, ArtifactError, UsageError
from aoti_debug.compare.what_if.cast_program import BuiltProposal, CastProgram
from aoti_debug.compare.what_if.precision import RoundedModel
from aoti_debug.compare.what_if.precision_text import precision_document, precision_lines
from aoti_debug.runs.run.saved_outputs import saved
from aoti_debug.runs.rundir.formats.stored_tensor import open_tensor
from tests.compare.chains import chain
from tests.compare.what_if.rounded import effect, rounded_model
from tests.schema import DOCS, problems
from tests.wrong_model import Wrong

SCHEMA = json.loads((DOCS / "precision.schema.json").read_text())


def precision(model: Path, folder: Path, *words: str) -> Result:
    return CliRunner().invoke(group, ["precision", str(model), *words, "--out", str(folder / "replays")])


def test_modules_of_a_model_are_rounded(wrong: Wrong, tmp_path: Path) -> None:
    result = precision(wrong.good, tmp_path, "--json")
    found = json.loads(result.stdout)
    assert problems(found, SCHEMA) == []
    assert {part["name"] for part in found["parts"]} == {"layers.0", "layers.1", "layers.2", "(model)"}
    errors = [part["error"] for part in found["parts"]]
    assert errors == sorted(errors, reverse=True)
    assert found["noise"] == 0
    assert all(0 < part["outputs"][0]["relative"] < 0.02 for part in found["parts"])
    assert found["unrounded_inside"]
    assert result.exit_code == (8 if found["proposal"]["kept"] == [] else 1), result.output


def test_all_at_once_is_what_the_model_computes_with_rounded_tensors(wrong: Wrong, tmp_path: Path) -> None:
    result = precision(wrong.good, tmp_path, "--tolerance", "10")
    assert result.exit_code == 8, result.output
    assert "launches may compute several operators, as 0." in " ".join(result.output.split())
    (folder,) = (tmp_path / "replays").glob("2*")
    program = torch.export.load(wrong.program)
    state = program.state_dict

    def rounded(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.bfloat16).float()

    (x,) = program.example_inputs[0]
    hidden = rounded(x)
    for layer in range(3):
        weight, bias = (rounded(state[f"layers.{layer}.{name}"]) for name in ("weight", "bias"))
        hidden = rounded(torch.nn.functional.linear(hidden, weight, bias))
        hidden = rounded(hidden.relu()) if layer < 2 else hidden
    returned = open_tensor(next(iter(saved(next(folder.rglob("all/outputs"))).values()))).numbers()
    assert torch.allclose(torch.tensor(returned).reshape(hidden.shape), hidden, atol=1e-2, rtol=0)
    assert torch.equal(rounded(torch.tensor(returned)), torch.tensor(returned))


def test_what_is_read_is_given_back(wrong: Wrong, tmp_path: Path) -> None:
    result = precision(wrong.good, tmp_path, "--by", "launch", "--to", "float8_e5m2", "--calls", "2", "--json")
    found = json.loads(result.stdout)
    assert problems(found, SCHEMA) == []
    of_first_call = [part for part in found["parts"] if part["name"].startswith("0.")]
    assert of_first_call
    assert all(part["error"] == 0 for part in of_first_call)  # the outputs are those of the second call
    assert all(part["error"] for part in found["parts"] if part["name"].startswith("1.") and part["name"] != "1.5")


def test_a_run_directory_and_an_exit_code(wrong: Wrong, tmp_path: Path) -> None:
    first = precision(wrong.good, tmp_path, "--to", "float8_e4m3fn", "--tolerance", "1e-6", "--json")
    assert first.exit_code == 1, first.output
    found = json.loads(first.stdout)
    assert found["proposal"] is None
    again = precision(Path(found["run"]), tmp_path, "--to", "float8_e4m3fn", "--tolerance", "1e-6", "--json")
    assert [part["error"] for part in json.loads(again.stdout)["parts"]] == [p["error"] for p in found["parts"]]


def test_the_proposal_is_built_with_casts(wrong: Wrong, tmp_path: Path) -> None:
    result = precision(wrong.program, tmp_path, "--build", "--tolerance", "0.1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert problems(found, SCHEMA) == []
    built = found["built"]
    assert (built["failure"], built["left"]) == (None, [])
    assert set(built["modules"]) == {"layers.0", "layers.1", "layers.2", "(model)"}
    assert 1e-4 < built["error"] < 0.1
    state = torch.export.load(wrong.program)
    (x,) = state.example_inputs[0]
    narrow, _ = torch.export.load(built["program"]).module()(x)
    expected, _ = state.module()(x)
    eager = float((narrow - expected).norm() / expected.norm())
    assert built["error"] == pytest.approx(eager, rel=1.0)
    assert built["eager_error"] == pytest.approx(eager, rel=1e-3)


def test_a_build_that_does_not_confirm_the_proposal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rounded_model(chain(tmp_path, ("aten.add.Tensor",) * 3))
    open_ = replace(found, trials=(replace(found.whole, effects=(effect(0.001),)),))
    assert (open_.is_fine, open_.exit_code) == (False, 8)
    assert replace(open_, target=FLOAT_FORMATS["float8_e5m2"]).exit_code == 0
    assert precision_document(open_)["unrounded_inside"] == ["0.0", "0.1", "0.2"]
    casts = CastProgram(modules=("a", "b"), operators=7, left=("aten.topk.default: not implemented",))
    built = BuiltProposal(program=Path("float16.pt2"), casts=casts, effects=(effect(0.001),))
    assert replace(open_, built=built).is_fine
    monkeypatch.setattr(RoundedModel, "unrounded_inside", ())  # of kernels of one operator each
    every = replace(open_)
    assert (every.is_fine, every.exit_code) == (True, 0)
    assert precision_document(every)["unrounded_inside"] == []
    assert not found.is_fine
    confirmed = replace(every, built=built)
    assert confirmed.is_fine
    lines = precision_lines(confirmed, 200)
    assert "  built    a program with 7 operators in float16, in 2 modules: its own kernels change" in "\n".join(lines)
    assert lines[-2:] == ["  note     not cast: aten.topk.default: not implemented", "  program  float16.pt2"]
    in_eager = replace(every, built=replace(built, eager=(effect(0.5),)))
    assert (in_eager.is_fine, in_eager.exit_code) == (False, 8)
    assert "0.5, MORE than 0.01: it may be so only where kernels are fused" in "\n".join(precision_lines(in_eager, 200))
    assert replace(every, built=replace(built, eager=(effect(0.002),))).exit_code == 0
    worse = replace(every, built=replace(built, effects=(effect(0.5),)))
    assert not worse.is_fine
    refuted = precision_lines(worse, 200)
    assert "0.5, MORE than 0.01: the proposal is not confirmed" in "\n".join(refuted)
    assert any(line.startswith("NOT CONFIRMED for float16: rounding all 3 modules at once") for line in refuted)
    assert any(line.startswith("MAY BE float16: ") for line in lines)
    assert not any("inside of kernels" in line for line in (*lines, *refuted))
    failed = replace(every, built=replace(built, effects=(), failure="no compiler", exit_code=4))
    assert not failed.is_fine
    assert [each.exit_code for each in (confirmed, worse, found, failed)] == [0, 1, 1, 4]
    assert precision_document(failed)["built"]["error"] is None
    assert problems(precision_document(failed), SCHEMA) == []
    assert precision_lines(failed, 200)[-1].startswith("  built    not known: the program with casts could not be ")


@pytest.mark.parametrize(
    ("words", "error", "problem"),
    [
        (("--tolerance", "0"), UsageError, "--tolerance 0 is not greater than 0"),
        (("--to", "float32"), UsageError, "holds nothing that float32 rounds"),
        (("--random-inputs", "1", "--inputs", "x.pt"), UsageError, "exclude each other"),
        (("--build",), UsageError, "is no exported program: it cannot be changed"),
        (("--build", "--by", "launch"), UsageError, "a program has casts in modules, not in launches"),
    ],
)
def test_bad_input(
    wrong: Wrong, tmp_path: Path, words: tuple[str, ...], error: type[AotiDebugError], problem: str
) -> None:
    result = precision(wrong.good, tmp_path, *words)
    assert isinstance(result.exception, error)
    assert problem in str(result.exception)


def test_a_model_that_is_not_there(tmp_path: Path) -> None:
    result = precision(tmp_path / "missing.pt2", tmp_path)
    assert isinstance(result.exception, ArtifactError)
    assert not (tmp_path / "replays").exists()


def test_the_proposal_keeps_as_few_parts_as_suffice(tmp_path: Path) -> None:
    found = rounded_model(chain(tmp_path, ("aten.add.Tensor",) * 3))
    assert problems(precision_document(found), SCHEMA) == []
    assert found.proposal is found.trials[2]
    lines = precision_lines(found, 300)
    assert lines[-4].startswith("KEEP 2 of 3 modules as they are: language_model.layers.0.self_attn.softmax, ")
    assert "all at once: NaN/Inf" in lines[-3]
    inside = "inside of kernels nothing was rounded: 3 of 3 launches may compute several operators, as 0.0 "
    assert lines[-1].lstrip().startswith(inside)
    assert lines[-1].endswith(", and need more precision there; of an exported program, --build casts each operator")
    assert "  rounding to float16 what the other 1 module read and write changes the outputs by " in lines[-3]
    assert not any("from one run to the next" in line for line in lines)
    noisy = precision_lines(replace(found, noise=0.25), 200)
    assert (
        "note: without rounding, the outputs change by 0.25 from one run to the next: errors that are not larger"
        in "\n".join(noisy)
    )
    none = replace(found, trials=found.trials[:1])
    assert none.proposal is None
    assert precision_document(none)["proposal"] is None
    assert precision_lines(none, 120)[-1].startswith("KEEP all 3 modules as they are: ")
    every = replace(found, trials=(replace(found.whole, effects=(effect(0.001),)),))
    first, tried, _ = precision_lines(every, 200)[-3:]
    read_and_written = "rounding what all 3 modules read and write, at once, changes the outputs by 0.001, at most 0.01"
    assert first == f"MAY BE float16 as far as rounded: {read_and_written}"
    assert tried.startswith("  tried by rounding in the package")
    unbuilt = BuiltProposal(program=Path("f.pt2"), casts=CastProgram(), effects=(), failure="no compiler")
    assert precision_lines(replace(every, built=unbuilt), 200)[-4] == first
    of_float8 = replace(every, target=FLOAT_FORMATS["float8_e5m2"])
    assert precision_lines(of_float8, 200)[-3].startswith("MAY BE float8_e5m2: rounding all 3 modules at once changes ")
    assert "verified by rounding" in precision_lines(of_float8, 200)[-2]


def test_modules_that_a_kept_launch_computes_as_well_are_kept_with_it(tmp_path: Path) -> None:
    found = rounded_model(chain(tmp_path, ("aten.add.Tensor",) * 3))
    first, *others = found.parts
    also = ("language_model.scale", "language_model.head", "language_model.positions")
    fused = replace(found, parts=(replace(first, part=replace(first.part, also=also)), *others))
    assert fused.kept_beside == ("language_model.scale",)
    assert "  with them, which the same launches compute: language_model.scale" in precision_lines(fused, 120)
    assert precision_document(fused)["kept_beside"] == ["language_model.scale"]
    assert found.kept_beside == ()
    assert not any("with them" in line for line in precision_lines(found, 120))
