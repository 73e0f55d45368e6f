"""The errors of modules: what is told of their launches, as text, as JSON and on the page."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from aoti_debug.app.cli.main import group
from aoti_debug.compare.by_module import (
    fused_document,
    loudness,
    module_lines,
    module_notes,
    modules_document,
    modules_of,
    shares_of,
)
from aoti_debug.compare.comparison import Comparison
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.modules import (
    WHOLE,
    LaunchTimes,
    PartedBy,
    SiteTime,
    TimeShare,
    fused_note,
    module_at,
    parts_of,
)
from aoti_debug.compare.protocol.measurement import LARGEST
from aoti_debug.package.manifest import Certainty, Provenance
from aoti_debug.views.report import report
from tests.schema import DOCS, problems
from tests.views.report.subjects import comparison_of, data_of, run
from tests.wrong_model import Wrong

SCHEMA = json.loads((DOCS / "compare.schema.json").read_text())
MODULES = {"type": "array", "items": {"$ref": "#/$defs/module"}, "$defs": SCHEMA["$defs"]}


def in_modules(*paths: str) -> Provenance:
    return Provenance(Certainty.EXACT, modules=paths)


def placed(base: Path, *modules: tuple[str, ...]) -> Comparison:
    """The comparison of a run, whose first launches belong to these modules."""
    comparison = comparison_of(run(base, 2, fault=False))
    for launch, paths in zip(comparison.run.launches, modules, strict=False):
        launch.site = replace(launch.site, provenance=in_modules(*paths))
    return comparison


def test_a_launch_counts_for_the_last_of_its_modules() -> None:
    both = in_modules("layers.0.down", "layers.1.norm")
    assert [module_at(both, depth) for depth in (None, 2, 1)] == ["layers.1.norm", "layers.1", "layers"]
    assert module_at(in_modules(), None) == WHOLE


def test_parts_are_modules_or_launches(tmp_path: Path) -> None:
    launches = placed(tmp_path, ("a.x",), ("a.y",)).run.launches
    assert [part.name for part in parts_of(launches[:2], PartedBy.MODULE, 1)] == ["a"]
    assert [part.name for part in parts_of(launches[:2], PartedBy.LAUNCH)] == ["0.0", "0.1"]


def test_modules_that_a_launch_computes_besides_are_named(tmp_path: Path) -> None:
    comparison = placed(tmp_path, ("a.x", "b"), ("a.y", "a.x", "b"))
    modules = modules_of(comparison, depth=1)
    assert [module["also"] for module in modules_document(modules)][:1] == [["a"]]
    assert (
        "counts for the last of them alone: a.x in b, a.y in b" in module_notes(comparison, modules_of(comparison))[-1]
    )
    assert "alone: a.x in b, a.y in b" in report.html(report.of_comparison(comparison))
    assert fused_note(parts_of(comparison.run.launches, PartedBy.LAUNCH)) == ""


def test_a_module_has_the_largest_errors_of_its_launches(tmp_path: Path) -> None:
    (module, *_) = modules_of(placed(tmp_path, ("a.x",), ("a.y",)), depth=1)
    assert (module.part.name, module.compared, module.dtypes) == ("a", 2, ("float32",))
    assert (module.local, module.inherited, module.verdict) == (0.25, 0.25, LaunchVerdict.WRONG)
    assert module.worst is not None
    assert str(module.worst).startswith("0.1 buf1[3, 7] is ")


def test_modules_are_told_apart(tmp_path: Path) -> None:
    first, second, *_ = modules_of(placed(tmp_path, ("a.x",), ("a.y",)))
    assert [(first.part.name, first.local, first.inherited), (second.part.name, second.local)] == [
        ("a.x", 3e-8, 1e-8),
        ("a.y", 0.25),
    ]


def test_a_module_of_which_nothing_was_compared(tmp_path: Path) -> None:
    comparison = placed(tmp_path, ("a",), ("b",), ("c",))
    *_, last = modules_of(comparison)
    assert (last.local, last.worst, last.verdict) == (None, None, LaunchVerdict.NOT_COMPARABLE)
    assert module_lines([last], (), 120)[2].split()[:3] == [last.part.name, "0", "of"]
    assert problems(modules_document(modules_of(comparison)), MODULES) == []


def timed(comparison: Comparison, *seconds: float, gaps: float = 0.0) -> Comparison:
    """The comparison with times of its first sites, in this order."""
    sites = tuple(SiteTime(site, time) for site, time in enumerate(seconds))
    return replace(comparison, times=LaunchTimes(sites=sites, call=sum(seconds) + gaps, calls=3, source="as measured"))


def sited(base: Path, *modules: tuple[str, ...]) -> Comparison:
    """The comparison of a run whose sites belong to these modules."""
    comparison = placed(base, *modules)
    changed = {launch.site.id: launch.site for launch in comparison.run.launches[: len(modules)]}
    manifest = comparison.run.manifest
    sites = tuple(changed.get(site.id, site) for site in manifest.sites)
    return replace(comparison, run=replace(comparison.run, manifest=replace(manifest, sites=sites)))


def test_the_time_of_a_launch_of_several_modules_is_in_all_of_them(tmp_path: Path) -> None:
    comparison = timed(sited(tmp_path, ("a.x",), ("a.y", "a.x", "b")), 3.0, 1.0, gaps=6.0)
    assert shares_of(comparison) == {
        "a.x": TimeShare(0.3, 0.4, ("a.y", "b")),
        "a.y": TimeShare(0.0, 0.1, ("a.x", "b")),
        "b": TimeShare(0.0, 0.1, ("a.y", "a.x")),
    }
    assert shares_of(comparison, depth=1) == {"a": TimeShare(0.3, 0.4, ("b",)), "b": TimeShare(0.0, 0.1, ("a",))}
    modules = modules_of(comparison)
    assert [str(module.time) for module in modules[:2]] == ["30.0\u201340.0%", "0.0\u201310.0%"]
    notes = module_notes(comparison, modules)
    assert any(note.endswith("as measured") for note in notes)
    assert "note: time of modules without a row: a.y 0.0\u201310.0%" in notes
    assert [one["name"] for one in fused_document(comparison, modules, None)] == ["a.y"]
    assert problems(modules_document(modules), MODULES) == []
    page = data_of(report.html(report.of_comparison(comparison)))["comparison"]["modules"]
    assert [row[2]["text"] for row in page["rows"][:2]] == ["30.0\u201340.0%", "0.0\u201310.0%"]
    assert notes == page["notes"]


def test_a_time_of_one_module_is_no_range(tmp_path: Path) -> None:
    (first, *_) = modules_of(timed(sited(tmp_path, ("a",), ("b",)), 1.0, 3.0))
    assert (str(first.time), first.time) == ("25.0%", TimeShare(0.25, 0.25))


def test_without_times_there_is_no_column(tmp_path: Path) -> None:
    modules = modules_of(placed(tmp_path, ("a",), ("b",)))
    assert [module.time for module in modules if module.time] == []
    assert "time" not in module_lines(modules, (), 120)[0]
    assert "time" in module_lines(modules_of(timed(sited(tmp_path / "timed", ("a",), ("b",)), 1, 1)), (), 120)[0]


def test_ratios_of_errors() -> None:
    assert [loudness(error) for error in (0.1, 0.0, None, LARGEST)] == ["20 dB", "", "", ""]


def test_the_page_has_the_modules(tmp_path: Path) -> None:
    comparison = placed(tmp_path, ("a.x",), ("a.y",))
    page = report.html(report.of_comparison(comparison))
    assert "<h3>By module</h3>" in page
    (first, second, *_) = data_of(page)["comparison"]["modules"]["rows"]
    assert [first[0]["text"], second[0]["text"], second[-1]["text"]] == ["a.x", "a.y", "wrong"]


def test_a_page_without_modules(tmp_path: Path) -> None:
    page = report.html(report.of_comparison(comparison_of(run(tmp_path, 2, fault=False))))
    assert data_of(page)["comparison"]["modules"] is None
    assert "<h3>By module</h3>" not in page


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_as_it_is_called(wrong: Wrong, tmp_path: Path, words: tuple[str, ...]) -> None:
    command = ["compare", str(wrong.bad), "--by", "module", "--depth", "2", "--out", str(tmp_path / "compares"), *words]
    result = CliRunner().invoke(group, command)
    assert result.exit_code == 1, result.output
    if not words:
        assert {line.split()[0] for line in result.stdout.splitlines()[3:7]} == {
            WHOLE,
            "layers.0",
            "layers.1",
            "layers.2",
        }
        text = " ".join(result.stdout.split())
        assert "in a run that saves nothing, from the beginning to the end of each launch on the host" in text
        return
    found = json.loads(result.stdout)
    assert found["times"]["calls"] == 30
    assert 0 < sum(module["time"]["least"] for module in found["modules"]) <= 1
    assert problems(found, SCHEMA) == []
    assert {module["name"]: module["verdict"] for module in found["modules"]}[WHOLE] == "wrong"
