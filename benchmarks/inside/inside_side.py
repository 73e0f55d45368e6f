"""Calls one example of inside.py in one way, and prints what it prints.

usage: python -m benchmarks.inside.inside_side SIDE NAME PACKAGE DEVICE BACKEND

SIDE is "eager", "package", "eager-backward" or "compiled-backward"; PACKAGE is the instrumented package of the model,
BACKEND that of torch.compile.
NAME is "prints", "inspectors", or "nan": inspectors with an input because of which one raises an exception.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

import aoti_debug
from aoti_debug.runs.run.inspector import InspectorError
from benchmarks.inside import inside_examples


def main() -> None:
    side, name, package, device, backend = sys.argv[1:]
    model = inside_examples.MODELS["prints" if name == "prints" else "inspectors"]().eval().to(device)
    x = inside_examples.nan_input(device) if name == "nan" else inside_examples.example_input(device)
    if side == "eager":
        with torch.no_grad():
            tell(model, x)
    elif side == "package":
        in_package(name, package, x)
    else:
        called = model if side == "eager-backward" else torch.compile(model, backend=backend)
        called(x.requires_grad_()).sum().backward()


def in_package(name: str, package: str, x: torch.Tensor) -> None:
    if name == "prints":
        torch._inductor.aoti_load_package(package)(x)
        if x.is_cuda:
            torch.cuda.synchronize()
        return
    with aoti_debug.inspect(package) as model:  # with the functions of inside_examples
        tell(model, x)


def tell(model: Callable[[torch.Tensor], Any], x: torch.Tensor) -> None:
    """Calls the model; prints an exception that an inspector raises."""
    try:
        model(x)
    except InspectorError as error:
        print(f"{type(error.__cause__).__name__}: {error.__cause__}")
    except ValueError as error:
        print(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
