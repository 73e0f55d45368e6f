"""The report of a received run with hostile text in every field, in a real browser."""

from __future__ import annotations

import json
from pathlib import Path

from aoti_debug.app.cli import main
from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.diagnosis import findings
from aoti_debug.runs.diagnosis.findings import Finding, Place
from tests.received import edit_json, received, rename_everything
from tests.views.report.chromium import Browser, needs_chromium

pytestmark = needs_chromium

EVIL = (
    "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
    "<a href=\"javascript:document.title='owned'\">\"'`${document.title='owned'}{{7*7}}\u202e\x1b[2J\u2028\ud800"
)


def hostile_run(folder: Path, text: str = EVIL) -> Path:
    """A received run all of whose texts end in `text`, as do its faults, notes and the names of its kernels."""
    run = received(folder, command=("aoti-debug", "run"), filters=("*",))
    for name in ("manifest.json", "run.json"):
        edit_json(run / name, lambda data: data.update(rename_everything(data, text)))
    edit_json(run / "manifest.json", lambda data: data.update(device="cpu"))
    edit_json(run / "run.json", lambda data: data.update(device="cpu"))
    return run


def hostile_triage(folder: Path, text: str = EVIL) -> Path:
    """A received triage of such a run."""
    place = Place("0.0", f"k{text}", f"o{text}", f"i{text}", f"a{text}", 3, ModelLine(f"f{text}.py", 1, text, text))
    texts = (f"one {text}", f"two {text}")
    finding = Finding(findings.FAULT, f"what {text}", place, texts, place, (place,), texts, texts, "", texts, texts)
    step = {"name": f"step {text}", "seconds": 1.0, "text": text, "timings": {text: 1.0}, "began": 0.0}
    data = {"format": 1, "finding": findings.to_json(finding), "steps": [step], "versions": {text: text}}
    run = hostile_run(folder / "of", text)
    triage = folder / "triage"
    (triage / "runs").mkdir(parents=True)
    run.rename(triage / "runs" / run.name)
    data |= {"command": ["aoti-debug", text], "package": text, "run": f"runs/{run.name}"}
    (triage / "triage.json").write_text(json.dumps(data))
    return triage


def check(subject: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main.run(["report", str(subject), "-o", str(page)]) == 0
    browser = Browser(tmp_path)
    for fragment in ("", "#launch=0.0", "#launch=0.1", "#<img src=x onerror=document.title='owned'>"):
        dom = browser.dom(page, fragment)
        assert browser.said == ""
        assert "<title>owned" not in dom
        assert "<img" not in dom
        assert '<a href="javascript' not in dom
        assert "onerror=" in dom  # as text
        assert "\u202e" not in dom


def test_a_run(tmp_path: Path) -> None:
    check(hostile_run(tmp_path), tmp_path)


def test_a_triage(tmp_path: Path) -> None:
    check(hostile_triage(tmp_path), tmp_path)
