from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aoti_debug.base.machine.processes import child_process, python_process
from aoti_debug.base.machine.processes.fork_client import ForkServer
from aoti_debug.base.machine.processes.python_process import PythonCommand
from tests import shared_imports
from tests.shell_children import is_dead

ONCE = "import os\nos.environ['IMPORTED_IN'] = str(os.getpid())\n"
SCRIPT = "import os, imported_once\nprint(os.environ['IMPORTED_IN'], os.environ['MORE'], os.getppid())\n"


def said_by(server: ForkServer, script: Path) -> list[str]:
    environment = {**server.environment, "MORE": "more"}
    command = PythonCommand(script=str(script))
    with server.start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        done = child_process.finished(child, 60)
    assert (done.code, done.stderr) == (0, "")
    return done.stdout.split()


def test_it_ends_with_its_user(tmp_path: Path) -> None:
    code = (
        "import os, pathlib, signal\n"
        "from tests import shared_imports\n"
        "with shared_imports.shared(['json'], os.environ):\n"
        "    channel = shared_imports.connection()\n"
        "    assert channel.recv(1) == b'\\0'\n"
        "    print(pathlib.Path(f'/proc/self/task/{os.getpid()}/children').read_text(), flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    (pid,) = done.stdout.split()
    assert is_dead(int(pid))


def test_servers_share_what_was_imported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_once.py").write_text(ONCE)
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    monkeypatch.setenv(shared_imports.SOCKET, "")
    search = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    environment = python_process.environment({**os.environ, "PYTHONPATH": search})
    servers = [ForkServer(["imported_once"], (), environment, {"MORE"}) for _ in range(2)]
    with shared_imports.shared(["imported_once"], environment):
        for server in servers:
            server.connect(shared_imports.connection())
        (first, more, parent), (second, _, other_parent) = (said_by(server, script) for server in servers)
        assert (first, more) == (second, "more")
        assert parent != other_parent
        servers[0].close()
        assert said_by(servers[1], script)[2] == other_parent
        servers[1].close()
