"""The command line of a repro, its kernel's back ends, and the modes where they meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from aoti_debug.repro.templates import verdict
from aoti_debug.repro.templates.accesses import Access
from aoti_debug.repro.templates.child import ReplayReport
from aoti_debug.repro.templates.compare import compare
from aoti_debug.repro.templates.job import AS_RECORDED, DIFFERS, FAULT, Job
from aoti_debug.repro.templates.kernel import Findings, Programs, Settings
from aoti_debug.repro.templates.memory import LaunchArgument, Storage
from aoti_debug.repro.templates.options import Options, parse


@dataclass
class FakeKernel:
    """Adds `error` to its argument; the back end "exact" runs where the tensors were, "near" on the CPU."""

    error: float = 0.0
    outside: int = 0
    backends: tuple[str, ...] = ("exact", "near")
    grid: tuple[int, ...] = (4, 1, 1)
    settings: list[Settings] = field(default_factory=list)

    def default_backend(self) -> str:
        return "near"

    def device(self, backend: str, recorded: str) -> str:
        return "cpu" if backend == "near" else recorded

    def part(self, backend: str) -> Programs:
        return "any" if backend == "near" else "leading"

    def tolerance(self, backend: str) -> float:
        return 1e-3 if backend == "near" else 0.0

    def prepare(self, settings: Settings) -> None:
        self.settings.append(settings)

    def __call__(self, x: torch.Tensor) -> None:
        x += 1 + self.error

    def findings(self) -> Findings | None:
        if not self.outside:
            return Findings(remarks=("  a remark",))
        return Findings((Access("bounds", "load", argument="x", element=4, elements=4, beyond=1, count=self.outside),))

    def function_name(self, backend: str) -> str:
        return "k"

    def passed_by(self, launch: Callable[[], object]) -> Mapping[str, object]:
        return {}

    def name_arguments(self, arguments: Mapping[str, torch.Tensor]) -> None:
        assert list(arguments) == ["x"]


def job(folder: Path, kernel: FakeKernel, device: str = "cpu") -> Job:
    (folder / "tensors").mkdir(exist_ok=True)
    save_file({"x": torch.zeros(4)}, folder / "tensors" / "before_x.safetensors")
    save_file({"x": torch.ones(4)}, folder / "tensors" / "after_x.safetensors")
    argument = LaunchArgument("x", "in-out", torch.float32, (4,), (1,), "s", 2)
    return Job(lambda x: kernel(x), "0.3 k", folder, [argument], [Storage("s", 32, 0, device)], kernel=kernel)


def run(found: Job, options: Options) -> int:
    applied = options.applied(found)
    applied.prepare(options.settings(applied))
    return verdict.judge(applied, options, ReplayReport(None), applied.run(applied.memory()))


@pytest.mark.parametrize(
    ("words", "error", "code", "said"),
    [
        (
            ["--backend", "exact"],
            0.0,
            AS_RECORDED,
            "0.3 k (exact): as recorded\n  x  float32 (4,)  equal bit for bit\n",
        ),
        (["--backend", "exact"], 1e-4, DIFFERS, "0.3 k (exact): DIFFERS in x\n  x  float32 (4,)  differs in 4 of 4"),
        ([], 1e-4, AS_RECORDED, "0.3 k (near): as recorded\n  x  float32 (4,)  within 0.001: differs in 4 of 4"),
        ([], 1e-2, DIFFERS, "0.3 k (near): DIFFERS in x\n"),
    ],
)
def test_each_back_end_has_its_tolerance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], error: float, code: int, said: str
) -> None:
    found = job(tmp_path, FakeKernel(error))
    assert run(found, parse(found, words)) == code
    assert said in capsys.readouterr().out


def test_tensors_go_where_the_back_end_wants_them(tmp_path: Path) -> None:
    kernel = FakeKernel()
    found = job(tmp_path, kernel, "cuda:0")
    assert parse(found, []).applied(found).cuda_devices == []
    assert run(found, parse(found, [])) == AS_RECORDED
    (settings,) = kernel.settings
    assert (settings.backend, settings.programs, settings.extents) == ("near", (), {"x": (2, 8)})
    exact = parse(found, ["--backend", "exact"])
    if not torch.cuda.is_available():
        with pytest.raises(SystemExit, match=r"no CUDA device here \(--backend near needs none\)"):
            run(found, exact)


def test_accesses_outside_are_a_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = job(tmp_path, FakeKernel(outside=3))
    assert run(found, parse(found, [])) == FAULT
    assert capsys.readouterr().out == (
        "0.3 k: 3 out-of-bounds accesses\n"
        "out-of-bounds load from x: element 4 of 4, 1 past the end; returned 0\n"
        "  3 such accesses at this line\n"
    )


def test_programs_are_chosen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel = FakeKernel()
    found = job(tmp_path, kernel)
    options = parse(found, ["--program", "1", "--program", "2,0,1"])
    assert options.programs == ((1, 0, 0), (2, 0, 1))
    assert run(found, options) == AS_RECORDED
    assert kernel.settings[0].programs == options.programs
    assert capsys.readouterr().out.endswith("0.3 k: 2 programs of the grid ran: outputs not compared\n")
    assert parse(found, options.words()) == options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--backend", "other"], "invalid choice: 'other'"),
        (["--program", "1", "--backend", "exact"], "--program: the back end exact runs the whole grid"),
        (["--program", "1", "--repeat", "3"], "--program cannot be combined with"),
        (["--program", "-1"], "one to three numbers"),
        (["--program", "x"], "invalid _program value"),
        (["--repeat", "1"], "N must be 2 or more"),
        (["--poison", "--bench"], "not allowed with argument"),
        (["--sanitize", "synccheck"], "invalid choice"),
    ],
)
def test_wrong_command_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    with pytest.raises(SystemExit) as caught:
        parse(job(tmp_path, FakeKernel()), words)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err


def test_help_names_the_exit_codes_and_what_is_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dataclasses import replace

    found = replace(job(tmp_path, FakeKernel()), libraries=("/opt/100%/lib.so",))
    with pytest.raises(SystemExit) as caught:
        parse(found, ["--help"])
    assert caught.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "0 as recorded; 10 differs; 11 a fault; 12 the recorded fault was not reproduced" in said
    assert "/opt/100%/lib.so" in said
    assert "--report" not in said


def test_a_tolerance_counts_steps_of_the_dtype_too() -> None:
    one = torch.tensor([1.0, 300.0], dtype=torch.bfloat16)
    next_one = torch.tensor([1.0078125, 302.0], dtype=torch.bfloat16)
    assert compare(next_one, one, 1e-6).passes
    assert not compare(next_one, one).passes
    assert not compare(torch.tensor([float("nan")]), torch.tensor([1.0]), 1e-3).passes
    assert compare(torch.tensor([float("nan")]), torch.tensor([float("nan")]), 1e-3).passes
    assert not compare(torch.tensor([2]), torch.tensor([1]), 1e-3).passes
    assert compare(torch.tensor([1 + 1e-5 + 2j]), torch.tensor([1 + 2j]), 1e-3).passes


@pytest.mark.parametrize(("gpus", "device"), [(1, "cuda:0"), (3, "cuda:0"), (4, "cuda:3"), (0, "cuda:3")])
def test_what_lay_on_a_gpu_that_is_not_here_goes_to_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, device: str
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    assert job(tmp_path, FakeKernel(), "cuda:3").on_available_gpus().cuda_devices == [device]
