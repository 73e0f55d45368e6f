from __future__ import annotations

from collections.abc import Sequence

from aoti_debug.package.manifest import Certainty, ModelLine, Provenance
from aoti_debug.runs.show import terminal_cells
from aoti_debug.runs.show.detail import model_lines, stack_lines, whole_stacks

MODEL, BLOCK = "/home/u/model.py", "/home/u/block.py"
TORCH = "/venv/lib/python3.11/site-packages/torch/nn"


def stack(*frames: tuple[str, int, str]) -> str:
    return "\n".join(f'  File "{file}", line {line}, in forward\n    {text}' for file, line, text in frames)


def of(source: Sequence[tuple[str, int, str]], *stacks: str) -> Provenance:
    frames = tuple(ModelLine(file, line, "forward", text) for file, line, text in source)
    return Provenance(Certainty.EXACT, source=frames, stacks=stacks)


NORM = stack((MODEL, 30, "x = self.block(x)"), (BLOCK, 7, "x = self.norm(x)"), (f"{TORCH}/norm.py", 228, "return F.n("))
ADD = stack((MODEL, 30, "x = self.block(x)"), (BLOCK, 9, "return x + y"), (f"{TORCH}/norm.py", 9, "x"))
BOTH = of([(BLOCK, 7, "x = self.norm(x)"), (BLOCK, 9, "return x + y")], NORM, ADD, NORM)


def test_one_line() -> None:
    assert model_lines(of([(BLOCK, 7, "x = self.norm(x)")]), 100) == [
        "  model      /home/u/block.py:7 in forward (exact)",
        "               x = self.norm(x)",
    ]
    assert model_lines(Provenance(Certainty.NONE), 100) == ["  model      line unknown"]


def test_lines_are_grouped_by_file_and_the_first_names_the_place() -> None:
    source = [(BLOCK, 9, "return x + y"), (MODEL, 31, "loss(x)"), (BLOCK, 7, "x = self.norm(x)")]
    assert model_lines(of(source), 100) == [
        "  model      /home/u/block.py:9 in forward (exact)",
        "                7  x = self.norm(x)",
        "                9  return x + y",
        "             /home/u/model.py",
        "               31  loss(x)",
    ]


def test_other_lines_of_the_stacks_are_grouped_by_file_the_models_own_first() -> None:
    assert stack_lines(BOTH, 100) == [
        "  stack      /home/u/model.py",
        "               30  x = self.block(x)",
        "             torch/nn/norm.py",
        "                9  x",
        "              228  return F.n(",
    ]
    assert stack_lines(of([], stack((f"{TORCH}/norm.py", 1, "x"), (MODEL, 30, "y"))), 100)[0].endswith(MODEL)
    assert stack_lines(of([(MODEL, 30, "x")], stack((MODEL, 30, "x"))), 100) == []


def test_many_lines_are_counted() -> None:
    many = of([], stack(*((f"{TORCH}/{n // 6}.py", n, "x") for n in range(20))))
    printed = stack_lines(many, 100)
    assert [line.split()[0] for line in printed if line.endswith("  x")] == [str(n) for n in range(8)]
    assert printed[-1] == "             and 12 more (--all)"


def test_long_lines_are_shortened_on_a_terminal_only() -> None:
    long = of([(BLOCK, 7, "x" * 200)], stack((MODEL, 30, "y" * 200)))
    assert max(map(len, model_lines(long, 80) + stack_lines(long, 80))) == 80
    assert "…" not in "".join(model_lines(long, terminal_cells.UNLIMITED) + stack_lines(long, terminal_cells.UNLIMITED))


def test_stacks_as_they_were_traced() -> None:
    assert whole_stacks(BOTH)[:3] == [
        "  stack",
        f'      File "{MODEL}", line 30, in forward',
        "        x = self.block(x)",
    ]
    assert sum(line == "  stack" for line in whole_stacks(BOTH)) == 3
