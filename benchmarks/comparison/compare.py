"""Measures `aoti-debug compare`: wrong kernels that it finds, ordinary models that it calls wrong, coverage and time.

usage: python -m benchmarks.comparison.compare [--device cpu|cuda] [--jobs N] [--parts PART ...] [--only MODEL ...]
    [--json FILE]

Wrong kernels are made by editing the generated C++ between lowering and compiling, one edit in a package, or by a
module that replaces one of Inductor's lowerings. An edit that changes no value of the graph is not counted. Of the part
held-out, model, launch and edit are drawn at random (held_out_faults.py); what changes a bit of an output counts, also
where rounding explains the change and it cannot be found. Each model has a process of its own. Outputs of ordinary
models that differ from eager's, while no launch is wrong, have a column of their own. Exit code 1: a planted wrong
kernel was missed, or an ordinary model was called wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks import checkout

PARTS = ("planted", "lowerings", "held-out", "ordinary", "huggingface")
Row = dict[str, Any]


def main() -> int:
    options = _options()
    began = time.monotonic()
    chosen = _models(options.parts, options.only)
    held_out = _drawn(options) if "held-out" in options.parts else Counter()
    chosen += [name for name in held_out if name not in chosen]
    if "huggingface" in options.parts and importlib.util.find_spec("transformers") is None:
        print("transformers is not installed: no Hugging Face architecture is compared", file=sys.stderr)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = [
            row for rows in pool.map(lambda name: _measured(name, options, held_out[name]), chosen) for row in rows
        ]
    found = [row["Found"] for row in results if "Found" in row]
    clean = [row["Clean"] for row in results if "Clean" in row]
    random_edits = [row["HeldOut"] for row in results if "HeldOut" in row]
    failed = [row["failed"] for row in results if "failed" in row]
    _print_planted(found)
    _print_held_out(random_edits)
    _print_clean(clean)
    print(f"\n{time.monotonic() - began:.0f} s", *(f"failed: {name}" for name in failed), sep="\n")
    if options.json:
        Path(options.json).write_text(
            json.dumps({"planted": found, "held_out": random_edits, "clean": clean, "failed": failed}, indent=1)
        )
    right = all(row["launch"] and row["operator"] for row in found)
    return 0 if right and not failed and not any(row["wrong"] for row in clean) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="models at once")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--planted", metavar="N", type=int, default=10, help="edits for each model of that part")
    parser.add_argument("--lowerings", metavar="N", type=int, default=6, help="wrong lowerings for each such model")
    parser.add_argument("--held-out", metavar="N", type=int, default=40, help="random edits, of all models together")
    parser.add_argument("--seed", metavar="N", type=int, default=0, help="which edits are chosen")
    parser.add_argument("--only", nargs="+", metavar="MODEL", help="only these models")
    parser.add_argument("--timeout", metavar="S", type=float, default=900, help="for one model")
    parser.add_argument("--json", metavar="FILE", help="also write the results")
    return parser.parse_args()


def _drawn(options: argparse.Namespace) -> Counter[str]:
    """How many random edits each model gets."""
    from benchmarks.comparison import compare_model
    from benchmarks.models import huggingface_models

    architectures = huggingface_models.architectures()
    names = [name for name in compare_model.models() if name not in architectures]
    names = [name for name in names if not options.only or name in options.only]
    chance = random.Random(options.seed)
    return Counter(chance.choice(names) for _ in range(options.held_out))


def _models(parts: Sequence[str], only: Sequence[str] | None) -> list[str]:
    """The models of some parts, those with planted faults first: they take longest."""
    from benchmarks.comparison import compare_model
    from benchmarks.models import huggingface_models, planted_models

    examples, architectures = planted_models.EXAMPLES, huggingface_models.architectures()
    planted = "planted" in parts or "lowerings" in parts
    others = [n for n in compare_model.models() if n not in examples and n not in architectures]
    names = [
        *(examples if planted or "ordinary" in parts else ()),
        *(architectures if "huggingface" in parts else ()),
        *(others if "ordinary" in parts else ()),
    ]
    return [name for name in names if not only or name in only]


def _measured(name: str, options: argparse.Namespace, held_out: int) -> list[Row]:
    """What the process of a model prints."""
    from benchmarks.models import planted_models

    is_planted = name in planted_models.EXAMPLES
    planted = options.planted if is_planted and "planted" in options.parts else 0
    lowerings = options.lowerings if is_planted and "lowerings" in options.parts else 0
    counts = {"--planted": planted, "--lowerings": lowerings, "--held-out": held_out, "--seed": options.seed}
    arguments = [word for flag, count in counts.items() for word in (flag, str(count))]
    command = [sys.executable, "-m", "benchmarks.comparison.compare_model", name, "--device", options.device]
    command += arguments
    try:
        result = subprocess.run(
            command, env=checkout.environment(), capture_output=True, text=True, timeout=options.timeout, check=False
        )
        output, errors, code = result.stdout, result.stderr, result.returncode
    except subprocess.TimeoutExpired as expired:
        output, errors, code = str(expired.stdout or b"", "utf-8"), f"longer than {options.timeout:g} s", 1
    rows: list[Row] = [json.loads(line) for line in output.splitlines() if line.startswith('{"')]
    for row in rows:
        print(json.dumps(row), file=sys.stderr, flush=True)
    if code:
        last = (errors.strip().splitlines() or ["nothing printed"])[-1]
        print(f"{name}: {last}", file=sys.stderr, flush=True)
        rows.append({"failed": f"{name}: {last}"})
    return rows


def _print_planted(found: list[Row]) -> None:
    print("| wrong kernel | planted | launch right | operator right | named first |\n|---|---|---|---|---|")
    kinds = dict.fromkeys(row["kind"] for row in found)
    for name, rows in [*((k, [r for r in found if r["kind"] == k]) for k in kinds), ("all", found)]:
        counts = (sum(row[key] for row in rows) for key in ("launch", "operator", "first"))
        print(f"| {name} | {len(rows)} | " + " | ".join(map(str, counts)) + " |")
    if found:
        share = sum(row["launch"] and row["operator"] for row in found) / len(found)
        print(f"\nlaunch and operator right: {100 * share:.1f} % of {len(found)}")


def _print_held_out(edits: list[Row]) -> None:
    if not edits:
        return
    print("\n| random edit | changes a bit | launch found |\n|---|---|---|")
    kinds = sorted({row["kind"] for row in edits})
    for name, rows in [*((k, [r for r in edits if r["kind"] == k]) for k in kinds), ("all", edits)]:
        print(f"| {name} | {len(rows)} | {sum(row['found'] for row in rows)} |")
    print("\nnot found:")
    for row in edits:
        if not row["found"]:
            print(
                f"  {row['model']} {row['kernel']}: {row['kind']}: {row['edit']}\n    changes {row['expected']} by "
                f"{row['size']:.3g} ULP, {row['excess']:.3g} of what rounding explains; named: {row['named']}"
            )


def _print_clean(clean: list[Row]) -> None:
    print(
        "\n| ordinary model | launches | compared | bytes | independent | wrong | differs | run, level 1 | eager "
        "| compare | of run + 3 eager | memory |\n|---|---|---|---|---|---|---|---|---|---|---|---|"
    )
    for c in clean:
        allowed = c["run_seconds"] + 3 * c["eager_seconds"]
        print(
            f"| {c['model']} | {c['launches']} | {c['compared']} | {100 * c['coverage']:.1f} % "
            f"| {100 * c['independent']:.1f} % | {len(c['wrong'])} | {len(c['differing'])} | {c['run_seconds']:.2f} s "
            f"| {c['eager_seconds']:.3f} s | {c['compare_seconds']:.2f} s | {c['compare_seconds'] / allowed:.1f} "
            f"| {c['peak'] / 2**20:.0f} MiB |"
        )
    wrong = sum(bool(c["wrong"]) for c in clean)
    print(f"\ncalled wrong: {wrong} of {len(clean)} models")
    differing = [c["model"] for c in clean if c["differing"]]
    print(f"outputs that differ from eager's by more than rounding: {', '.join(differing) or 'none'}")


if __name__ == "__main__":
    sys.exit(main())
