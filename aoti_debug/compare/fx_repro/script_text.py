"""Writes repro.py of an FX repro with its inputs, and the script that torch's minifier starts from."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from aoti_debug.base import dtypes
from aoti_debug.base.frozen import dataclass
from aoti_debug.compare.fx_repro.module_text import CLASS, ModuleText
from aoti_debug.compare.protocol.request import InputTensor
from aoti_debug.package.argument_values import is_row_major
from aoti_debug.repro import literals

if TYPE_CHECKING:
    import torch

LARGEST_TEXT = 2 << 10  # bytes of an input that a text holds
_LARGEST = 2**63 - 1  # that torch.randint takes
DIFFERS = 10  # the exit code of repro.py
SCRIPT, LAUNCHER, TENSORS = "repro.py", "minifier_launcher.py", "tensors.pt"
_BODY = '''

def load(device=None):
    """The recorded inputs in the order of `forward`, and the recorded outputs by name; None for one that was not."""
    recorded = torch.load(Path(__file__).with_name({tensors}), weights_only=True, map_location=device)
    return tuple(recorded["inputs"][name] for name in INPUTS), recorded["outputs"]


def compare(computed, expected):
    """What two tensors have in common, one line, and whether rounding explains the rest."""
    if computed.shape != expected.shape or computed.dtype != expected.dtype:
        one, other = ((str(t.dtype), list(t.shape)) for t in (computed, expected))
        return f"DIFFERS: {{one}} instead of {{other}}", False
    if torch.equal(in_bytes(computed), in_bytes(expected)):
        return "equal, bit for bit", True
    try:
        torch.testing.assert_close(computed, expected, equal_nan=True)
    except AssertionError as error:
        return "DIFFERS: " + " ".join(str(error).split()), False
    wide = torch.complex128 if computed.is_complex() else torch.float64
    difference = (computed.to(wide) - expected.to(wide)).abs().nan_to_num().max().item()
    return f"equal but for rounding: largest difference {{difference:.3g}}", True


def in_bytes(tensor):
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--compile", action="store_true", help="run it through torch.compile")
    way.add_argument("--aoti", action="store_true", help="run it through torch.export and AOTInductor")
    way.add_argument("--graph", action="store_true", help="print its FX graph")
    options = parser.parse_args()
    inputs, recorded = load()
    module = {name}().to(inputs[0].device if inputs else "cpu").eval()
    if options.graph:
        torch.fx.symbolic_trace(module).print_readable()
        return 0
    if options.compile:
        module = torch.compile(module)
    elif options.aoti:
        package = torch._inductor.aoti_compile_and_package(torch.export.export(module, inputs))
        module = torch._inductor.aoti_load_package(package)
    with torch.no_grad():
        computed = module(*inputs)
    is_right = True
    for name, value in zip(OUTPUTS, computed, strict=True):
        expected = recorded.get(name)
        text, is_equal = ("not recorded as a whole", True) if expected is None else compare(value, expected)
        print(f"{{name}}: {{text}}")
        is_right &= is_equal
    print("as recorded" if is_right else "NOT as recorded")
    return 0 if is_right else {differs}


if __name__ == "__main__":
    sys.exit(main())
'''
_LAUNCHER = '''#!/usr/bin/env python3
"""Starts torch's minifier for AOTInductor on this graph: it looks for a smaller graph that still fails.

The minifier writes into the folder minifier/ beside this script; its result is minifier/repro.py.
"""

import argparse
import os
import sys
from pathlib import Path

import torch
from torch._dynamo.repro.aoti import run_repro

from repro import {name}, load

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    about = "a graph fails if it computes wrong numbers, not if compiling or running it raises an exception"
    parser.add_argument("--accuracy", action="store_true", help=about)
    accuracy = parser.parse_args().accuracy
    sys.argv[1:] = []
    inputs, _ = load()
    exported = torch.export.export({name}().to(inputs[0].device if inputs else "cpu").eval(), inputs)
    folder = Path(__file__).resolve().parent / "minifier"
    folder.mkdir(exist_ok=True)
    os.chdir(folder)
    settings = {{"aot_inductor.package": True}}
    try:
        with torch.no_grad():
            run_repro(exported, config_patches=settings, command="minify", accuracy=accuracy, save_dir=".")
    except RuntimeError as error:
        if "did not fail" not in str(error):
            raise
        sys.exit("this graph does not fail here: there is nothing to make smaller; --accuracy looks for wrong numbers")
'''


def script_text(
    module: ModuleText,
    header: Sequence[str],
    settings: Sequence[str],
    imports: Sequence[str],
    libraries: Sequence[str],
) -> str:
    """The text of repro.py.

    Args:
        header: lines that say what it is and where it comes from.
        settings: statements that make torch compute as it did in the run.
        imports: Python modules that register operators.
        libraries: shared libraries that do, beside the script or by their paths.
    """
    title, *rest = header
    statements = [f"import {name}" for name in sorted({"argparse", "sys", *standard_modules(module.imports)})]
    statements += ["from pathlib import Path", "", "import torch"]
    statements += [f"import {name}" for name in torch_modules(module.imports)]
    if imports or libraries:
        loads = [
            *(f"import {name}" for name in imports),
            *(f"torch.ops.load_library({literals.text(x)})" for x in libraries),
        ]
        statements += ["", "try:", *(f"    {line}" for line in loads), "except (ImportError, OSError) as error:"]
        statements += ['    sys.exit(f"{error}: it registers operators; put it beside this script, or on PYTHONPATH")']
    statements += ["", *settings] if settings else []
    documentation = "\n".join([title, "", *rest]).replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return "".join(
        [
            f'#!/usr/bin/env python3\n"""{documentation}\n"""\n\n',
            "\n".join(statements),
            f"\n\nINPUTS = {_names(module.inputs)}\nOUTPUTS = {_names(module.outputs)}\n\n\n",
            module.source,
            _BODY.format(name=CLASS, tensors=literals.text(TENSORS), differs=DIFFERS),
        ]
    )


def launcher_text() -> str:
    """The text of minifier_launcher.py."""
    return _LAUNCHER.format(name=CLASS)


def _names(names: Iterable[str]) -> str:
    return f"[{', '.join(literals.text(name) for name in names)}]"


@dataclass(frozen=True)
class Surroundings:
    """The things of the user that a script needs to compile a part of a program as it was.

    Attributes:
        configs: settings of Inductor.
        folders: of modules of the user's that are not installed.
        imports, libraries: modules and libraries that register operators, lowerings and passes.
    """

    configs: Mapping[str, Any] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()


def user_statements(around: Surroundings) -> list[str]:
    """The statements of a script that find and import the user's modules, and load libraries with operators."""
    lines = [f"sys.path[1:1] = [{', '.join(map(literals.text, around.folders))}]"] if around.folders else []
    lines += [f"import {name}" for name in around.imports]
    return lines + [f"torch.ops.load_library({literals.text(path)})" for path in around.libraries]


def standard_modules(imports: Sequence[str]) -> list[str]:
    """The imported modules that belong to the standard library."""
    return [name for name in imports if not name.startswith("torch")]


def torch_modules(imports: Sequence[str]) -> list[str]:
    """The imported modules that belong to torch."""
    return [name for name in imports if name.startswith("torch")]


def describe(value: torch.Tensor) -> InputTensor:
    """The type and the range of a tensor, and its elements if these are few."""
    import torch

    dtype = dtypes.bare_name(value.dtype)
    is_integer = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
    numbers = value.cpu().numpy() if is_integer and value.numel() else None  # torch has no limits of uint16
    smallest, largest = (0, 0) if numbers is None else (int(numbers.min()), int(numbers.max()))
    data = ""
    if 0 < value.numel() * value.element_size() <= LARGEST_TEXT:
        plain = value.detach().resolve_conj().cpu().contiguous().reshape(-1).view(torch.uint8)
        data = base64.b64encode(plain.numpy().tobytes()).decode()
    return InputTensor(
        dtype=dtype,
        shape=tuple(value.shape),
        strides=tuple(value.stride()),
        smallest=smallest,
        largest=largest,
        data=data,
    )


def input_text(tensor: InputTensor, device: str) -> str:
    """The expression of an input: with its elements if these are known, else random, of the same layout and range."""
    shape, dtype = list(tensor.shape), f"torch.{tensor.dtype}"
    if tensor.data:
        bytes_ = f"bytearray(base64.b64decode({literals.text(tensor.data)}))"
        value = f"torch.frombuffer({bytes_}, dtype={dtype}).reshape({shape})"
    elif tensor.dtype == "bool":
        value = f"torch.randint(0, 2, {shape}).bool()"
    elif "int" in tensor.dtype:
        value = f"torch.randint({tensor.smallest}, {min(tensor.largest + 1, _LARGEST)}, {shape}).to({dtype})"
    else:
        value = f"torch.randn({shape}).to({dtype})"
    if device != "cpu":
        value += f".to({literals.text(device)})"
    is_expanded = any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.strides, strict=True))
    if not is_expanded and not is_row_major(tensor.shape, tensor.strides):
        layout = f"{shape}, {list(tensor.strides)}, dtype={dtype}, device={literals.text(device)}"
        value = f"torch.empty_strided({layout}).copy_({value})"
    return value
