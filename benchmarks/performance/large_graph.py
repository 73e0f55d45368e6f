"""Measures a comparison of a large graph: the time of each step, and memory.

usage: python -m benchmarks.performance.large_graph [--layers N]

The model is a stack of small transformer layers; 80 of them are about 6000 nodes. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
from pathlib import Path

import torch
from torch import nn

from aoti_debug.base.machine.steps import Step, StepListener, Steps
from aoti_debug.compare.compare import CompareOptions, compare
from aoti_debug.compare.compare_run import reference_of
from aoti_debug.compare.comparison import Comparison
from aoti_debug.views.report import report


class Ended(StepListener):
    """Keeps the steps that have ended."""

    def __init__(self) -> None:
        self.steps: list[Step] = []

    def finished(self, step: Step) -> None:
        self.steps.append(step)


def program(layers: int) -> torch.export.ExportedProgram:
    """The exported stack."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(32, nhead=4, dim_feedforward=64, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, num_layers=layers, enable_nested_tensor=False).eval()
    with torch.no_grad():
        return torch.export.export(model, (torch.randn(2, 16, 32),))


def measured(layers: int, folder: Path) -> tuple[Comparison, list[Step]]:
    """The comparison of the stack, and its steps."""
    torch.export.save(program(layers), folder / "model.pt2")
    ended = Ended()
    comparison = compare(CompareOptions(model=folder / "model.pt2", out=folder / "compares"), ended)
    with Steps(ended).step("report"):
        report.write(report.of_comparison(comparison), folder / "report.html")
    return comparison, ended.steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=80)
    layers = parser.parse_args().layers
    with tempfile.TemporaryDirectory() as folder:
        comparison, steps = measured(layers, Path(folder))
        reference, _ = reference_of(comparison.run)
        nodes = sum(len(graph.nodes) for graph in reference.graphs)
    coverage = comparison.coverage
    print(f"{nodes} nodes, {coverage.compared} of {coverage.launches} launches compared, torch {torch.__version__}")
    print(f"first wrong: {comparison.first_wrong and comparison.first_wrong.launch.id}\n\n| step | |\n|---|---|")
    for step in steps:
        print(f"| {step.name} | {step.seconds:.1f} s |")
    for name, who in (("this process", resource.RUSAGE_SELF), ("the largest other process", resource.RUSAGE_CHILDREN)):
        print(f"| memory of {name} | {resource.getrusage(who).ru_maxrss >> 10} MiB |")


if __name__ == "__main__":
    main()
