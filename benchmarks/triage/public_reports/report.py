"""Public reports: a program that shows the fault of a report, and what is true of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

MARK = "# culprit"
PROGRAM, INPUTS, PACKAGE = "program.pt2", "inputs.pt", "package.pt2"
CLEAN = ("clean",)
REFUSED = ("refused_by_eager",)
# Faults that the compiler or its settings bring in: the outputs differ from eager's by more than rounding
CHANGED = ("wrong_value", "differs")


@dataclass(frozen=True)
class Example:
    """A model and what it is called with.

    Attributes:
        args: what it is exported with.
        run: what it is called with in the investigation, where that is not `args`.
    """

    module: nn.Module
    args: tuple[Any, ...]
    run: tuple[Any, ...] | None = None
    dynamic: Any = None
    strict: bool = False

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self.args if self.run is None else self.run

    def named(self) -> dict[str, Tensor]:
        """The tensors that the model reads, by the names that its author knows: inputs, weights and buffers."""
        names = list(inspect.signature(self.module.forward).parameters)
        inputs = {name: value for name, value in zip(names, self.inputs, strict=False) if isinstance(value, Tensor)}
        return {**dict(self.module.named_parameters()), **dict(self.module.named_buffers()), **inputs}


@dataclass(frozen=True)
class Report:
    """A report of https://github.com/pytorch/pytorch/issues, as a small program, and the truth about it.

    Attributes:
        number: of the issue; 0 of a program of our own about the same rule, which `part` names.
        title: what is wrong, in our words.
        make: builds the program, the same every time.
        plain: what the program does in eager and as a package that torch compiles alone: a key of
            `benchmarks.triage.public_reports.build.PLAIN`, checked with `--truth`.
        kinds: of verdicts that are right.
        operators: patterns (re) of which one names the operator that is to blame; empty: no operator is.
        elements: the input elements that are to blame: "rows[1]"; a bare name stands for any of its elements.
        false: patterns (re) of sentences that are wrong.
        command: what is asked: a key of `benchmarks.triage.public_reports.answers.COMMANDS`.
        part: tells programs of one report apart.
        plant: of `benchmarks.triage.public_reports.planted`; the fault of a version of torch that does not have it any
            more.
        configs: settings of Inductor.
        options: more words of the command line.
        drive: what a script does with its package, whose path it is given, and with the example; it returns results.
            Of the commands "script" and "torch_compile" only.
    """

    number: int
    title: str
    make: Callable[[], Example]
    plain: str
    kinds: tuple[str, ...]
    operators: tuple[str, ...] = ()
    elements: tuple[str, ...] = ()
    false: tuple[str, ...] = ()
    command: str = "triage"
    part: str = ""
    plant: str = ""
    configs: Mapping[str, Any] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    drive: Callable[[str, Example], Any] | None = None

    @property
    def name(self) -> str:
        return f"{self.number or ''}{self.part}".removeprefix("-")

    @property
    def is_clean(self) -> bool:
        return "clean" in self.kinds


@dataclass(frozen=True)
class Line:
    """A line of a model's source, from 1."""

    file: Path
    line: int
    text: str


def culprits(module: nn.Module) -> tuple[Line, ...]:
    """The lines of a model's class that are marked as to blame."""
    file = Path(inspect.getfile(type(module))).resolve()
    lines, first = inspect.getsourcelines(type(module))
    return tuple(
        Line(file, first + offset, text.split(MARK)[0].strip())
        for offset, text in enumerate(lines)
        if text.rstrip().endswith(MARK)
    )
