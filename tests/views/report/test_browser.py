"""The page in a real browser."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import pytest

from aoti_debug.base.abi import Phase
from aoti_debug.compare.comparison import Comparison, Row
from aoti_debug.compare.measure.verdicts import LaunchVerdict
from aoti_debug.compare.protocol.measurement import Measurement
from aoti_debug.package.manifest import Kind, Role
from aoti_debug.runs.rundir.run_directory import RunDir, open_run
from aoti_debug.views.report import report
from tests.factories import JournalWriter, arg, make_manifest, run_directory, site, statistics, tensor, triton_kernel
from tests.views.report.chromium import BEYOND, WIDTHS, Browser, needs_chromium
from tests.views.report.markup import EVIL, hostile
from tests.views.report.subjects import comparison_of, run, saved_run, triage

pytestmark = needs_chromium


@pytest.fixture
def browser(tmp_path: Path) -> Browser:
    return Browser(tmp_path)


def element(dom: str, id_: str) -> str:
    """From where the element begins to the next section."""
    return dom.partition(f'id="{id_}"')[2].partition("</section>")[0]


def milliseconds(dom: str) -> int:
    """How long after it was asked for the page was complete."""
    found = re.search(r'data-ready="(\d+)"', dom)
    assert found is not None
    return int(found[1])


def test_a_triage_opens_at_its_culprit(tmp_path: Path, browser: Browser) -> None:
    dom = browser.dom(report.write_triage(triage(tmp_path)))
    assert browser.said == ""
    assert milliseconds(dom) > 0
    detail = element(dom, "detail")
    assert "aoti_torch_cpu_index_Tensor" in detail
    assert "guilty" in detail
    graph = element(dom, "graph")
    assert graph.count("<g ") == 5
    assert graph.count('class="edge"') == 4
    assert "✖ guilty" in graph
    assert '<div class="u-wrap"' in element(dom, "timeline")
    assert "tabulator-row" in element(dom, "table")


def test_a_fragment_opens_a_launch(tmp_path: Path, browser: Browser) -> None:
    page = report.write(report.of_run(saved_run(tmp_path)))
    detail = element(browser.dom(page, "#launch=0.1"), "detail")
    assert browser.said == ""
    assert detail.count('<figure class="histogram"') == 2
    assert "2 NaN" in detail
    assert detail.count("u-wrap") == 2
    other = element(browser.dom(page, "#launch=0.0"), "detail")
    assert "made_by_inductor" in other
    assert "secret_table" in other


def test_hostile_texts_are_shown_and_do_nothing(tmp_path: Path, browser: Browser) -> None:
    dom = browser.dom(report.write(report.of_run(hostile(tmp_path))))
    assert browser.said == ""
    assert "<img" not in dom
    shown = EVIL.partition(" ")[0].replace("<", "&lt;").replace(">", "&gt;")
    assert shown in element(dom, "detail")
    assert shown in element(dom, "table")
    assert "onerror" in element(dom, "graph").replace("&lt;", "<")


def test_it_prints(tmp_path: Path, browser: Browser) -> None:
    paper = browser.pdf(report.write_triage(triage(tmp_path)))
    assert paper.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", paper)) <= 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws(tmp_path: Path, browser: Browser, scheme: Literal["light", "dark"]) -> None:
    image = browser.screenshot(report.write_triage(triage(tmp_path)), scheme)
    assert image.read_bytes().startswith(b"\x89PNG")
    assert image.stat().st_size > 50_000


NAME = "triton_poi_fused_add_clamp_cos_exp_log_log1p_mean_mul_silu_sin_split_sqrt_sub_view"


@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_and_names_end_as_they_are(tmp_path: Path, browser: Browser, width: int) -> None:
    """A name that is too long for its column loses its middle."""
    names = [f"{NAME}_{n}" for n in range(3)]
    package = make_manifest(*(site(name, arg("x"), arg("buf0", Role.OUT), kind=Kind.CPP) for name in names))
    writer = JournalWriter()
    writer.call_begin()
    for launch in range(3):
        writer.launch(launch, launch, tensor(2), tensor(2))
    page = report.write(report.of_run(open_run(run_directory(tmp_path, package, writer))))
    assert browser.measure(page, width, BEYOND) == []
    ends = """[...document.querySelectorAll("[tabulator-field=kernel] .cut")].map((one) => {
      const [begin, end] = [...one.children].map((part) => part.getBoundingClientRect());
      const cell = one.closest(".tabulator-cell").getBoundingClientRect();
      return [one.textContent, begin.width > 20, end.width > 80 && end.right <= cell.right];
    })"""
    assert browser.measure(page, width, ends) == [[name, True, True] for name in names]


def test_dark_is_not_light(tmp_path: Path, browser: Browser) -> None:
    page = report.write(report.of_run(run(tmp_path)))
    light = browser.screenshot(page).read_bytes()
    dark = browser.screenshot(page, "dark").read_bytes()
    assert light != dark


def many(base: Path, launches: int) -> RunDir:
    """Level 2, 40 kernels."""
    names = [f"triton_poi_fused_add_mul_{n}" for n in range(40)]
    package = make_manifest(
        *(site(n, arg("x"), arg("buf0", Role.OUT), kind=Kind.TRITON, launches=(n,)) for n in names),
        kernels=[triton_kernel(n, id_) for id_, n in enumerate(names)],
        device="cuda",
    )
    writer = JournalWriter(level=2)
    writer.call_begin()
    x, y = tensor(64, device="cuda:0"), tensor(64, device="cuda:0", data_ptr=0x9000)
    for launch in range(launches):
        writer.launch_begin(launch, launch % 40, x, y)
        writer.grid(launch, launch % 40, (4, 1, 1), 0x1000, 0x9000, 64)
        writer.tensor_stats(launch, 0, Phase.BEFORE, statistics(mean=launch / 7), layout=x.layout)
        writer.launch_end(launch)
        bad = launch >= launches - 3
        writer.tensor_stats(launch, 1, Phase.AFTER, statistics(n_nan=bad, mean=launch / 3), layout=y.layout)
    writer.call_end(launches=launches)
    writer.run_end()
    return open_run(run_directory(base, package, writer))


def test_five_thousand_launches(tmp_path: Path, browser: Browser) -> None:
    page = report.write(report.of_run(many(tmp_path, 5000)))
    assert page.stat().st_size < 6 << 20
    dom = browser.dom(page)
    assert browser.said == ""
    assert "5000 launches" in element(dom, "launches")
    assert element(dom, "table").count('class="tabulator-row') < 200
    assert "0.4997" in element(dom, "detail")
    assert milliseconds(browser.live_dom(page)) < 10_000  # an idle machine needs a tenth of that


def test_a_comparison(tmp_path: Path, browser: Browser) -> None:
    page = report.write(report.of_comparison(comparison_of(run(tmp_path, 2, fault=False))))
    dom = browser.dom(page)
    assert browser.said == ""
    errors = element(dom, "comparison")
    assert "first wrong: 0.1 aoti_torch_cpu_index_Tensor" in errors
    assert errors.count("url(#hatch)") == 1
    assert 'class="local bad"' in errors
    assert 'class="inherited"' in errors
    assert errors.count('class="wrong"') == 8
    assert "beyond any bound" in errors
    assert "misplaced NaN or infinity" in errors
    assert "dimension 0: 3 of 4" in errors
    table = element(dom, "table")
    assert "inherited" in table
    assert "not comparable: random numbers" in table
    assert "largest ULP" in element(dom, "detail")


HOVER = """<script>
const errors = document.getElementById("errors");
const box = errors.getBoundingClientRect();
errors.dispatchEvent(new MouseEvent("mousemove", { clientX: box.left + box.width * SHARE, clientY: box.top + 50 }));
</script></body>"""


@pytest.mark.parametrize(
    ("share", "words"),
    [
        ("0.5", ("0.1  aoti_torch_cpu_index_Tensor", "rows = secret_table[index * 2]", "wrong", "local 0.25")),
        ("0.9", ("0.2  cpp_fused_exp_1", "not comparable", "random numbers: rows = secret_table")),
    ],
)
def test_the_launch_under_the_pointer(tmp_path: Path, browser: Browser, share: str, words: tuple[str, ...]) -> None:
    page = report.write(report.of_comparison(comparison_of(run(tmp_path, 2, fault=False))))
    text = re.sub(r"<meta http-equiv=[^>]*>", "", page.read_text())  # it forbids other scripts
    page.write_text(text.replace("</body>", HOVER.replace("SHARE", share)))
    tip = element(browser.dom(page), "errors").partition('class="tip"')[2].partition("</div></div>")[0]
    assert browser.said == ""
    assert [word for word in words if word not in re.sub(r"<[^>]*>", "", tip)] == []


def compared(opened: RunDir) -> Comparison:
    """Every launch is compared but every tenth; from the launch 7000 on they inherit an error."""

    def row(at: int) -> Row:
        launch = opened.launches[at]
        if at % 10 == 3:
            return Row(
                launch=launch, verdict=LaunchVerdict.NOT_COMPARABLE, reason=f"it depends on cond in {at % 5}", bytes=4
            )
        wrong = at == 7000
        relative = 0.3 if wrong else 1e-8 * (1 + at % 17)
        measured = Measurement(
            argument="buf0",
            value="add",
            operator="aten.add.Tensor",
            dtype="float32",
            shape=(64,),
            count=64,
            wrong=int(wrong),
            relative=relative,
        )
        inherited = 1e-7 if at < 7000 else 0.3
        verdict = LaunchVerdict.WRONG if wrong else LaunchVerdict.OK
        return Row(
            launch=launch,
            verdict=verdict,
            reason="",
            outputs=(measured,),
            inherited={"buf0": inherited},
            together_with=(launch.id,),
            bytes=256,
            compared_bytes=256,
        )

    return Comparison(run=opened, rows=tuple(map(row, range(len(opened.launches)))))


def test_ten_thousand_compared_launches(tmp_path: Path, browser: Browser) -> None:
    opened = many(tmp_path, 10_000)
    page = report.write(report.of_comparison(compared(opened)))
    assert page.stat().st_size < 12 << 20
    dom = browser.dom(page)
    assert browser.said == ""
    errors = element(dom, "comparison")
    assert "first wrong: 0.7000" in errors
    assert errors.count("<path") < 40
    assert "wrong 1" in errors
    assert element(dom, "table").count('class="tabulator-row') < 200
    assert milliseconds(browser.live_dom(page)) < 20_000  # an idle machine needs a tenth of that
