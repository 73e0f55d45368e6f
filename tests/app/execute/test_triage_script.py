"""The triage of scripts, in processes of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aoti_debug.app.cli import main
from aoti_debug.package import weights_file
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.ranks import ranks_analysis, ranks_run
from aoti_debug.runs.rundir.run_directory import open_run
from tests.paths import ROOT

NOT_FINITE = """
import sys
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        kept = (x > 0).float()
        ratio = (kept * x).sum(-1) / kept.sum(-1)
        return ratio + 1

x = torch.ones(4, 8)
program = torch.export.export(Model(), (x,))
from tests.wrapper_templates import share
share()
path = torch._inductor.aoti_compile_and_package(program, package_path="nan.pt2")
model = torch._inductor.aoti_load_package(path)
for scale in (1, 2, -3, 4):
    print(scale, model(x * scale)[0].item(), sys.argv[1:])
"""

RAISES = """
import torch

FEWEST = 3

@torch.library.custom_op("mine::checked", mutates_args=())
def checked(x: torch.Tensor) -> torch.Tensor:
    if x.shape[0] < FEWEST:
        raise ValueError(f"{x.shape[0]} rows are too few")
    return x * 2

@checked.register_fake
def _(x):
    return torch.empty_like(x)

class Model(torch.nn.Module):
    def forward(self, x):
        y = x.sin()
        return torch.ops.mine.checked(y).cos()

x = torch.ones(4, 8)
torch.set_float32_matmul_precision("medium")
rows = torch.export.Dim("rows", max=9)
program = torch.export.export(Model(), (x,), dynamic_shapes=({0: rows},))
from tests.wrapper_templates import share
share()
path = torch._inductor.aoti_compile_and_package(program, package_path="raises.pt2")
model = torch._inductor.aoti_load_package(path)
for count in (4, 3, 2):
    print(model(x[:count]).shape)
"""

LIBRARY = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(100, 16)

    def forward(self, ids, scale):
        hidden = self.embed(ids)
        return (hidden * scale).sum(-1).log_softmax(-1)

ids, scale = torch.randint(0, 100, (4, 8)), torch.ones(1)
program = torch.export.export(Model().eval(), (ids, scale))
path = __file__.replace("serve.py", "model.so")
options = {"aot_inductor.output_path": path}
from tests.wrapper_templates import share
share()
assert torch._inductor.aot_compile(program.module(), (ids, scale), options=options) == path
model = torch._export.aot_load(path, "cpu")
runner = torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1)
assert torch.equal(model(ids, scale), *runner.run([ids, scale]))
ids[2, 3] = 100
runner.run([ids, scale])
"""

STATE = """
import sys
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, state, x):
        state.mul_(0.5)
        self.count.add_(1)
        return state + x / (3 - self.count)[:, None]

example = torch.ones(3, 4), torch.ones(3, 8)[:, ::2]
program = torch.export.export(Model(), example)
from tests.wrapper_templates import share
share()
path = torch._inductor.aoti_compile_and_package(program, package_path="state.pt2")
model = torch._inductor.aoti_load_package(path)
memory = torch.ones(24)
given = {
    "alone": (torch.zeros(3, 4), torch.zeros(3, 8)[:, ::2]),
    "shared": (memory[:12].view(3, 4), memory.view(3, 8)[:, ::2]),
}[sys.argv[1]]
for number in range(4 if sys.argv[1] == "alone" else 1):
    print(model(*given).sum().item())
"""

RANKS = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ids, scale = torch.zeros(4, 8, dtype=torch.int64), torch.ones(1)
model = torch._C._aoti.AOTIModelContainerRunnerCpu(__file__.replace("ranks.py", "model.so"), 1)
for step in range(3):
    if (dist.get_rank(), step) == (1, 2):
        model.update_constant_buffer({"embed_weight": torch.ones(100, 16)}, False, False)
        ids[2, 3] = 100
    dist.all_reduce(*model.run([ids, scale]))
"""

LIBRARY_ALONE = """
import torch
ids, scale = torch.randint(0, 100, (4, 8)), torch.ones(1)
path = __file__.replace("loads.py", "model.so")
model = torch._export.aot_load(path, "cpu")
model(ids, scale)
ids[2, 3] = 100
torch._C._aoti.AOTIModelContainerRunnerCpu(path, 1).run([ids, scale])
"""


def started(folder: Path, command: str, *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("AOTI_DEBUG_")}
    return subprocess.run(
        [sys.executable, "-m", "aoti_debug", command, *words],
        cwd=folder,
        env={**kept, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def triaged(folder: Path, *words: str) -> tuple[dict[str, Any], subprocess.CompletedProcess[str]]:
    done = started(folder, "triage", *words)
    return json.loads(done.stdout), done


@pytest.mark.slow
def test_results_that_are_not_finite(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(NOT_FINITE)
    finding, done = triaged(tmp_path, "--json", "--no-compare", "-m", "serve", "--port", "80", "-v")
    assert done.returncode == 1
    assert "-3 nan ['--port', '80', '-v']" in done.stderr  # the output of the script makes room for the JSON
    assert "4 5.0 " in done.stderr
    assert "exit code 0; call 2 of nan-" in done.stderr
    assert finding["kind"] == "nonfinite"
    assert (Path(finding["file"]).name, finding["line"]) == ("serve.py", 8)


@pytest.mark.slow
def test_an_operator_of_the_script_itself(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(RAISES)
    finding, done = triaged(tmp_path, "--json", "serve.py")
    assert done.returncode == 1
    assert "exit code 1; call 2 of raises-" in done.stderr
    assert (finding["kind"], finding["what"]) == ("fault", "ValueError: 2 rows are too few")
    assert (Path(finding["file"]).name, finding["line"]) == ("serve.py", 19)
    assert finding["confirmed_by"]
    assert (Path(finding["repro"]) / "serve_operators.py").is_file()
    runs = [json.loads(file.read_text()) for file in tmp_path.rglob("run.json")]
    assert len(runs) > 1
    assert {run["torch_settings"]["float32_matmul_precision"] for run in runs} == {"medium"}
    assert "\ntorch.set_float32_matmul_precision('medium')\n" in (Path(finding["repro"]) / "repro.py").read_text()


@pytest.mark.slow
def test_what_calls_and_inputs_share(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(STATE)
    finding, done = triaged(tmp_path, "--json", "serve.py", "alone")
    assert "call 2 of state-" in done.stderr
    assert (finding["kind"], Path(finding["file"]).name, finding["line"]) == ("nonfinite", "serve.py", 13)
    assert "3 calls, all with its inputs, show this" in finding["warnings"][0]
    finding, _ = triaged(tmp_path, "--json", "serve.py", "shared")
    assert finding["kind"] == "contract"
    assert finding["what"] == "the inputs state and x share memory, and the model writes to it"


@pytest.mark.slow
def test_a_bare_library_alone_and_in_ranks(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(LIBRARY)
    done = started(tmp_path, "exec", "serve.py")
    assert done.returncode == 1
    assert "in launch 1.0  cpp_fused_" in done.stderr
    assert "because  launch 1.0 raised an exception" in done.stderr
    run = open_run(base=tmp_path / "aoti-debug/runs")
    assert {(Path(line.file).name, line.line) for line in run.manifest.sites[0].provenance.source} >= {("serve.py", 10)}
    assert len(list(run.path.glob("process-*"))) == 1  # of the first of two loads
    assert not (run.path / "packages/libraries").exists()

    (tmp_path / "ranks.py").write_text(RANKS)
    words = ("--json", "-m", "torch.distributed.run", "--nproc-per-node", "2", "ranks.py")
    finding, done = triaged(tmp_path, *words)
    assert done.returncode == 1
    assert "exit code 1; rank 1, call 2 of model.so-" in done.stderr
    assert (finding["kind"], finding["what"]) == ("fault", "ids[2, 3] is 100, embed.weight has 100 rows")
    assert (Path(finding["file"]).name, finding["line"]) == ("serve.py", 10)
    assert finding["confirmed_by"]
    ranks = ranks_run.open_ranks(tmp_path / "aoti-debug/runs/latest")
    calls = {
        rank.number: len(rank.diagnosed.run.timeline.calls) for rank in ranks.recorded if rank.diagnosed is not None
    }
    assert calls == {0: 3, 1: 3}
    (package,) = (tmp_path / "aoti-debug/runs/latest/packages").glob("model.so-*-call-2.pt2")
    assert weights_file.REPLACED in archive.inspect(package).members
    failure = ranks_analysis.analyse(ranks).failure
    assert failure is not None
    assert failure.rank.number == 1

    alone = tmp_path / "alone"
    alone.mkdir()
    (tmp_path / "model.so").rename(alone / "model.so")
    (alone / "loads.py").write_text(LIBRARY_ALONE)
    finding, done = triaged(alone, "--json", "loads.py")
    assert done.returncode == 1
    assert done.stderr.count("aoti-debug: model.so: no wrapper source") == 1
    assert "exit code 1; call 1 of model.so-" in done.stderr
    assert finding["kind"] == "fault"
    assert "out of bounds" in finding["what"]
    assert "_embedding_" in finding["kernel"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("other.py",), "other.py does not exist"),
        (("--inputs", "x.pt", "serve.py", "--json"), "--inputs is for a MODEL.pt2"),
        (("--model", "a", "-m", "serve"), "--model is for a MODEL.pt2"),
    ],
)
def test_wrong_usage(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("serve.py").touch()
    assert main.run(["triage", *words]) == 2
    assert message in capsys.readouterr().err


STDERR = "what it wrote to stderr may say why"
GRAPHS = "if it uses torch.compile: aoti-debug triage --torch-compile serve.py --guards x"


@pytest.mark.parametrize(("code", "hint"), [(4, f"{STDERR}; {GRAPHS}"), (0, f"{GRAPHS}; otherwise {STDERR}")])
def test_a_script_without_packages(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int, hint: str
) -> None:
    """One that failed has written why, which is the first to look at."""
    monkeypatch.chdir(tmp_path)
    Path("serve.py").write_text(f"import sys\nprint(sys.argv[1:])\nsys.exit({code})\n")
    assert main.run(["triage", "--guards", "serve.py", "--guards", "x"]) == 5
    output = capfd.readouterr()
    assert output.out == "['--guards', 'x']\n"
    assert f"no call of an AOTInductor package was recorded of serve.py: exit code {code}" in output.err
    assert f"hint: {hint}\n" in output.err
    assert [path.name for path in tmp_path.iterdir()] == ["serve.py"]


@pytest.mark.parametrize(
    ("command", "words", "text", "named"),
    [
        ("triage", ("serve.py", "--verbose", "--guards=1", "x"), "", "--verbose, --guards"),
        ("triage", ("--verbose", "serve.py", "verbose"), "", ""),
        ("triage", ("serve.py", "--verbose", "--time-limit", "7"), "'verbose' + '--time_limit'", ""),
        ("exec", ("serve.py", "--level", "2"), "", "--level"),
        ("triage", ("-m", "serve", "--verbose"), "", ""),
    ],
)
def test_an_option_that_only_the_script_gets(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    words: tuple[str, ...],
    text: str,
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("serve.py").write_text(f"import sys\n{text}\nsys.exit(2)\n")
    main.run([command, *words])
    error = " ".join(capfd.readouterr().err.split())
    said = (
        f"note: {named} behind serve.py: the script gets what stands there; options of aoti-debug come before serve.py"
    )
    assert (said in error) if named else ("behind" not in error)


@pytest.mark.parametrize(("code", "first"), [(0, ""), (3, f"{STDERR}; ")])
def test_a_script_that_writes_a_program_and_calls_none(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int, first: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.pt2").touch()
    os.utime(tmp_path / "old.pt2", (1e9, 1e9))
    lines = (
        "import zipfile",
        "with zipfile.ZipFile('my model.pt2', 'w') as saved:",
        "    saved.writestr('my model/models/model.json', '{}')",
        "with zipfile.ZipFile('not saved.pt2', 'w') as saved:",
        "    saved.writestr('not saved/archive_format', 'pt2')",
        f"raise SystemExit({code})",
    )
    Path("export.py").write_text("\n".join(lines))
    assert main.run(["triage", "export.py"]) == 5
    hint = f"hint: {first}my model.pt2 was written meanwhile: aoti-debug triage 'my model.pt2'"
    assert hint in capfd.readouterr().err
