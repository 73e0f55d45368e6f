from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.app.cli import main, options
from aoti_debug.app.cli.commands import build
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.instrument.builder import build as builder
from aoti_debug.instrument.builder.build import BuildOptions, BuildSummary
from aoti_debug.instrument.builder.compare_kernels import KernelComparison, KernelDifference
from aoti_debug.instrument.frontend.protocol.messages import Autotuning
from aoti_debug.package import manifest
from aoti_debug.package.inputs.signature import Dim, Leaf, ModelSignature
from aoti_debug.package.manifest import Certainty, Form, Kind, Manifest, PackageOrigin, Provenance, Role, Unrecognised
from aoti_debug.package.recording_settings import SiteFilter, unmatched
from aoti_debug.package.weights_file import KernelMatch, WeightsFile
from tests import archives, factories
from tests.schema import DOCS, problems

SCALAR = factories.arg("beta", Role.NONE, Form.SCALAR)
OPAQUE = factories.arg("stream", Role.NONE, Form.OPAQUE)
ADDMM = factories.site("aoti_torch_cpu_addmm_out", factories.arg("buf0", Role.OUT), factories.arg("x"), SCALAR, OPAQUE)
RELU = factories.site("cpp_fused_relu_0", factories.arg("buf0", Role.INOUT), kind=Kind.CPP)


def summary(manifest: Manifest, **fields: Any) -> BuildSummary:
    known: dict[str, Any] = {
        "package": Path("m.instrumented.pt2"),
        "bytes": 3 << 20,
        "seconds": 7.25,
        "stages": {"lower": 4.0, "compile": 3.0},
        "missing_inputs_reason": "",
        "unmatched": (),
        "signature": ModelSignature((Leaf("x", "torch.float32", "cpu", (Dim(2, 2), Dim(1, 64, "s77"))),), others=1),
    }
    return BuildSummary(manifest=manifest, **(known | fields))


def described(built: BuildSummary) -> list[str]:
    return build.describe(built, 100)


def test_json() -> None:
    call = Unrecognised("run_impl", 12, "k(x)", reason="x")
    package = replace(factories.make_manifest(ADDMM, RELU), unrecognised=(call,))
    found = build.document(summary(package, missing_inputs_reason="the program has none"))
    assert problems(found, json.loads((DOCS / "build.schema.json").read_text())) == []
    assert found["sites"] == [
        {"kernel": "aoti_torch_cpu_addmm_out", "kind": "shim_out"},
        {"kernel": "cpp_fused_relu_0", "kind": "cpp"},
    ]
    assert found["unparsed"] == [{"line": 12, "function": "run_impl", "text": "k(x)", "reason": "x"}]
    assert (found["level"], found["missing_inputs"]) == (3, "the program has none")


def test_summary() -> None:
    assert described(summary(factories.make_manifest(ADDMM, RELU, RELU))) == [
        "m.instrumented.pt2",
        "  built from      exported program",
        "  launch sites    3: 2 cpp, 1 shim_out",
        "  arguments       4 tensors, 1 scalar",
        "  unparsed calls  none",
        "  level           3",
        "  inputs          embedded",
        "  device          cpu, torch 2.13.0",
        "  size            3.0 MiB",
        "  time            7.2 s: lower 4.0, compile 3.0",
        "next: aoti-debug run m.instrumented.pt2",
    ]


def test_summary_of_autotuned_kernels() -> None:
    built = replace(summary(factories.make_manifest(RELU)), autotuning=Autotuning(users=3, measured=1))
    assert "  autotuning      3 kernels as in your Inductor cache, 1 kernel measured now" in described(built)


def test_summary_of_kernels_for_one_gpu_alone() -> None:
    lines = described(replace(summary(factories.make_manifest(RELU)), is_for_one_gpu=True))
    at = next(i for i, line in enumerate(lines) if line.startswith("  compiled for "))
    assert " ".join(" ".join(lines[at : at + 2]).split()).startswith(
        "compiled for the GPU of this machine alone: aot_inductor.emit_multi_arch_kernel is left out"
    )


def test_summary_of_a_package_without_weights() -> None:
    weights = WeightsFile("/models/m.pt2", 7, "00", {})
    lines = described(summary(replace(factories.make_manifest(RELU), weights=weights)))
    assert "  weights         stay in /models/m.pt2" in lines


def test_summary_of_what_went_less_well() -> None:
    calls = tuple(Unrecognised("run_impl", line, f"aoti_torch_cpu_new_{line}({'x, ' * 30});") for line in range(15))
    calls = (calls[0], replace(calls[1], reason="stream x"), *calls[2:])
    manifest = replace(factories.make_manifest(RELU), unrecognised=calls, filters=("cpp_*", "!x"))
    why = "the program has no example inputs"
    lines = described(summary(manifest, package=Path("a b.pt2"), missing_inputs_reason=why))
    assert lines[4] == "  unparsed calls  15"
    assert lines[5].startswith("                  line 0 in run_impl: aoti_torch_cpu_new_0(x, x,")
    assert any(line.startswith("                  line 1 in run_impl: stream x is not read: ") for line in lines)
    assert "                  and 3 more, in the package's manifest" in lines
    assert "  level           3, filter cpp_* !x" in lines
    assert f"  inputs          none: {why}; the model takes" in lines
    at = lines.index("                  x float32[2, s77:1..64] on cpu")
    assert lines[at + 1] == "                  and 1 argument that is not a tensor: the package does not record which"
    assert not [line for line in lines if line.startswith("  layouts")]
    assert lines[-1] == "next: aoti-debug run 'a b.pt2' --inputs FILE.pt (or --random-inputs 0)"
    assert max(map(len, lines)) <= 100


def test_summary_of_kernels_that_may_overlap() -> None:
    kernels = (factories.triton_kernel("a"), replace(factories.triton_kernel("b", 1), overlaps=True))
    lines = described(summary(replace(factories.make_manifest(RELU), kernels=kernels)))
    at = next(i for i, line in enumerate(lines) if line.startswith("  overlap "))
    assert " ".join(" ".join(lines[at : at + 2]).split()).startswith(
        "overlap 1 kernel may begin before the one before ends; while launches are recorded they may not"
    )


def test_summary_of_a_torch_that_does_not_tell_its_layouts() -> None:
    manifest = replace(factories.make_manifest(RELU), without_promises="this torch does not log the layouts of buffers")
    assert "  layouts         not checked everywhere: this torch does not log the layouts of buffers" in described(
        summary(manifest)
    )


def from_package(**fields: Any) -> Manifest:
    """Of a compiled package without model lines."""
    site = replace(RELU, provenance=Provenance(Certainty.NONE))
    known: dict[str, Any] = {"source": PackageOrigin.COMPILED, "sameness": KernelMatch(7, ())}
    return replace(factories.make_manifest(site), **(known | fields))


def test_summary_of_a_compiled_package() -> None:
    lines = described(summary(from_package()))
    assert lines[1:4] == [
        "  built from      compiled package",
        "  kernels         7 of 7 kernels identical to the original",
        "  model lines     none were compiled in; --exported PROGRAM.pt2 joins those of its program",
    ]
    joined = described(summary(from_package(model="large"), joined_sites=1))
    assert joined[1] == "  built from      compiled package, model large"
    assert "  model lines     1 of 1 launch site, joined by kernel source and order from the program" in joined
    assert "  model lines     none: no kernel of the exported program" in "\n".join(
        described(summary(from_package(), joined_sites=0))
    )
    recorded = replace(from_package(), sites=(RELU,))
    assert not [line for line in described(summary(recorded)) if line.startswith("  model lines")]


def test_summary_of_what_else_there_is_to_say_of_a_package() -> None:
    lines = described(summary(from_package(source=PackageOrigin.UNCOMPILED, sameness=None)))
    assert lines[1] == "  built from      package of C++ sources: its C++ kernels are compiled here"
    other = from_package(other_torch="another torch than the installed 2.13.0 compiled it", without_weights="given")
    lines = described(summary(other))
    assert "  compiled by     another torch than the installed 2.13.0 compiled it" in lines
    assert "  weights         none: given" in lines


def test_kernels_that_differ_from_those_of_a_package() -> None:
    compared = KernelComparison(
        Path("c.pt2"), 3, (KernelDifference("cpp_fused_relu_0", "its source differs"),), ("cpp_old_1",)
    )
    lines = described(summary(factories.make_manifest(RELU), comparison=compared))
    assert lines[-4:-1] == [
        "  against         2 of 3 kernels identical to those of c.pt2",
        "                  cpp_fused_relu_0: its source differs",
        "                  cpp_old_1: only in c.pt2",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("0.5", 0.5),
        ("True", True),
        ("false", False),
        ("None", None),
        ("O2", "O2"),
        ("a=b", "a=b"),
        ("", ""),
        ('{"a::b": ["f(x)"]}', {"a::b": ["f(x)"]}),
    ],
)
def test_configs(text: str, value: object) -> None:
    assert options.parse_configs([f"aot_inductor.x={text}"]) == {"aot_inductor.x": value}


@pytest.mark.parametrize("text", ["max_autotune", "=1"])
def test_configs_need_a_key_and_a_value(text: str) -> None:
    with pytest.raises(UsageError, match="is not KEY=VALUE"):
        options.parse_configs([text])


def test_options_reach_the_builder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[BuildOptions] = []

    def build_report(options: BuildOptions, progress: builder.BuildProgress) -> BuildSummary:
        asked.append(options)
        progress("lower", None)
        progress("lower", 4.0)
        package = factories.make_manifest(RELU)
        return summary(package, unmatched=unmatched(package, SiteFilter(("z",))))

    monkeypatch.setattr(builder, "build_report", build_report)
    command = "build m.pt2 --level 1 --filter a --filter !b -o o.pt2 --inputs i.pt --inductor-config max_autotune=true"
    command += " --module encoder.* --line model.py:3"
    command += " --model large --against c.pt2 --exported e.pt2 --random-inputs 7"
    assert main.run([*command.split(), *["--import", "m", "--load-library", "l.so", "--keep-sources", "k"]]) == 0
    assert asked == [
        BuildOptions(
            program=Path("m.pt2"),
            level=1,
            filters=("a", "!b"),
            modules=("encoder.*",),
            lines=("model.py:3",),
            output=Path("o.pt2"),
            inputs=Path("i.pt"),
            inductor_configs={"max_autotune": True},
            user_code=UserCode(("m",), (Path("l.so"),)),
            keep_sources=Path("k"),
            model="large",
            against=Path("c.pt2"),
            exported=Path("e.pt2"),
            random_inputs=7,
        )
    ]
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "m.instrumented.pt2"
    assert err.splitlines() == [
        "lowering the model: 4.0 s",
        "warning: no kernel matches z; the package has:",
        "  cpp_fused_relu_0",
    ]


@pytest.mark.parametrize(
    ("members", "error"),
    [
        (archives.PACKAGE, "holds no source of its wrapper: there is nothing to instrument"),
        ({**archives.PROGRAM, manifest.MEMBER: b"{}"}, "is an instrumented package; an exported program is required"),
        ({**archives.PROGRAM, "!../evil": b""}, "which lies outside the archive; nothing was unpacked"),
    ],
)
def test_bad_input_leaves_nothing_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    members: dict[str, bytes],
    error: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    archives.write(tmp_path / "m.pt2", members)
    assert main.run(["build", "m.pt2"]) == 3
    out, err = capsys.readouterr()
    assert out == ""
    first, hint = err.splitlines()
    assert first.startswith("error: m.pt2 ")
    assert first.endswith(error)
    assert hint.startswith("hint: ")
    assert [path.name for path in tmp_path.iterdir()] == ["m.pt2"]
