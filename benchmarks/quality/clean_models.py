"""Triages clean models, with calls from several threads, and counts those in which something is found.

usage: python -m benchmarks.quality.clean_models [--device cpu|cuda] [--jobs N] [--results FILE] [--table]
           [--only TEXT ...] [--models N] [--threads N] [--limit SECONDS] [--minutes M]

The models are the clean ones of tests/corpus, those of benchmarks/models/ordinary_models.py, and small ones that are
put together here at random, up to N in all (200). Each is triaged by the command line, `triage --threads 4`, in
processes of its own: it is built, run, compared with its program launch by launch, looked into for races, and called
from threads without delays and in three ways with them. All calls share the state that a model updates, so that calls
from threads race for it: that is no false finding, if it is of this state.

A line for each model is appended to FILE as JSON; those that it has already are not run again. Prints a Markdown table.
Exit code 1: something was found in a model, or one could not be triaged.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from benchmarks import cases, checkout
from benchmarks.markdown import table
from benchmarks.models import ordinary_models
from tests import native_library
from tests.corpus import cases as corpus
from tests.corpus import ops  # noqa: F401 - registers operators
from tests.corpus.case import Case

MODELS = 200
CLEAN, NOT_COMPARED = "clean", "incomplete"  # kinds of verdicts that find nothing
OF_STATE = "race of a state"


@dataclass(frozen=True)
class Clean:
    """A model without a fault.

    Attributes:
        program: exported.
        inputs: of the runs; None: those of the program.
        options: more options of `aoti-debug triage`.
        library: it needs native_library.py.
    """

    program: torch.export.ExportedProgram
    inputs: tuple[Any, ...] | None = None
    options: tuple[str, ...] = ()
    library: bool = False


class Stack(nn.Module):
    """Layers one after the other, of rows of 32 numbers."""

    def __init__(self, choices: random.Random) -> None:
        super().__init__()
        kinds: tuple[Callable[[], nn.Module], ...] = (
            lambda: nn.Linear(32, 32),
            lambda: nn.LayerNorm(32),
            nn.GELU,
            nn.Tanh,
            lambda: nn.Softmax(-1),
            lambda: nn.TransformerEncoderLayer(32, 4, 64, 0.0, batch_first=True),
            lambda: nn.Sequential(nn.Unflatten(-1, (2, 16)), nn.Flatten(-2)),
            nn.SiLU,
        )
        self.layers = nn.ModuleList([choices.choice(kinds)() for _ in range(choices.randint(3, 9))])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        for layer in self.layers:
            x = x + layer(x)
        return x, x.cumsum(-1).mean(0)


class Pictures(nn.Module):
    """Convolutions and pooling, with shortcuts."""

    def __init__(self, choices: random.Random) -> None:
        super().__init__()
        kinds: tuple[Callable[[], nn.Module], ...] = (
            lambda: nn.Conv2d(8, 8, 3, padding=1),
            lambda: nn.Conv2d(8, 8, 1),
            lambda: nn.Conv2d(8, 8, 3, padding=1, groups=8),
            lambda: nn.BatchNorm2d(8),
            lambda: nn.GroupNorm(2, 8),
            lambda: nn.MaxPool2d(3, 1, 1),
            lambda: nn.AvgPool2d(3, 1, 1),
            nn.ReLU,
            nn.Hardswish,
        )
        self.begin = nn.Conv2d(3, 8, 3, padding=1)
        self.layers = nn.ModuleList([choices.choice(kinds)() for _ in range(choices.randint(3, 8))])

    def forward(self, x: Tensor) -> Tensor:
        x = self.begin(x)
        for layer in self.layers:
            x = x + layer(x)
        return torch.nn.functional.adaptive_avg_pool2d(x, 2).flatten(1)


class Tokens(nn.Module):
    """An embedding, attention with a mask, and a choice of what reduces it."""

    def __init__(self, choices: random.Random) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 32)
        self.products = nn.ModuleList([nn.Linear(32, 96) for _ in range(choices.randint(1, 3))])
        self.is_causal = choices.random() < 0.5
        self.last = choices.choice(("mean", "sort", "argmax", "gather", "logsumexp"))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for product in self.products:
            q, k, v = product(x).chunk(3, -1)
            x = x + torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        if self.last == "mean":
            return x.mean(1)
        if self.last == "sort":
            return x.sort(-1).values[..., :4]
        if self.last == "argmax":
            return x.argmax(-1)
        if self.last == "gather":
            return x.gather(-1, ids.unsqueeze(-1) % 32)
        return x.logsumexp(-1)


GENERATED: tuple[type[nn.Module], ...] = (Stack, Pictures, Tokens)


def clean_models(device: str, count: int) -> dict[str, Callable[[], Clean]]:
    """What exports each, by name."""
    found: dict[str, Callable[[], Clean]] = {}
    for case in corpus.clean(device):
        if case.gpus == 1:
            found[f"corpus {case.name}"] = partial(_of_corpus, case, device)
    for name in sorted(ordinary_models.ordinary()):
        found[f"ordinary {name}"] = partial(_ordinary, name, device)
    for number in range(max(0, count - len(found))):
        kind = GENERATED[number % len(GENERATED)]
        found[f"{kind.__name__.lower()} {number}"] = partial(_generated, kind, number, device)
    return dict(list(found.items())[:count])


def _moved(values: Any, device: str) -> Any:
    return pytree.tree_map_only(Tensor, lambda value: value.to(device), values)


def _of_corpus(case: Case, device: str) -> Clean:
    example = case.make(device)
    program = torch.export.export(
        example.module.eval(), example.args, dict(example.kwargs), dynamic_shapes=example.dynamic, strict=example.strict
    )
    inputs = example.inputs if example.inputs is not None and not example.kwargs else None
    options = (*_options(case.imports, case.configs), *case.options)
    return Clean(program, inputs, options, library=case.native)


def _ordinary(name: str, device: str) -> Clean:
    torch.manual_seed(0)
    example = ordinary_models.ordinary()[name]
    module, inputs = example.module().to(device, example.dtype), _moved(example.inputs(), device)
    program = torch.export.export(module.eval(), inputs, dynamic_shapes=example.dynamic, strict=False)
    return Clean(program, options=_options(example.imports, example.configs))


def _options(imports: Sequence[str], configs: Mapping[str, Any]) -> tuple[str, ...]:
    words = [word for module in imports for word in ("--import", module)]
    words += [word for key, value in configs.items() for word in ("--inductor-config", f"{key}={value}")]
    return tuple(words)


def _generated(kind: type[nn.Module], number: int, device: str) -> Clean:
    torch.manual_seed(number)
    module = kind(random.Random(number)).to(device).eval()
    rows = (1, 3, 16, 40)[number // len(GENERATED) % 4]
    shapes = {Stack: (rows, 8, 32), Pictures: (rows, 3, 12, 12)}
    inputs = torch.randint(0, 50, (rows, 12)) if kind is Tokens else torch.rand(shapes[kind])
    return Clean(torch.export.export(module, (inputs.to(device),)))


def triage_one(name: str, device: str, threads: int) -> dict[str, Any]:
    """Exports a model and triages it, both in a folder of its own."""
    torch.set_grad_enabled(False)
    torch.ops.load_library(native_library.compiled())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = clean_models(device, 10 * MODELS)[name]()
        torch.export.save(model.program, folder / "model.pt2")
        words = ["triage", "model.pt2", "--json", "--threads", str(threads), "--out", "triages", *model.options]
        if model.library:
            words += ["--load-library", str(native_library.compiled())]
        if model.inputs is not None:
            torch.save(model.inputs, folder / "inputs.pt")
            words += ["--inputs", "inputs.pt"]
        ran = subprocess.run(
            [sys.executable, "-m", "aoti_debug", *words],
            cwd=folder,
            env=checkout.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    if ran.returncode in (0, 1, 8) and ran.stdout.strip():
        finding = json.loads(ran.stdout)
        state = sorted({*model.program.run_decompositions({}).graph_signature.buffers_to_mutate.values()})
        told = {name: finding[name] for name in ("kind", "what", "evidence", "input", "input_kind")}
        return {"code": ran.returncode, **told, "state": state}
    return {"code": ran.returncode, "kind": "not triaged", "what": ran.stderr[-400:]}


def print_table(rows: Sequence[dict[str, Any]]) -> bool:
    """Prints what became of the models of each group; True if nothing was found, and all could be triaged."""
    groups: defaultdict[str, Counter[str]] = defaultdict(Counter)
    wrong: list[dict[str, Any]] = []
    for row in rows:
        counts = groups[row["case"].split()[0]]
        if "failure" in row:
            row |= {"kind": "not triaged", "what": row["failure"], "state": []}
        kind = row["kind"] if row["kind"] in (CLEAN, NOT_COMPARED, "not triaged") else "found"
        if row["kind"] == "race" and row["input_kind"] == "buffer" and row["input"] in row["state"]:
            kind = OF_STATE
        counts[kind] += 1
        if kind not in (CLEAN, NOT_COMPARED, OF_STATE):
            wrong.append(row)
    kinds = (CLEAN, NOT_COMPARED, OF_STATE, "found", "not triaged")
    total = sum(groups.values(), Counter[str]())
    lines = [(name, str(counts.total()), *(str(counts[kind]) for kind in kinds)) for name, counts in groups.items()]
    lines.append(("all", str(total.total()), *(str(total[kind]) for kind in kinds)))
    header = (
        "clean",
        "clean as far as compared",
        "race for a state",
        "false findings",
        "not triaged",
    )
    table(("models", "", *header), lines)
    for row in wrong:
        print("; ".join([f"{row['case']}: {row['kind']}: {_one_line(row['what'])}", *row.get("evidence", ())]))
    machines = "; ".join(sorted({row["machine"] for row in rows}))
    print(f"{machines}; {sum(row['seconds'] for row in rows):.0f} s of triages")
    return not wrong


def main() -> int:
    """Triages models and prints the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", nargs="*", default=[], metavar="TEXT", help="those with this in their names")
    parser.add_argument("--models", type=int, default=MODELS)
    parser.add_argument("--threads", type=int, default=4)
    cases.add_options(parser, limit=400)
    chosen = parser.parse_args()
    names = _named(clean_models(chosen.device, chosen.models), chosen.only)
    rows = cases.run(names, chosen, lambda name: triage_one(name, chosen.device, chosen.threads))
    return 0 if print_table(rows) else 1


def _named(names: Iterable[str], parts: Sequence[str]) -> list[str]:
    return [name for name in names if not parts or any(part in name for part in parts)]


def _one_line(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    sys.exit(main())
