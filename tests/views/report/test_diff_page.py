"""The page of two runs: its data, its texts, and in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from aoti_debug.compare.diff.diff_runs import diff_runs
from aoti_debug.compare.diff.difference import Diff
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.report import diff_page
from tests.compare.chains import chain
from tests.triage.recorder import Recorder
from tests.views.report.chromium import Browser, needs_chromium
from tests.views.report.markup import EVIL, Tags, policy_of
from tests.views.report.subjects import data_of
from tests.views.report.test_browser import HOVER

ADD = ("aten.add.Tensor",) * 6
BEGIN = torch.linspace(1, 2, 24).reshape(4, 6)


def of_chains(folder: Path, wrong: int = -1, step: int = 1) -> Diff:
    return diff_runs(chain(folder / "a", ADD), chain(folder / "b", ADD, wrong=wrong, step=step))


def record(base: Path, change: torch.Tensor, kernel: str = "cpp_mul", *, save: bool = True) -> RunDir:
    recorder = Recorder(base, inputs=("x",), save=save)
    recorder.journal.call_begin()
    recorder.launch(kernel, {"x": BEGIN}, {"buf0": BEGIN * 2 + change})
    recorder.launch("cpp_neg", {"buf0": BEGIN * 2 + change}, {"buf1": -(BEGIN * 2 + change)})
    recorder.journal.call_end(launches=2)
    recorder.journal.run_end()
    return recorder.run()


def changed(**elements: float) -> torch.Tensor:
    """Zeros but for these elements: e15 is the one in row 1 and column 5."""
    found = torch.zeros_like(BEGIN)
    for name, value in elements.items():
        found[int(name[1]), int(name[2])] = value
    return found


def of_records(folder: Path, **elements: float) -> Diff:
    return diff_runs(record(folder / "a", changed()), record(folder / "b", changed(**elements)))


def test_both_sides_in_the_order_of_the_second_run(tmp_path: Path) -> None:
    data = data_of(diff_page.diff_page(of_chains(tmp_path, wrong=0, step=3)))
    sides = [([id_ for id_, _ in row["a"]], [id_ for id_, _ in row["b"]]) for row in data["launches"]]
    assert sides == [(["0.0"], []), (["0.1"], []), (["0.2"], ["0.0"]), (["0.3"], []), (["0.4"], []), (["0.5"], ["0.1"])]
    verdicts = [data["verdicts"][row["verdict"]] for row in data["launches"]]
    assert verdicts == ["only in A"] * 2 + ["parts"] + ["only in A"] * 2 + ["consequence"]
    assert (data["first"], data["first_parts"]) == ("0.0", True)
    assert len({row["id"] for row in data["launches"]}) == 6


def test_launches_that_only_the_second_run_has(tmp_path: Path) -> None:
    runs = chain(tmp_path / "a", ADD[:4]), chain(tmp_path / "b", ADD)
    (runs[0].path / "package.pt2").unlink()
    data = data_of(diff_page.diff_page(diff_runs(*runs)))
    assert [data["verdicts"][row["verdict"]] for row in data["launches"]] == ["same"] * 4 + ["only in B"] * 2


def test_where_the_elements_of_the_first_tensor_differ(tmp_path: Path) -> None:
    (spread,) = data_of(diff_page.diff_page(of_records(tmp_path, e12=1e-6, e15=float("nan"))))["spread"]
    assert (spread["kind"], spread["argument"], spread["count"], spread["wrong"]) == ("different", "buf0", 24, 2)
    assert spread["ranges"] == [[[1, 1]], [[2, 2], [5, 5]]]
    assert (spread["misplaced"], sum(spread["ulp"])) == (1, 23)
    assert [at for at, size in enumerate(spread["map"]) if size] == [8, 11]
    assert spread["map"][11] == 1e300


def test_the_verdict_names_the_element(tmp_path: Path) -> None:
    page = diff_page.diff_page(of_records(tmp_path, e12=1.0))
    visible = re.sub(r"<[^>]*>", " ", page.partition("<main>")[2].partition("</section>")[0])
    first, second = (BEGIN * 2)[1, 2].item(), (BEGIN * 2 + changed(e12=1.0))[1, 2].item()
    expected = ("Different from 0.0 cpp_mul on", "buf0[1, 2]", "1 of 24 elements differ", repr(first), repr(second))
    assert [words for words in expected if words not in visible] == []


def test_hashes_alone_have_no_map(tmp_path: Path) -> None:
    runs = [record(tmp_path / side, changed(e00=n), save=False) for n, side in enumerate("ab")]
    page = diff_page.diff_page(diff_runs(*runs))
    assert data_of(page)["spread"] == []
    assert "no map of buf0: level 1 saves it" in page


@pytest.mark.parametrize(
    ("excesses", "wrong", "words", "css"),
    [
        (None, -1, "Same", "good"),
        (None, 2, "Different from 0.2 cpp_fused_add_2 on", "bad"),
        ((), 2, "within the budget", "good"),
        (("0.2 k buf2: it must be equal",), 2, "0.2 k buf2: it must be equal", "bad"),
    ],
)
def test_the_gate_has_the_last_word(
    excesses: tuple[str, ...] | None, wrong: int, words: str, css: str, tmp_path: Path
) -> None:
    page = diff_page.diff_page(of_chains(tmp_path, wrong), excesses)
    assert words in page
    assert f'class="verdict {css}"' in page
    assert ('id="budget"' in page) == (excesses is not None)


def test_a_run_that_did_not_end_well(tmp_path: Path) -> None:
    diff = of_chains(tmp_path)
    page = diff_page.diff_page(replace(diff, unfinished=("run b did not end well: fault",)))
    assert '<h1 id="what">Not compared to the end</h1>' in page
    assert '<p class="remark">run b did not end well: fault</p>' in page


def test_settings_and_facts_of_both_runs(tmp_path: Path) -> None:
    a, b = record(tmp_path / "a", changed()), record(tmp_path / "b", changed())
    other = replace(b, info=replace(b.info, torch_version="2.11.0"))
    page = diff_page.diff_page(diff_runs(a, other))
    assert f'<th scope="row">torch that runs it</th><td>{a.info.torch_version}</td><td>2.11.0</td>' in page
    assert "2 launches in 1 call" in page


def test_texts_of_a_model_are_never_markup(tmp_path: Path) -> None:
    runs = [record(tmp_path / side, changed(e00=n), EVIL) for n, side in enumerate("ab")]
    page = diff_page.diff_page(diff_runs(*runs), [EVIL])
    found = Tags(page)
    assert "img" not in found.tags
    assert found.tags.count("script") == 8
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    assert "default-src 'none'" in policy_of(page)


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


def section(dom: str, id_: str) -> str:
    return dom.partition(f'id="{id_}"')[2].partition("</section>")[0]


def drawn(browser: Browser, diff: Diff, folder: Path, fragment: str = "") -> str:
    dom = browser.dom(diff_page.write(diff, None, folder / "page.html"), fragment)
    assert browser.said == ""
    return dom


@needs_chromium
def test_the_picture_the_table_and_the_first_launch(tmp_path: Path, browser: Browser) -> None:
    dom = drawn(browser, of_records(tmp_path, e12=1e-6, e15=float("nan")), tmp_path)
    along = section(dom, "along")
    assert "≠ parts first: 0.0 cpp_mul" in along
    assert along.count('class="local bad"') == along.count('class="local warn"') == 1
    assert ">?</text>" in along
    assert "NaN in one of the runs" in along
    assert along.count('class="wrong"') == 2
    launches = section(dom, "launches")
    assert launches.count('class="tabulator-row') == 2
    assert "buf0 2 of 24" in launches
    assert "consequence" in launches
    assert "parts: it read the same inputs, and wrote different results" in section(dom, "detail")


@needs_chromium
@pytest.mark.parametrize(
    ("share", "words"),
    [("0.3", ("0.0  cpp_mul", "parts", "differs by up to 4 ULP")), ("0.9", ("0.1  cpp_neg", "consequence"))],
)
def test_the_launch_under_the_pointer(tmp_path: Path, browser: Browser, share: str, words: tuple[str, ...]) -> None:
    page = diff_page.write(of_records(tmp_path, e12=1e-6), None, tmp_path / "page.html")
    text = re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text())  # it forbids other scripts
    page.write_text(text.replace("</body>", HOVER.replace("SHARE", share)))
    tip = section(browser.dom(page), "errors").partition('class="tip"')[2].partition("</div></div>")[0]
    assert browser.said == ""
    assert [word for word in words if word not in re.sub(r"<[^>]*>", "", tip)] == []


@needs_chromium
def test_gaps_and_a_launch_of_the_first_run(tmp_path: Path, browser: Browser) -> None:
    dom = drawn(browser, of_chains(tmp_path, wrong=0, step=3), tmp_path, "#launch=A%200.3")
    assert section(dom, "along").count("url(#hatch)") == 1
    assert "only in A 4" in section(dom, "along")
    assert ">call" not in section(dom, "along")
    assert "0.3</span> cpp_fused_add_3" in section(dom, "detail")


@needs_chromium
def test_equal_runs(tmp_path: Path, browser: Browser) -> None:
    along = section(drawn(browser, of_chains(tmp_path), tmp_path), "along")
    assert "parts first" not in along
    assert "same 6" in along


@needs_chromium
def test_hostile_texts_are_shown_and_do_nothing(tmp_path: Path, browser: Browser) -> None:
    runs = [record(tmp_path / side, changed(e00=n), EVIL) for n, side in enumerate("ab")]
    dom = drawn(browser, diff_runs(*runs), tmp_path)
    assert "<img" not in dom
    assert EVIL.partition(" ")[0].replace("<", "&lt;").replace(">", "&gt;") in section(dom, "detail")


@needs_chromium
def test_five_thousand_launches(tmp_path: Path, browser: Browser) -> None:
    many = ("aten.add.Tensor",) * 5000
    diff = diff_runs(*(recorded(tmp_path / side, len(many), wrong) for side, wrong in (("a", -1), ("b", 3000))))
    dom = drawn(browser, diff, tmp_path)
    assert (tmp_path / "page.html").stat().st_size < 4 << 20
    assert "consequence 1999" in section(dom, "along")
    assert section(dom, "along").count("<path") < 40
    assert section(dom, "launches").count('class="tabulator-row') < 200


def recorded(base: Path, launches: int, wrong: int) -> RunDir:
    """A chain of launches whose hashes were recorded; from launch `wrong` on, others."""
    recorder = Recorder(base, inputs=("x",), save=False)
    recorder.journal.call_begin()
    value = torch.zeros(4)
    name = "x"
    for at in range(launches):
        result = value + 1 + (at == wrong)
        recorder.launch(f"cpp_add_{at % 40}", {name: value}, {f"buf{at % 3}": result})
        name, value = f"buf{at % 3}", result
    recorder.journal.call_end(launches=launches)
    recorder.journal.run_end()
    return recorder.run()
