"""The server of the pages: who is answered, what with, and what a browser sees."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from aoti_debug.app.cli import main
from aoti_debug.app.ui import ADDRESS, UiServer
from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine.files import results_home
from aoti_debug.base.machine.files.results_home import ResultKind
from aoti_debug.runs.rundir.run_directory import RunDir
from tests.paths import ROOT
from tests.schema import DOCS, problems
from tests.views.memory import small_call
from tests.views.report.chromium import BEYOND, WIDTHS, Browser, needs_chromium
from tests.views.report.markup import EVIL
from tests.views.report.subjects import run, triage

Answer = tuple[int, dict[str, str], str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a run, a triage and a memory run."""
    monkeypatch.chdir(tmp_path)
    results_home.mark(results_home.home())
    run(ResultKind.RUNS.place(), 2, fault=False)
    run(ResultKind.RUNS.place(), 2, name="20261120-231502-4711")
    triage(ResultKind.TRIAGES.place())
    return results_home.home().absolute()


@pytest.fixture
def server(home: Path) -> Iterator[UiServer]:
    with UiServer() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def ask(server: UiServer, path: str, *, method: str = "GET", **headers: str) -> Answer:
    connection = http.client.HTTPConnection(ADDRESS, server.server_port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    response = connection.getresponse()
    found = response.status, dict(response.headers), response.read().decode()
    connection.close()
    return found


def cookie(server: UiServer) -> str:
    status, headers, _ = ask(server, f"/?token={server.token}")
    assert status == 200
    return headers["Set-Cookie"].partition(";")[0]


def test_it_listens_on_the_loopback_interface_alone(server: UiServer) -> None:
    assert server.socket.getsockname()[0] == ADDRESS == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/?token={server.token}"
    with UiServer() as other:
        assert other.token != server.token
        assert len(server.token) >= 40


def test_nothing_without_the_token_or_its_cookie(server: UiServer, home: Path) -> None:
    name = quote("runs/20261120-231501-4711", safe="")
    for path in ("/", f"/page/{name}", "/?token=", "/?token=wrong", f"/?token={server.token}x", "/?token=\u00e9"):
        for sent in ("", f"aoti_debug_{server.server_port}=", f"aoti_debug_{server.server_port}={server.token}"):
            status, headers, text = ask(server, quote(path, safe="/?=%"), Cookie=sent)
            assert status == 403, path
            assert "Set-Cookie" not in headers
            assert "4711" not in text
    assert ask(server, "/", Cookie=cookie(server))[0] == 200


def test_the_first_visit_sets_a_cookie_of_this_site_alone(server: UiServer) -> None:
    _, headers, text = ask(server, f"/?token={server.token}")
    sent = headers["Set-Cookie"]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= {part.strip() for part in sent.split(";")}
    assert server.token not in sent + text
    others = f'theme={{"a": [1; 2]}}; {cookie(server)}; z="'
    assert ask(server, "/", Cookie=others)[0] == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:PORT", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.2:PORT"]
)
def test_another_name_is_refused(server: UiServer, host: str) -> None:
    """A name of another web site may lead to 127.0.0.1, too."""
    named = host.replace("PORT", str(server.server_port))
    status, headers, text = ask(server, f"/?token={server.token}", Host=named)
    assert (status, "Set-Cookie" in headers) == (421, False)
    assert ask(server, "/", Host=named, Cookie=cookie(server))[0] == 421
    assert "4711" not in text


def test_both_names_of_the_loopback_interface(server: UiServer) -> None:
    assert ask(server, "/", Host=f"localhost:{server.server_port}", Cookie=cookie(server))[0] == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_asks_for_is_refused(server: UiServer, site: str) -> None:
    assert ask(server, "/", Cookie=cookie(server), Sec_Fetch_Site=site)[0] == 403
    assert ask(server, "/", Cookie=cookie(server), Sec_Fetch_Site="same-origin")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "CONNECT", "TRACE"])
def test_only_reading_methods(server: UiServer, method: str) -> None:
    assert ask(server, "/", method=method, Cookie=cookie(server))[0] == 501


def test_a_head_is_a_page_without_its_body(server: UiServer) -> None:
    status, headers, text = ask(server, "/", method="HEAD", Cookie=cookie(server))
    assert (status, text) == (200, "")
    assert int(headers["Content-Length"]) > 1000


def test_no_other_site_can_show_or_read_an_answer(server: UiServer) -> None:
    for path in ("/", "/nothing"):
        _, headers, _ = ask(server, path, Cookie=cookie(server))
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


def files(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_every_page_of_the_list_and_nothing_is_written(server: UiServer, home: Path) -> None:
    before = files(home)
    allowed = cookie(server)
    listed = ask(server, "/", Cookie=allowed)[2]
    links = re.findall(r'href="(/page/[^"]*)"', listed)
    assert len(links) == 3
    titles = [re.findall("<title>(.*?)</title>", ask(server, link, Cookie=allowed)[2]) for link in links]
    assert all(len(title) == 1 for title in titles)
    assert {title.partition(":")[0] for (title,) in titles} == {"fault", "no fault"}
    a, b = "runs/20261120-231501-4711", "runs/20261120-231502-4711"
    diff = ask(server, f"/diff?a={quote(a)}&b={quote(b)}", Cookie=allowed)
    assert diff[0] == 200
    assert "Launches of both runs" in diff[2] or "There is no page of it" in diff[2]
    assert files(home) == before


@pytest.mark.parametrize(
    "path",
    [
        *("/page/", "/page/..%2F..", "/page/%2Fetc%2Fpasswd", "/page/runs%2F..%2Ftriages", "/page/runs%2F%00", "/x"),
        *("/diff", "/diff?a=runs/20261120-231501-4711", "/diff?a=/etc&b=/etc", "//evil.example/page", "/page", "*"),
    ],
)
def test_no_address_leads_out_of_the_list(server: UiServer, path: str) -> None:
    status, _, text = ask(server, path, Cookie=cookie(server))
    assert status == 404
    assert "No such" in text


def test_a_damaged_run_is_a_sentence(server: UiServer, home: Path) -> None:
    (home / "runs/20261120-231501-4711/run.json").write_text("{")
    allowed = cookie(server)
    assert "cannot be read" in ask(server, "/", Cookie=allowed)[2]
    status, _, text = ask(server, "/page/runs%2F20261120-231501-4711", Cookie=allowed)
    assert status == 200
    assert "There is no page of it" in text
    assert "damaged" in text


def test_a_stored_page_has_an_origin_of_its_own(server: UiServer, home: Path) -> None:
    """It may be of somebody else: a directory that was received."""
    page = home / "diffs/20261120-231503-1/report/index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<title>a stored page</title>")
    _, headers, text = ask(server, "/page/diffs%2F20261120-231503-1", Cookie=cookie(server))
    assert text == "<title>a stored page</title>"
    policy = headers["Content-Security-Policy"]
    assert "sandbox allow-scripts" in policy
    assert "allow-same-origin" not in policy
    page.unlink()
    page.symlink_to("/etc/passwd")
    assert "root:" not in ask(server, "/page/diffs%2F20261120-231503-1", Cookie=cookie(server))[2]


def test_a_memory_run_has_its_picture(server: UiServer, home: Path) -> None:
    recorded = small_call.recorded(home / "memory/20261120-231504-1/runs")
    assert isinstance(recorded, RunDir)
    text = ask(server, "/page/memory%2F20261120-231504-1", Cookie=cookie(server))[2]
    assert "<title>peak 2.0 KiB" in text


def test_a_port_that_is_taken(server: UiServer) -> None:
    with pytest.raises(UsageError, match=f"port {server.server_port} cannot be used"):
        UiServer(server.server_port)
    assert main.run(["ui", "--port", str(server.server_port)]) == 2


def test_a_client_that_says_nothing_stops_nobody(server: UiServer) -> None:
    with socket.create_connection((ADDRESS, server.server_port)):
        assert ask(server, "/", Cookie=cookie(server))[0] == 200


def test_an_empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with UiServer() as server:
        text = server.pages.page("/", "").text
    assert "Nothing was made here" in text
    assert not (tmp_path / "aoti-debug").exists()


def test_ctrl_c_ends_it(home: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    command = [sys.executable, "-m", "aoti_debug", "ui"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        assert re.fullmatch(r"  http://127\.0\.0\.1:\d+/\?token=\S{43}\n", lines[1])
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out.strip(), err) == (0, "ended", "")


def test_the_address_as_json(home: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "aoti_debug", "ui", "--json"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            found = json.loads("".join(process.stdout.readline() for _ in range(7)))
            connection = http.client.HTTPConnection(ADDRESS, found["port"], timeout=60)
            connection.request("GET", f"/?token={found['token']}")
            status = connection.getresponse().status
            connection.close()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert problems(found, json.loads((DOCS / "ui.schema.json").read_text())) == []
    assert (found["results"], found["token"] in found["address"], status) == (str(home), True, 200)
    assert (process.returncode, out, err.strip()) == (0, "", "ended")


CHOOSE = """(() => {
  const boxes = [...document.querySelectorAll("tbody input")].filter((box) => box.value.startsWith("runs/"));
  const button = document.getElementById("compare");
  const before = button.disabled;
  boxes.reverse().forEach((box) => box.click());
  return [before, button.disabled, document.getElementById("chosen").textContent];
})()"""
SEARCH = """(() => {
  const search = document.getElementById("search");
  search.value = "TRIAGES fault";
  search.dispatchEvent(new Event("input"));
  return [...document.querySelectorAll("tbody tr")].filter((row) => !row.hidden).map((row) => row.dataset.kind);
})()"""


@needs_chromium
def test_a_browser_finds_opens_and_compares(server: UiServer, tmp_path: Path) -> None:
    with Browser(tmp_path).visit(server.address) as visit:
        visit.wait_for("document.querySelectorAll('tbody tr').length === 3")
        assert visit.value("location.href") == f"http://127.0.0.1:{server.server_port}/"
        assert visit.value(SEARCH) == ["triages"]
        assert visit.value(CHOOSE) == [
            True,
            False,
            "A: runs/20261120-231501-4711, B: runs/20261120-231502-4711",
        ]
        visit.value("document.getElementById('compare').click()")
        visit.wait_for("location.pathname === '/diff' && document.readyState === 'complete'")
        assert visit.value("document.title") != ""
        visit.value("history.back()")
        visit.wait_for("location.pathname === '/' && document.readyState === 'complete'")
        visit.value("document.querySelector('a[href*=triages]').click()")
        visit.wait_for("document.title.startsWith('fault')")
        assert visit.said == ""


@needs_chromium
@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_fits_the_window(server: UiServer, tmp_path: Path, width: int) -> None:
    with Browser(tmp_path).visit(server.address, width) as visit:
        visit.wait_for("document.querySelectorAll('tbody tr').length === 3")
        assert visit.value(BEYOND) == []


@needs_chromium
def test_a_stored_page_reads_nothing(server: UiServer, home: Path, tmp_path: Path) -> None:
    page = home / "diffs/20261120-231503-1/report/index.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        "<title>waits</title><script>fetch('/').then((answer) => answer.text()).then((text) => {"
        "document.title = text.includes('4711') ? 'has read' : 'refused'}, () => {document.title = 'refused'})</script>"
    )
    with Browser(tmp_path).visit(server.address) as visit:
        visit.wait_for("document.querySelectorAll('tbody tr').length === 4")
        visit.value("document.querySelector('a[href*=diffs]').click()")
        visit.wait_for("['has read', 'refused'].includes(document.title)")
        assert visit.value("document.title") == "refused"


def test_hostile_names_are_text(server: UiServer, home: Path) -> None:
    record = next(home.glob("triages/*/triage.json")).resolve()
    stored = json.loads(record.read_text())
    stored["finding"]["what"] = EVIL
    stored["command"] = ["aoti-debug", "triage", "<b>model.pt2"]
    record.write_text(json.dumps(stored))
    text = ask(server, "/", Cookie=cookie(server))[2]
    assert "<img" not in text
    assert "<b>" not in text
    assert "&lt;b&gt;model.pt2" in text
