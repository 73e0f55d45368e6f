"""Compares one model for compare.py, unchanged and with wrong kernels, and prints the results as JSON lines.

usage: python -m benchmarks.comparison.compare_model MODEL [--device cpu|cuda] [--planted N] [--lowerings N]
    [--held-out N] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from aoti_debug.base.machine.processes import python_process
from aoti_debug.instrument.frontend.exported_program import WORKER
from aoti_debug.runs.run.protocol import PRELOADED
from benchmarks import checkout
from benchmarks.comparison.compare_bench import Bench
from benchmarks.comparison.compare_results import Clean, Found, HeldOut
from benchmarks.comparison.held_out import HeldOutBench
from benchmarks.comparison.planted import PlantedBench
from benchmarks.models import huggingface_models, ordinary_models, unusual_models
from benchmarks.models.planted_models import DIFFICULT, EXAMPLES, Example


def models() -> dict[str, Example]:
    """All models by name."""
    architectures = huggingface_models.architectures()
    return {**EXAMPLES, **DIFFICULT, **ordinary_models.ordinary(), **unusual_models.unusual(), **architectures}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--planted", metavar="N", type=int, default=0, help="edits of generated code")
    parser.add_argument("--lowerings", metavar="N", type=int, default=0, help="wrong lowerings")
    parser.add_argument("--held-out", metavar="N", type=int, default=0, help="random edits of kernels")
    parser.add_argument("--seed", metavar="N", type=int, default=0)
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = checkout.python_path()  # for the modules that `imports` name
    example = models()[options.model]
    with tempfile.TemporaryDirectory(prefix="aoti-debug-compare-") as folder:
        lowering = ("torch._inductor.compile_fx", "torch._inductor.package", WORKER)
        with python_process.forking_from(PRELOADED, lowering):
            bench = Bench(options.model, example, options.device, Path(folder))
            chance = random.Random(f"{options.seed} {options.model}")
            _print(bench.clean())
            _print_all(PlantedBench(bench).results(options.planted, random.Random(options.seed)))
            _print_all(HeldOutBench(bench).results(options.held_out, chance))
        _print_all(PlantedBench(bench).lowered_wrongly(options.lowerings, random.Random(options.seed)))
    return 0


def _print_all(results: Iterator[Found | HeldOut]) -> None:
    for result in results:
        _print(result)


def _print(result: Clean | Found | HeldOut) -> None:
    print(json.dumps({type(result).__name__: asdict(result)}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
