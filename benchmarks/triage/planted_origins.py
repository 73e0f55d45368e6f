"""What a planted fault of origins.py is: a small program, and the elements that make it fail."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

FAULT, MADE = "# fault", "# made"  # in marked lines of a model
FAR = 1 << 36  # rows: an address that is mapped nowhere
UNCHECKED: Mapping[str, Any] = {"assert_indirect_indexing": False}  # Inductor's own checks of indices left out
SEPARATE: Mapping[str, Any] = {"max_fusion_size": 1}  # each operator is a launch
OPERATORS = "benchmarks.triage.planted_origins_operators"  # the module of the custom operators


@dataclass(frozen=True)
class Element:
    """A number that is put into an input or a buffer.

    Attributes:
        tensor: the parameter of `forward`, or the qualified name of the buffer.
    """

    tensor: str
    index: tuple[int, ...]
    value: float


@dataclass(frozen=True)
class Program:
    """A model with inputs that it takes.

    Attributes:
        inputs: in the order of `forward`, always the same; no test of the model fails with them.
        configs: Inductor settings.
        strict: as torch.export takes it; only a strict export knows the lines inside of branches and loops.
    """

    make: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]
    configs: Mapping[str, Any] = field(default_factory=dict)
    strict: bool = False
    dynamic: Any = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(inspect.signature(self.make().forward).parameters)

    def lines(self, mark: str, part: str = "") -> frozenset[tuple[str, int]]:
        """Name of the file and line of the model's lines with a mark, and with this part."""
        kind = type(self.make())
        source, first = inspect.getsourcelines(kind)
        file = Path(inspect.getfile(kind)).name
        return frozenset((file, first + n) for n, line in enumerate(source) if mark in line and part in line)


@dataclass(frozen=True)
class Case:
    """A planted fault.

    Attributes:
        program: a name of PROGRAMS.
        planted: without them nothing fails; () if the model itself makes the bad value.
        innocent: other numbers that look bad; nothing fails because of them.
        is_element: whether the origin is an element of what comes in; otherwise it is a line of the model, and naming
            the planted element is right but not asked for.
        line: part of the line that fails, where several lines of the model are marked.
        is_compiled: triaged as a package that torch compiled, without the exported program.
    """

    name: str
    program: str
    planted: tuple[Element, ...] = ()
    innocent: tuple[Element, ...] = ()
    is_element: bool = True
    line: str = ""
    is_compiled: bool = False

    def __post_init__(self) -> None:
        if self.is_element and not self.planted:
            raise ValueError(f"{self.name}: there is no element that is the origin")

    @property
    def origins(self) -> frozenset[tuple[str, tuple[int, ...]]]:
        """The elements of inputs and buffers that may be called the origin."""
        return frozenset((e.tensor, e.index) for e in self.planted)


def at(tensor: str, *index_and_value: float) -> tuple[Element, ...]:
    """One element: its coordinates, then its value. `at("index", 3, 0, 99)` is index[3, 0] = 99."""
    *index, value = index_and_value
    return (Element(tensor, tuple(int(i) for i in index), value),)


def ids(*shape: int, below: int = 50, dtype: torch.dtype = torch.int64) -> Tensor:
    """Integers in a varied order."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * 7 + 3) % below).to(dtype).reshape(shape)


def numbers(*shape: int) -> Tensor:
    """Small numbers of both signs, all different."""
    return torch.linspace(-1, 1, torch.Size(shape).numel()).reshape(shape)


def hashed(*shape: int) -> Tensor:
    """Large integers, as a feature store hashes names."""
    return ids(*shape, below=997) * 1_000_003 + 123_456_789


class Table(nn.Module):
    """A table of 50 rows."""

    def __init__(self, rows: int = 50, width: int = 8) -> None:
        super().__init__()
        self.table = nn.Parameter(numbers(rows, width))


def with_elements(tensor: Tensor, name: str, elements: tuple[Element, ...]) -> Tensor:
    """A copy of a tensor with those elements that are for it."""
    changed = tensor.detach().clone()
    for element in elements:
        if element.tensor == name:
            changed[element.index] = element.value
    return changed


def inputs_of(program: Program, elements: tuple[Element, ...]) -> tuple[Tensor, ...]:
    """The program's inputs with some elements changed."""
    return tuple(with_elements(x, n, elements) for n, x in zip(program.names, program.inputs(), strict=True))


def model_of(program: Program, elements: tuple[Element, ...]) -> nn.Module:
    """The program's model with some elements of buffers and parameters changed."""
    torch.manual_seed(0)
    model = program.make().eval()
    for name, tensor in (*model.named_buffers(), *model.named_parameters()):
        tensor.data = with_elements(tensor.data, name, elements)
    return model


def of_model(case: Case, program: Program) -> tuple[Element, ...]:
    """The case's elements that lie in buffers and parameters."""
    return tuple(e for e in (*case.planted, *case.innocent) if e.tensor not in program.names)
