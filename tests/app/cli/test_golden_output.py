"""What each command prints on terminals of 80 and 120 columns, as golden files; `--update-golden` rewrites them.

The lines come from the functions that the commands print, given records that are made up: nothing is compiled or run.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from aoti_debug.app.cli import main, run_lines
from aoti_debug.app.cli.commands import (
    attach,
    build,
    bundle,
    clean,
    doctor,
    exec,
    guide,
    replay,
    report,
    repro,
    top,
    ui,
)
from aoti_debug.app.cli.commands import list as list_command
from aoti_debug.app.cli.live_output import TimedPhase, step_lines, timing_lines
from aoti_debug.app.execute.execute import ExecutedScript
from aoti_debug.app.made_results import MadeResult
from aoti_debug.base import terminal_cells, wording
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.base.machine.steps import Step
from aoti_debug.compare.bisect.bisect import SettingsBisection
from aoti_debug.compare.bisect.build_changes import LeaveOut, Part, SettingChange
from aoti_debug.compare.bisect.build_trials import BuildFault, BuildTrial
from aoti_debug.compare.bisect.equal_result import equal_lines
from aoti_debug.compare.bisect.text import bisection_lines, settings_lines
from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.text import diff_lines
from aoti_debug.compare.fx_repro.fx_repro import FxRepro
from aoti_debug.compare.invariance.remedies import RemedyTrial, candidates
from aoti_debug.compare.invariance.text import invariance_lines
from aoti_debug.compare.outcome import report_lines
from aoti_debug.compare.what_if.precision_text import precision_lines
from aoti_debug.compare.what_if.replacements import parse
from aoti_debug.compare.what_if.replay import Reached
from aoti_debug.compare.what_if.substituted_run import SubstitutedRun
from aoti_debug.compare.what_if.what_if import Outputs, WhatIf, what_if_lines
from aoti_debug.repro.repro import Repro
from aoti_debug.runs.diagnosis.diagnose import diagnose
from aoti_debug.runs.diagnosis.diagnosed_run import DiagnosedRun
from aoti_debug.runs.ranks.ranks_analysis import analyse
from aoti_debug.runs.ranks.text import ranks_lines
from aoti_debug.runs.run.memory_meter import MeasuredMemory
from aoti_debug.runs.run.runner import RunResult
from aoti_debug.runs.run.timed_pairs import PairedTimes
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.summaries import Summaries
from aoti_debug.runs.show.detail import detail
from aoti_debug.runs.show.finding import all_finding_lines, finding_lines
from aoti_debug.runs.show.overview import excerpt, overview
from aoti_debug.runs.show.verdict import verdict_lines
from aoti_debug.triage.minify.minified import minified_lines
from aoti_debug.views.bundle.bundle import Bundle
from aoti_debug.views.bundle.contents import Contents, ExcludedFile
from aoti_debug.views.memory.lifetimes import run_memory
from aoti_debug.views.memory.memory import RunMemory
from aoti_debug.views.memory.text import memory_lines
from aoti_debug.views.profile.text import profile_lines
from aoti_debug.views.summaries.page import table_lines
from tests.app.cli.commands.test_build import ADDMM, RELU, summary
from tests.app.cli.commands.test_doctor import BROKEN, CHECKS
from tests.app.cli.commands.test_top import state
from tests.compare.bisect.test_equal_result import FOUND as EQUAL
from tests.compare.bisect.test_text import RIGHT, WRONG
from tests.compare.bisect.test_text import found as bisection
from tests.compare.chains import chain
from tests.compare.invariance.made_runs import by_size, double, made
from tests.compare.what_if.rounded import rounded_model
from tests.factories import make_manifest
from tests.paths import TESTS
from tests.runs.ranks.ranked import Rank, killed, opened, terminated
from tests.runs.show import blocks
from tests.runs.show.recorded import crashed, device_fault, level_2
from tests.triage.minify.test_minified import FOUND
from tests.views.profile import measured
from tests.views.profile.test_profile import PEAKS, WARM_UP
from tests.views.report.subjects import FINDING, comparison_of
from tests.views.report.subjects import run as subject_run
from tests.views.summaries.sampled import sample, series

GOLDEN = TESTS / "golden/terminal"
RUNS = Path("aoti-debug/runs")
ADD = ("aten.add.Tensor",) * 12
MODULES = tuple(f"{blocks.BLOCK}.{n}.self_attn.q_proj" for n in range(3))


def _made(make: Callable[[Path], RunDir]) -> RunDir:
    """A run in the place of the one that was made before."""
    shutil.rmtree(RUNS, ignore_errors=True)
    return make(RUNS)


def _show(columns: int) -> list[str]:
    clean = _made(blocks.recorded)
    lines = [*_overview(clean, columns), "", *detail(clean, clean.launches[1], columns, None), ""]
    return [*lines, *_overview(_made(lambda base: device_fault(base, every=4)), columns)]


def _overview(run: RunDir, columns: int) -> list[str]:
    return overview(run, diagnose(run), excerpt(run.launches, None, None), columns)


def _ranks(columns: int) -> list[str]:
    ranks = (killed(0, machine="gpu-1"), terminated(2, machine="gpu-1"), Rank(machine="gpu-1"), None)
    return ranks_lines(analyse(opened(RUNS, *ranks)), columns)


def _result(run: RunDir) -> RunResult:
    return RunResult(DiagnosedRun(run), 1.25, lost="")


def _run(columns: int) -> list[str]:
    lines = [*run_lines.summary(_result(_made(level_2)), columns), ""]
    crash = _made(crashed)
    verdict = diagnose(crash)
    assert verdict is not None
    lines += [*run_lines.summary(_result(crash), columns), "", *verdict_lines(verdict, columns), ""]
    return [*lines, *timing_lines([TimedPhase("start aoti-debug", 0.2), TimedPhase("run", 1, {"load": 0.25})], 1.25)]


def _triage(columns: int) -> list[str]:
    steps = (
        Step("run, level 3", 1.5, "IndexError: index 314159 is out of bounds with size 4, in 0.1"),
        Step("repro, checked", 13.7, f"out-of-bounds load from table: element {2**47} of 64000, {2**47 - 64000} past"),
    )
    page = "aoti-debug/triages/20261120-231501-4711/report/index.html"
    finding = replace(FINDING, repro="aoti-debug/triages/20261120-231501-4711/repro", also=(FINDING,))
    return [
        *(line for step in steps for line in step_lines(step, columns)),
        "",
        *finding_lines(finding, columns, page, "aoti-debug show 20261120-231501-4711"),
        "",
        *all_finding_lines(finding, columns, page),
    ]


def _compare(columns: int) -> list[str]:
    return report_lines(comparison_of(subject_run(RUNS, 2, fault=False)), columns)


def _diff(columns: int) -> list[str]:
    first, second = chain(Path("a"), ADD), chain(Path("b"), ADD, wrong=2)
    return diff_lines(diff_runs(first, second))


def _invariance(columns: int) -> list[str]:
    found = made(Path("invariance"), [double, by_size, double], operator="aten.addmm.out")
    remedy = next(candidates([found.begins[0].first.launch.site], "cpu"))
    price = PairedTimes.of([1e-3, 1.1e-3, 1e-3], [2e-3, 2.1e-3, 2.2e-3])
    return invariance_lines(found, (RemedyTrial(remedy, made(Path("fixed"), [double]), price=price),), price)


def _replay(columns: int) -> list[str]:
    replayed = chain(RUNS, ADD)
    whole = SubstitutedRun(run=replayed, outputs={}, summary="", refused=(), seconds=1.5)
    outputs = Outputs((WRONG,), (RIGHT,))
    changed = WhatIf(
        substitutions=(parse("0.2=eager"),),
        begin="",
        launches=(replayed.launches[2],),
        before=whole,
        after=whole,
        outputs=outputs,
        notes=("the results of eager are those of the program in float32, in which nothing is fused",),
    )
    reached = Reached(replayed, replayed.launches[3], 1.5, ())
    return [*what_if_lines(changed), "", *replay.reached_lines(reached, columns)]


def _precision(columns: int) -> list[str]:
    return precision_lines(rounded_model(chain(RUNS, ADD)), columns)


def _bisect(columns: int) -> list[str]:
    trials = (
        BuildTrial(name="baseline", finding=BuildFault.LAUNCH, wrong="0.1 relu is wrong", seconds=8.7),
        BuildTrial(name="--inductor-config epilogue_fusion=False", changes=("a",), failure="no such one", seconds=0.4),
        BuildTrial(name="--inductor-config cpp.simdlen=1", changes=("b",), seconds=9),
    )
    changes = (SettingChange("cpp.simdlen", 1, "the vector width"), LeaveOut(Part.PASS, "joint_graph.pointless_view"))
    launches = bisection(RUNS, Outputs((WRONG,), (RIGHT,)), culprits=(1,), rounding=(0,))
    return [*bisection_lines(launches), "", *settings_lines(SettingsBisection(trials, 2, changes))]


def _equal(columns: int) -> list[str]:
    return equal_lines(EQUAL)


def _minify(columns: int) -> list[str]:
    return minified_lines(FOUND)


def _build(columns: int) -> list[str]:
    return build.describe(
        summary(make_manifest(ADDMM, RELU, RELU), missing_inputs_reason="the program has none"), columns
    )


def _exec(columns: int) -> list[str]:
    result = _result(_made(crashed))
    executed = ExecutedScript(1, result, (result.run,))
    return [*exec.outcome_lines(executed, columns), "", *exec.outcome_lines(ExecutedScript(0), columns)]


def _attach(columns: int) -> list[str]:
    recording, waiting = (state(run_directory=Path("/srv/aoti-debug/runs/20261120-231501-4711")), state(requested=1))
    return attach.attached_lines(4711, (state(level=0), state(level=0)), (recording, waiting), columns)


def _top(columns: int) -> list[str]:
    run = _made(level_2)
    before = state(run_directory=run.path)
    after = state(run_directory=run.path, calls=90, launches=len(run.launches), last_site=1)
    seen = top.WatchedPackage().observe(top.Interval(before, after, 1.0, 394_000_000))
    lines = top.observation_lines(seen, columns)
    return [f"08:58:06{lines[0][8:]}", *lines[1:]]


def _list(columns: int) -> list[str]:
    run = _made(blocks.recorded).path
    made = [MadeResult(ResultKind.RUNS, f"runs/{run.name}", run, 1e9)]
    repro_file = Path("aoti-debug/repros/repro_aoti_torch_cpu__scaled_dot_product_flash_attention_for_cpu_0.3.py")
    made.append(MadeResult(ResultKind.REPROS, f"repros/{repro_file.name}", repro_file, 1e9 + 7200))
    return list_command.list_lines(made, (3 << 20, 4096), 1e9 + 90000, columns)


def _memory(columns: int) -> Iterable[str]:
    recorded, measured = blocks.recorded(RUNS), MeasuredMemory()
    return memory_lines(RunMemory(recorded, run_memory(recorded, measured), measured), None, columns)


def _profile(columns: int) -> list[str]:
    times = [*WARM_UP, (50_000, 10_000, 20_000), (60_000, 1_000, 2_000), (70_000, 4_000, 8_000)]
    profile = measured.profile_of(Path("model.pt2"), measured.write(RUNS, times), PEAKS)
    return profile_lines(profile, None, columns)


def _summaries(columns: int) -> list[str]:
    tensors = tuple(
        replace(series([sample(0, n_zero=1), sample(4, max=7.5 * 10**n, n_nan=n)], modules=(module,)), launch=n)
        for n, module in enumerate(MODULES)
    )
    return table_lines(Summaries(tensors, asked=4, every=16, lost=1), tensors, 2, columns)


def _repro(columns: int) -> list[str]:
    folder, recorded = Path("aoti-debug/repros/20261120-231501-4711"), Path("aoti-debug/runs/20261120-231501-4711")
    written = Repro(folder, blocks.ATTENTION, "0.3", recorded, 3, 40960, "SIGSEGV (Segmentation fault)")
    graph = FxRepro(
        path=folder,
        launch="0.3",
        run=recorded,
        calls=4,
        inputs=2,
        outputs=1,
        lines=("output 0: as recorded",),
        code=0,
        files=(folder / "repro.py",),
    )
    return [*str(written).splitlines(), "", *repro.fx_lines(graph)]


def _report(columns: int) -> list[str]:
    path = Path("aoti-debug/runs/20261120-231501-4711/report/index.html")
    return report.page_lines(path.resolve(), "run 20261120-231501-4711", 3 << 18)


def _bundle(columns: int) -> list[str]:
    contents = Contents("triage-20261120-231501-4711")
    contents.add("verdict.json", "{}")
    contents.add(f"repro/tensors/before_launch_{blocks.ATTENTION}_language_model_layers_0_self_attn.safetensors", b"1")
    why = "the package with its weights: send it separately if you may share it"
    contents.left_out.append(ExcludedFile("package.pt2", 3 << 20, why))
    return bundle.bundle_lines(Bundle(Path("aoti_debug_triage.zip"), 4096, contents), columns)


def _doctor(columns: int) -> list[str]:
    checks = (*CHECKS, BROKEN)
    return [*(line for check in checks for line in doctor.check_lines(check, columns)), doctor.conclusion(checks)]


def _clean(columns: int) -> list[str]:
    gone = {"runs/20261120-231501-4711": 5 << 20, "bundles/run_20261120-231501-4711.zip": 4096, "cache": 3 << 30}
    return clean.clean_lines(["triages/20261121-080000-12"], gone, "would be deleted")


def _ui(columns: int) -> list[str]:
    return ui.ui_lines(Path("/home/u/work/aoti-debug"), "http://127.0.0.1:34567/3f9c0d2ab1/")


def _guide(columns: int) -> list[str]:
    return guide.guide_lines()


OUTPUTS: dict[str, Callable[[int], Iterable[str]]] = {
    "triage": _triage,
    "compare": _compare,
    "diff": _diff,
    "invariance": _invariance,
    "replay": _replay,
    "precision": _precision,
    "bisect": _bisect,
    "equal": _equal,
    "minify": _minify,
    "build": _build,
    "run": _run,
    "exec": _exec,
    "attach": _attach,
    "top": _top,
    "show": _show,
    "show-ranks": _ranks,
    "list": _list,
    "memory": _memory,
    "profile": _profile,
    "summaries": _summaries,
    "repro": _repro,
    "report": _report,
    "bundle": _bundle,
    "doctor": _doctor,
    "guide": _guide,
    "clean": _clean,
    "ui": _ui,
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AOTI_DEBUG_HOME", raising=False)


def printed(command: str, columns: int) -> list[str]:
    """The lines of a command as they are printed, in the working directory."""
    lines = [
        part for line in OUTPUTS[command](columns) for part in terminal_cells.fitted(wording.printable(line), columns)
    ]
    for folder in Path().iterdir():
        shutil.rmtree(folder)
    return lines


def test_every_command_has_its_output() -> None:
    assert set(main.VERBS) <= set(OUTPUTS)


@pytest.mark.parametrize("command", OUTPUTS)
def test_output(command: str, golden: Callable[[Path, str], None]) -> None:
    for columns in (80, 120):
        golden(GOLDEN / f"{command}-{columns}.txt", "\n".join(printed(command, columns)) + "\n")


@pytest.mark.parametrize("command", OUTPUTS)
def test_no_line_is_wider_than_the_terminal(command: str) -> None:
    for columns in (80, 100, 120, 200):
        too_wide = [line for line in printed(command, columns) if terminal_cells.count(line) > columns]
        assert too_wide == []
