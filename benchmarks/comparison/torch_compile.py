"""Runs models through `torch.compile(backend="aoti_debug")`, beside AOTInductor's own package of the same graph.

usage: python -m benchmarks.comparison.torch_compile [MODEL ...] [--device cpu|cuda] [--training]

Each model has a process of its own. "equal": all outputs are those of torch's package, bit for bit. On a GPU both are
compiled with Inductor's `deterministic`: what it tunes otherwise decides in which order sums are added, and differs
from one compilation to the next.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch._inductor.config

from benchmarks import checkout

DEFAULT = (
    *("classifier", "operators", "mixer_bfloat16", "convolutions", "statistics", "functions", "encoder", "experts"),
    *("rotary", "indexing", "integers", "running", "normalised", "masks", "scalars", "losses", "windows", "complex"),
)
SIX = ("bert_float32", "gpt2_float32", "llama_bfloat16", "qwen2_float32", "vit_float32", "t5_float32")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--training", action="store_true", help="also the gradients, beside eager's")
    parser.add_argument("--one", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(measure(options.one, options.device, training=options.training))
        return 0
    from benchmarks.comparison import compare_model

    names = options.models or [name for name in (*DEFAULT, *SIX) if name in compare_model.models()]
    print("| model | graphs | in eager | equal |\n|---|---|---|---|")
    failed = 0
    for name in names:
        command = [sys.executable, "-m", "benchmarks.comparison.torch_compile", "--one", name]
        command += ["--device", options.device]
        command += ["--training"] if options.training else []
        result = subprocess.run(command, env=checkout.environment(), capture_output=True, text=True, check=False)
        row = result.stdout.strip().splitlines()[-1:] or [
            f"| {name} | | | {(result.stderr.splitlines() or [''])[-1]} |"
        ]
        print(row[0], flush=True)
        failed += not row[0].endswith("| yes |")
    print(
        f"\n{len(names) - failed} of {len(names)} without eager and equal, torch {torch.__version__}, {options.device}"
    )
    return 1 if failed else 0


def measure(name: str, device: str, *, training: bool) -> str:
    """A row of the table."""
    from aoti_debug.app.torch_compile.backend import aoti_debug
    from aoti_debug.app.torch_compile.cached_build import read_graphs
    from benchmarks.comparison import compare_model
    from benchmarks.models import planted_models

    example = compare_model.models()[name]
    model, inputs = planted_models.module_of(example, device), planted_models.inputs_of(example, device)
    with tempfile.TemporaryDirectory() as out:
        os.chdir(out)
        configs = _configs(example.configs, device)
        options = {"level": 1 if not training else 0, "out": out, "inductor_configs": configs}
        compiled = torch.compile(model, backend=aoti_debug, options=options)
        if training:
            found = {"yes" if _same_gradients(compiled, model, inputs) else "no"}
        else:
            with torch.no_grad():
                compiled(*inputs)
            folders = [Path(out) / "latest" / g.name for g in read_graphs(Path(out) / "latest") if not g.eager]
            found = {_same_outputs(folder, configs) for folder in folders}
        graphs = read_graphs(Path(out) / "latest")
    eager = [graph.eager for graph in graphs if graph.eager]
    differing = "; ".join(sorted(found - {"yes"}))
    verdict = differing or ("no" if eager else "yes")
    return f"| {name} | {len(graphs)} | {'; '.join(eager)} | {verdict} |"


def _configs(given: Mapping[str, Any], device: str) -> dict[str, Any]:
    """The settings of Inductor for both packages."""
    is_tuned = device == "cuda" and hasattr(torch._inductor.config, "deterministic")
    return {**given, **({"deterministic": True} if is_tuned else {})}


def _same_outputs(folder: Path, configs: dict[str, Any]) -> str:
    """Whether torch's own package of a program computes what the recorded one has: "yes", or "no" and why."""
    own = _own_outputs(folder, configs, "own")
    if _equal(own, _outputs(folder, "package")):
        return "yes"
    return "no" if _equal(own, _own_outputs(folder, configs, "again")) else "no; two of torch's own differ as well"


def _own_outputs(folder: Path, configs: dict[str, Any], name: str) -> list[Any]:
    """The outputs of a package that torch alone has compiled."""
    program = torch.export.load(folder / "program.pt2")
    path = str(folder / f"{name}.pt2")
    torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=configs)
    return _outputs(folder, name)


def _outputs(folder: Path, name: str) -> list[Any]:
    inputs = torch.export.load(folder / "program.pt2").example_inputs[0]
    torch.manual_seed(0)
    return list(torch._inductor.aoti_load_package(str(folder / f"{name}.pt2"))(*_copies(inputs)))


def _copies(inputs: Sequence[Any]) -> list[Any]:
    return [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]


def _equal(first: Sequence[Any], second: Sequence[Any]) -> bool:
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, second, strict=True))


def _same_gradients(compiled: Any, model: torch.nn.Module, inputs: Sequence[Any]) -> bool:
    """Whether the gradients of all parameters are eager's, but for rounding."""
    found = []
    for called in (compiled, model):
        model.zero_grad()
        result = called(*inputs)
        results = result if isinstance(result, tuple) else (result,)
        sum(r.float().square().mean() for r in results if r.is_floating_point() and r.requires_grad).backward()
        found.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    tolerances = {"rtol": 1e-3, "atol": 1e-4} if found[0][0].dtype == torch.float32 else {"rtol": 0.05, "atol": 0.01}
    return all(torch.allclose(a, b, **tolerances) for a, b in zip(*found, strict=True))


if __name__ == "__main__":
    sys.exit(main())
