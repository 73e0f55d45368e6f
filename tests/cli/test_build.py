from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import archives
import factories
import pytest

from aoti_debug import builder
from aoti_debug.builder import BuildOptions, BuildSummary
from aoti_debug.cli import build, main
from aoti_debug.errors import UsageError
from aoti_debug.manifest import Form, Kind, Manifest, Role, Unrecognised

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
        "without_inputs": "",
        "unmatched": (),
    }
    return BuildSummary(manifest=manifest, **(known | fields))


def test_summary() -> None:
    assert build.describe(summary(factories.make_manifest(ADDMM, RELU, RELU))) == [
        "m.instrumented.pt2",
        "  launch sites    3: 2 cpp, 1 shim_out",
        "  arguments       4 tensors, 1 scalars",
        "  not recognised  none",
        "  level           3",
        "  inputs          embedded",
        "  device          cpu, torch 2.13.0",
        "  size            3.0 MiB",
        "  time            7.2 s: lower 4.0, compile 3.0",
        "next: aoti-debug run m.instrumented.pt2",
    ]


def test_summary_of_what_went_less_well() -> None:
    calls = tuple(Unrecognised("run_impl", line, f"aoti_torch_cpu_new_{line}({'x, ' * 30});") for line in range(15))
    manifest = replace(factories.make_manifest(RELU), unrecognised=calls, filters=("cpp_*", "!x"))
    why = "the program has no example inputs"
    lines = build.describe(summary(manifest, package=Path("a b.pt2"), without_inputs=why))
    assert lines[3] == "  not recognised  15"
    assert lines[4].startswith("                  line 0 in run_impl: aoti_torch_cpu_new_0(x, x,")
    assert "                  and 3 more, in the package's manifest" in lines
    assert "  level           3, filter cpp_* !x" in lines
    assert f"  inputs          none: {why}" in lines
    assert not [line for line in lines if line.startswith("  promises")]
    assert lines[-1] == "next: aoti-debug run 'a b.pt2'"
    assert max(map(len, lines)) <= 100


def test_summary_of_a_torch_that_does_not_tell_its_layouts() -> None:
    manifest = replace(factories.make_manifest(RELU), without_promises="this torch does not log the layouts of buffers")
    assert "  promises        not all: this torch does not log the layouts of buffers" in build.describe(
        summary(manifest)
    )


def test_filters_that_match_nothing_list_what_there_is() -> None:
    unmatched = summary(factories.make_manifest(RELU, ADDMM, RELU), unmatched=("triton_*", "!x"))
    assert build.warnings(unmatched) == [
        "warning: no kernel matches triton_*, !x; there are:",
        "  aoti_torch_cpu_addmm_out",
        "  cpp_fused_relu_0",
    ]
    assert build.warnings(summary(factories.make_manifest(RELU))) == []


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
    assert build.parse_configs([f"aot_inductor.x={text}"]) == {"aot_inductor.x": value}


@pytest.mark.parametrize("text", ["max_autotune", "=1"])
def test_configs_need_a_key_and_a_value(text: str) -> None:
    with pytest.raises(UsageError, match="has no KEY=VALUE"):
        build.parse_configs([text])


def test_options_reach_the_builder(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[BuildOptions] = []

    def build_report(options: BuildOptions, progress: builder.Progress) -> BuildSummary:
        asked.append(options)
        progress("lower", None)
        progress("lower", 4.0)
        return summary(factories.make_manifest(RELU), unmatched=("z",))

    monkeypatch.setattr(builder, "build_report", build_report)
    command = "build m.pt2 --level 1 --filter a --filter !b -o o.pt2 --inputs i.pt --inductor-config max_autotune=true"
    assert main.run([*command.split(), *["--import", "m", "--load-library", "l.so", "--keep-sources", "k"]]) == 0
    assert asked == [
        BuildOptions(
            program=Path("m.pt2"),
            level=1,
            filters=("a", "!b"),
            output=Path("o.pt2"),
            inputs=Path("i.pt"),
            inductor_configs={"max_autotune": True},
            imports=("m",),
            libraries=("l.so",),
            keep_sources=Path("k"),
        )
    ]
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "m.instrumented.pt2"
    assert err.splitlines() == [
        "lowering the model: 4.0 s",
        "warning: no kernel matches z; there are:",
        "  cpp_fused_relu_0",
    ]


@pytest.mark.parametrize(
    ("members", "error"),
    [
        (archives.PACKAGE, "is a compiled AOTInductor package; an exported program is wanted"),
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
