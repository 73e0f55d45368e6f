"""What a case of the corpus is: a small model, what is wrong with it, and what a triage has to say of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

MARK = "# origin"
GENERATED = ("cpp_fused_*", "triton_*")
BOTH = ("cpu", "cuda")
CPU = ("cpu",)
CUDA = ("cuda",)


@dataclass(frozen=True)
class Example:
    """A model and what it is exported with.

    Attributes:
        dynamic: dynamic shapes, as torch.export takes them.
        inputs: arguments of the triage's run, where they are not those of the export.
        strict: as torch.export takes it; only a strict export knows the lines inside of branches and loops.
    """

    module: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    dynamic: Any = None
    inputs: tuple[Any, ...] | None = None
    strict: bool = False


Make = Callable[[str], Example]  # takes the device: "cpu", "cuda"


@dataclass(frozen=True)
class Expected:
    """What the verdict has to be.

    Attributes:
        kind: as in the triage's JSON.
        kernels: patterns; the blamed launch's kernel or operator fits one.
        arguments: patterns of the argument's name; none: any.
        inputs: model inputs or weights that count as the origin. The model's lines marked `# origin` always do.
        call: the model call in which it happens.
        says: parts of sentences; each is in one of the evidence.
        confirmed: whether something must have confirmed it: "" no, "*" anything, or a pattern.
    """

    kind: str
    kernels: tuple[str, ...] = ("*",)
    arguments: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    call: int = 0
    says: tuple[str, ...] = ()
    confirmed: str = ""


@dataclass(frozen=True)
class Case:
    """
    Attributes:
        make: builds the model, the same every time.
        expected: None for a clean model.
        devices: where the case makes sense.
        options: more options of `aoti-debug triage`.
        configs: Inductor settings.
        imports: modules with the model's operators.
        native: whether the model uses the operators of native_library.py.
        gpus: how many it takes on CUDA.
        not_compared: of a clean model, a part of the reason why not all is compared; "" if all is.
    """

    name: str
    make: Make
    expected: Expected | None = None
    devices: tuple[str, ...] = BOTH
    options: tuple[str, ...] = ()
    configs: Mapping[str, Any] = field(default_factory=dict)
    imports: tuple[str, ...] = ("tests.corpus.ops",)
    native: bool = False
    gpus: int = 1
    not_compared: str = ""

    @property
    def kind(self) -> str:
        return self.expected.kind if self.expected else "clean"


class SideBySide(nn.Module):
    """Models that share nothing; the arguments are a list for each of them."""

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)

    def forward(self, arguments: Sequence[Sequence[Any]]) -> Any:
        return [model(*of) for model, of in zip(self.models, arguments, strict=True)]


def together(name: str, cases: Sequence[Case]) -> Case:
    """Clean models in one, which is triaged with the options of all; they are exported with their arguments alone."""
    assert all(case.expected is None and not (case.configs or case.not_compared) for case in cases)

    def make(device: str) -> Example:
        examples = [case.make(device) for case in cases]
        return Example(SideBySide([one.module for one in examples]), ([list(one.args) for one in examples],))

    return Case(name, make, options=tuple(word for case in cases for word in case.options))


@dataclass(frozen=True)
class Line:
    """A line of a model's source."""

    file: Path
    line: int  # from 1
    text: str


def origin_lines(module: nn.Module) -> tuple[Line, ...]:
    """The lines of a model's class that are marked as the origin of its fault."""
    file = Path(inspect.getfile(type(module))).resolve()
    lines, first = inspect.getsourcelines(type(module))
    return tuple(
        Line(file, first + offset, text.strip()) for offset, text in enumerate(lines) if text.rstrip().endswith(MARK)
    )
