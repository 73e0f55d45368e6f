"""Findings of races: between streams, from wrappers that torch has generated, and of calls from threads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.app.cli import main
from aoti_debug.package import manifest as manifests
from aoti_debug.package.argument_values import Number
from aoti_debug.package.manifest import Certainty, CType, Manifest, ModelLine, Promise, Provenance
from aoti_debug.runs.diagnosis.findings import CLEAN, FAULT, INCOMPLETE, Finding
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.runs.show.finding import all_finding_lines, finding_lines
from aoti_debug.triage.checks import races
from aoti_debug.triage.investigation.triage_runs import TriageOptions
from aoti_debug.triage.results.finding_kinds import RACE
from aoti_debug.triage.session import triage
from tests import archives, factories, schema
from tests.instrument.wrapper import planted_races, texts

X = factories.tensor(4)
BOTH = "triton_poi_fused_relu_0", "aoti_torch_cuda_mm_out"


def described(text: str) -> Manifest:
    """The manifest of a wrapper; each launch has a model line."""
    analysis = planted_races.analysed(text)
    sites = tuple(
        replace(site, provenance=Provenance(Certainty.EXACT, source=(_line(site.id),))) for site in analysis.sites
    )
    described = replace(factories.make_manifest(*sites, device="cuda"), stream_order=analysis.stream_order)
    return replace(described, promises=(Promise("buf0", "cuda:0", "float32", ("64", "64"), ("64", "1")),))


def _line(number: int) -> ModelLine:
    return ModelLine("/home/u/model.py", 10 + number, "forward", f"step_{number}()")


def golden(name: str = "torch_2.14.1_streams") -> Manifest:
    return described(texts.text(name))


def run_of(manifest: Manifest, base: Path) -> RunDir:
    """A run of all launches but the copies of inputs that are not aligned."""
    writer = factories.JournalWriter()
    writer.call_begin()
    for number, site in enumerate(manifest.sites[2:]):
        writer.launch(number, site.id, *(X if arg.base else Number(64, CType.I64) for arg in site.args))
    writer.call_end(launches=len(manifest.sites) - 2)
    return open_run(factories.run_directory(base, manifest, writer))


def test_a_race_as_text() -> None:
    finding = races.statically(golden())
    assert finding_lines(finding, 120) == [
        "RACE no event orders site 2 on stream 0 before site 3 on stream 1: both use buf0",
        "  where    /home/u/model.py:13 in forward: step_3()",
        "           aoti_torch_cuda_mm_out  aten.mm.out  buf0",
        "  maybe    site 3 may read buf0 before site 2 has written it",
        "  because  site 2 triton_poi_fused_relu_0 writes buf0, float32 (64, 64), on stream 0, "
        "site 3 aoti_torch_cuda_mm_out",
        "           reads it on stream 1; no event is recorded on stream 0 between them",
        "  more     5 more: --verbose",
    ]
    whole = "\n".join(all_finding_lines(finding, 1000))
    assert "site 2, buf0: /home/u/model.py:12 in forward: step_2()" in whole
    assert "site 3, buf0: /home/u/model.py:13 in forward: step_3()" in whole


def test_after_a_run_launches_have_their_names(tmp_path: Path) -> None:
    manifest = golden()
    finding, *_ = races.findings(manifest, run_of(manifest, tmp_path))
    assert finding.kind == RACE
    assert finding.what == "no event orders 0.0 on stream 0 before 0.1 on stream 1: both use buf0"
    assert [(place.launch, place.kernel) for place in finding.chain] == [("0.0", BOTH[0]), ("0.1", BOTH[1])]
    assert finding.where == finding.chain[1]


def test_a_kernel_that_begins_early() -> None:
    """Inductor's kernel for a programmatic dependent launch, without its wait."""
    wait = "        tl.extra.cuda.gdc_wait()\n"
    text = texts.text("torch_2.15.0_overlapping")
    assert races.statically(described(text)).kind == CLEAN
    at = text.rindex(wait)
    finding = races.statically(described(text[:at] + text[at + len(wait) :]))
    assert finding.kind == RACE
    assert finding.what == (
        "site 4 may begin before site 3 has ended, on stream 0, and does not wait for it: both use buf1"
    )
    assert finding.evidence[0].endswith("_softmax_relu_0 has ended, and it never waits (gdc_wait) for it")


def test_the_bytes_that_both_use() -> None:
    planted = next(
        p for p in planted_races.planted() if (p.wrapper, p.lacks) == ("there_and_back", "wait for event 5 on stream 0")
    )
    finding = races.statically(described(planted.text))
    assert finding.what.endswith(": both use bytes 0 to 16383 of buf5")


def test_every_other_race_is_beside_the_first() -> None:
    finding = races.statically(described(planted_races.as_generated("side_kernels")))
    assert [found.what.rpartition(" ")[2] for found in (finding, *finding.also)] == ["buf5", "buf6"]


def test_memory_that_is_used_again_has_its_name() -> None:
    """The buffer of the first launch is given to the second one under another name."""
    finding = races.statically(described(planted_races.as_generated("fork_join")))
    assert finding.evidence[0].startswith(
        "site 3 aoti_torch_cuda_mm_out reads buf0, float32 (64, 64), on stream 1, "
        "site 4 triton_poi_fused_add_sin_1 writes buf9, in the memory of buf0, on stream 0; "
    )
    assert finding.possible == ("site 4 may write buf9 while site 3 still uses its memory",)


def test_what_may_be_a_race_is_a_note() -> None:
    notes = races.statically(golden()).warnings
    assert notes
    assert all(note.startswith("there may be a race: ") for note in notes)
    assert any(
        "the caller reads it on stream 0; stream 0 does not wait for stream 1 after it" in note for note in notes
    )


def test_no_race() -> None:
    finding = races.statically(described(planted_races.clean("pipeline")))
    assert (finding.kind, finding.what, finding.warnings) == (CLEAN, "7 launch sites on 3 streams: no race", ())


def test_something_of_the_order_is_not_read() -> None:
    text = planted_races.clean("pipeline").replace("cudaEventRecord(", "cudaEventRecordWithFlags(", 1)
    finding = races.statically(described(text))
    assert finding.kind == INCOMPLETE
    assert "cudaEventRecordWithFlags is not read: it may order streams" in finding.warnings


def test_a_model_of_one_stream() -> None:
    finding = races.statically(golden("cuda"))
    assert finding.kind == CLEAN
    assert finding.what.endswith("launch sites, all on the stream of the call: no race")
    assert races.findings(golden("cuda")) == ()


def test_a_finding_of_another_kind_has_the_races_beside_it(tmp_path: Path) -> None:
    run = run_of(golden(), tmp_path)
    fault = Finding(FAULT, "CUDA error 700")
    assert [found.kind for found in races.also(fault, run).also] == [RACE]
    clean = Finding(CLEAN, "no fault")
    assert races.also(clean, run) == clean
    assert races.also(fault, None) == fault


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An instrumented package of the wrapper with a race: its manifest, and a library that cannot be loaded."""
    members = {**archives.PACKAGE, manifests.MEMBER: golden().json_text.encode()}
    return archives.write(tmp_path / "model.pt2", members)


def test_the_command_runs_nothing(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(package.parent)
    assert main.run(["triage", "model.pt2", "--races"]) == 1
    out = capsys.readouterr().out
    assert "RACE no event orders site 2 on stream 0 before site 3 on stream 1: both use buf0" in out
    (page,) = package.parent.rglob("report/index.html")
    assert "no event orders site 2 on stream 0 before site 3 on stream 1" in page.read_text()


def test_the_command_as_json(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(package.parent)
    assert main.run(["triage", "model.pt2", "--races", "--json"]) == 1
    data = json.loads(capsys.readouterr().out)
    assert schema.problems(data, schema.TRIAGE) == []
    assert (data["kind"], [place["kernel"] for place in data["chain"]]) == ("race", list(BOTH))


def test_a_package_without_generated_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    archives.write(tmp_path / "model.pt2", archives.PACKAGE)
    assert main.run(["triage", "model.pt2", "--races"]) == 2
    err = capsys.readouterr().err
    assert "model.pt2 holds no generated code to look for races in" in err
    assert "hint: " in err


def test_the_option_is_for_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "serve.py").write_text("")
    assert main.run(["triage", "--races", "serve.py"]) == 2
    assert "--races is for a MODEL.pt2" in capsys.readouterr().err


ACT = "native::act.default"


@pytest.mark.slow
class TestThreads:
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
