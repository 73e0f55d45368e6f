"""Programs that call operators of PyTorch's own database on the samples of its tests.

The database is part of torch (torch.testing._internal), whose tests need the package expecttest.
"""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
import types
import unittest
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

_TRIED = 40  # samples of an operator that are looked at
_LARGEST = 1 << 20  # elements of a tensor of a sample


class NoSamplesError(Exception):
    """An operator has no samples that a program can be made of."""


@dataclass(frozen=True)
class Target:
    """What the operators are called on.

    Attributes:
        device: "cpu" or "cuda".
        dtype: "float32"
        dynamic: sizes are symbols wherever the operators allow it.
        samples: how many of each operator.
    """

    device: str
    dtype: str
    dynamic: bool = False
    samples: int = 2

    @property
    def label(self) -> str:
        """The dtype, and whether sizes are symbols: "float32+dynamic"."""
        return self.dtype + "+dynamic" * self.dynamic

    @property
    def torch_dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.dtype)
        return found


@dataclass(frozen=True)
class Sample:
    """One call of an operator: its leaves, and how they are nested in (input, args, kwargs)."""

    leaves: tuple[Any, ...]
    spec: Any

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, Tensor))


class Operator(nn.Module):
    """Calls an operator on its samples; takes their tensors and returns those of the results."""

    def __init__(self, name: str, call: Any, samples: Sequence[Sample]) -> None:
        super().__init__()
        self.name, self.call, self.samples = name, call, tuple(samples)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        return tuple(tensor for sample in self.samples for tensor in sample.tensors)

    def forward(self, *tensors: Tensor) -> list[Tensor]:
        given, results = iter(tensors), []
        for sample in self.samples:
            leaves = [next(given) if isinstance(leaf, Tensor) else leaf for leaf in sample.leaves]
            value, args, kwargs = pytree.tree_unflatten(leaves, sample.spec)
            results += [leaf for leaf in pytree.tree_leaves(self.call(value, *args, **kwargs)) if _is_tensor(leaf)]
        return results


class Operators(nn.Module):
    """Calls operators one after the other; each has copies of its inputs, which it may overwrite."""

    def __init__(self, operators: Sequence[Operator]) -> None:
        super().__init__()
        self.operators = nn.ModuleList(operators)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given, results = iter(tensors), []
        for operator in self.operators:
            results += operator(*(tensor.clone() for tensor in itertools.islice(given, len(operator.inputs))))
        return tuple(results)


@dataclass(frozen=True)
class Program:
    """A program of several operators.

    Attributes:
        exported: the `torch.export.ExportedProgram`.
        inputs: of its call.
        outputs: the name of the operator of each output.
    """

    exported: Any
    inputs: tuple[Tensor, ...]
    outputs: tuple[str, ...]

    def fresh_inputs(self) -> tuple[Tensor, ...]:
        return copy.deepcopy(self.inputs)


def missing_package() -> str:
    """The package that the database needs and that is not installed; "" if it is."""
    return "" if importlib.util.find_spec("expecttest") is not None else "expecttest"


def stand_in() -> None:
    """Makes the database importable without expecttest, of which it uses the name of a class of tests alone."""
    if missing_package():
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].__dict__["TestCase"] = unittest.TestCase


def _database() -> Iterator[tuple[str, Any]]:
    """The operators by name, each variant with a name of its own."""
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.hop_db import hop_db

    for found in (*op_db, *hop_db):
        yield (f"{found.name}.{found.variant_test_name}" if found.variant_test_name else found.name), found


def unknown(names: Sequence[str]) -> list[str]:
    """The names that no operator has."""
    known = {name for name, _ in _database()}
    return [name for name in names if name not in known]


def names(target: Target) -> list[str]:
    """The operators that take a dtype on a device, each once, in the order of the database."""
    device = torch.device(target.device).type
    return list(
        dict.fromkeys(
            name
            for name, found in _database()
            if found.dtypes is None or target.torch_dtype in found.supported_dtypes(device)
        )
    )


def operator(name: str, target: Target) -> Operator:
    """The module that calls an operator.

    Raises:
        NoSamplesError: it has none whose tensors are dense and of an ordinary size.
    """
    found = dict(reversed(list(_database()))).get(name)
    if found is None:
        raise NoSamplesError("there is no such operator")
    torch.manual_seed(zlib.crc32(name.encode()))
    drawn = found.sample_inputs(torch.device(target.device), target.torch_dtype, requires_grad=False)
    samples = [sample for sample in map(_sample, itertools.islice(drawn, _TRIED)) if sample is not None]
    samples.sort(key=lambda sample: all(tensor.numel() < 2 for tensor in sample.tensors))  # a number alone comes last
    if not samples:
        raise NoSamplesError("no sample has dense tensors of an ordinary size")
    return Operator(name, found.op, samples[: target.samples])


def _sample(drawn: Any) -> Sample | None:
    """A sample of the database; None for one that a program cannot take."""
    leaves, spec = pytree.tree_flatten((drawn.input, drawn.args, drawn.kwargs))
    sample = Sample(tuple(leaves), spec)
    is_usual = all(tensor.layout is torch.strided and tensor.numel() <= _LARGEST for tensor in sample.tensors)
    return sample if is_usual else None


def export(operators: Sequence[Operator], target: Target) -> Program:
    """Exports a program that calls operators. Raises what torch.export does."""
    inputs = tuple(tensor for operator in operators for tensor in operator.inputs)
    automatic = torch.export.Dim.AUTO
    shapes = tuple(dict.fromkeys(range(tensor.dim()), automatic) for tensor in inputs)
    with torch.no_grad():
        exported = torch.export.export(
            Operators(operators).eval(),
            copy.deepcopy(inputs),
            dynamic_shapes={"tensors": shapes} if target.dynamic and inputs else None,
            strict=False,
        )
        outputs = [
            operator.name for operator in operators for _ in operator(*(copy.deepcopy(t) for t in operator.inputs))
        ]
    return Program(exported, inputs, tuple(outputs))


def _is_tensor(leaf: Any) -> bool:
    return isinstance(leaf, Tensor)
