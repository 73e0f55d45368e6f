"""Writes repro.py of an FX repro, and the script that torch's minifier starts from. Pure text generators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aoti_debug.compare.fx_repro.module_text import CLASS, ModuleText
from aoti_debug.repro import literals

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


def script_text(module: ModuleText, header: Sequence[str], imports: Sequence[str], libraries: Sequence[str]) -> str:
    """The text of repro.py.

    Args:
        header: lines that say what it is and where it comes from.
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


def user_statements(folders: Sequence[str], imports: Sequence[str], libraries: Sequence[str]) -> list[str]:
    """The statements of a script that find and import the user's modules, and load libraries with operators."""
    lines = [f"sys.path[1:1] = [{', '.join(map(literals.text, folders))}]"] if folders else []
    lines += [f"import {name}" for name in imports]
    return lines + [f"torch.ops.load_library({literals.text(path)})" for path in libraries]


def standard_modules(imports: Sequence[str]) -> list[str]:
    """The imported modules that belong to the standard library."""
    return [name for name in imports if not name.startswith("torch")]


def torch_modules(imports: Sequence[str]) -> list[str]:
    """The imported modules that belong to torch."""
    return [name for name in imports if name.startswith("torch")]
