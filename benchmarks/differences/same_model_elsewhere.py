"""Runs one model in two places, and has `aoti-debug diff` say whether rounding explains each difference.

usage: python -m benchmarks.differences.same_model_elsewhere [--device cpu|cuda] [--jobs N] [--timeout S] [--json FILE]
    [MODEL ...]

    threads       one package, with OMP_NUM_THREADS=1 and with 2; built with cpp.dynamic_threads: Inductor writes the
                  number of threads into the kernels otherwise
    settings      the program built without options, and with cpp.simdlen=1: sums are added up in another order
    two GPUs      one package, on the first and on the second GPU (CUDA_VISIBLE_DEVICES); with --device cuda, if there
                  are two
    CPU and GPU   the program with the same weights and inputs, built for each; with --device cuda

The models are those of benchmarks/comparison/compare.py, and `reductions` of benchmarks/models/elsewhere_models.py;
those of Hugging Face need transformers. Each has a process of its own, which may take S seconds (default 170). Prints a
Markdown table, then each difference that is not explained, by name. Exit code 1: a model failed, or a launch is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import checkout

MODELS = (
    "reductions",
    "classifier",
    "operators",
    "mixer_bfloat16",
    "difficult",
    "encoder",
    "image",
    "bert_float32",
    "llama_bfloat16",
)
HUGGING_FACE = ("bert_float32", "llama_bfloat16")
CAUSES = ("rounding", "ties", "ill-conditioned", "consequence")
_ENDING = 10.0  # seconds that a model has to end after its time is over


@dataclass(frozen=True)
class Compared:
    """The comparison of a model in two places.

    Attributes:
        places: "threads", "settings", "two GPUs" or "CPU and GPU".
        paired, same: launches, and those that wrote the same bytes.
        parted: launches that wrote different results from equal inputs.
        causes: of the launches that differ, by cause.
        alone: launches of either side without a counterpart.
        listed: what is not explained, by name.
        wrong: launches that are called wrong.
        failure: why it was not compared; "" if it was.
    """

    model: str
    places: str
    paired: int = 0
    same: int = 0
    parted: int = 0
    causes: dict[str, int] | None = None
    alone: int = 0
    listed: tuple[str, ...] = ()
    wrong: int = 0
    failure: str = ""


def main() -> int:
    options = _options()
    os.environ["PYTHONPATH"] = checkout.python_path()
    if options.worker:
        for compared in _Model(options.models[0], options).compared():
            print(json.dumps(asdict(compared)), flush=True)
        return 0
    began = time.monotonic()
    chosen = [name for name in options.models if name not in HUGGING_FACE or _has_transformers()]
    if left_out := [name for name in options.models if name not in chosen]:
        print(f"transformers is not installed: without {', '.join(left_out)}", file=sys.stderr)
    with ThreadPoolExecutor(options.jobs) as pool:
        found = [row for rows in pool.map(lambda name: _in_process(name, options), chosen) for row in rows]
    _print(found)
    print(f"\n{time.monotonic() - began:.0f} s, {_versions(options.device)}")
    if options.json:
        Path(options.json).write_text(json.dumps([asdict(row) for row in found], indent=1))
    return int(any(row.failure or row.wrong for row in found))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", metavar="N", type=int, default=_jobs(), help="models at once")
    parser.add_argument("--timeout", metavar="S", type=float, default=170.0, help="seconds for one model")
    parser.add_argument("--json", metavar="FILE", help="also write the results")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _jobs() -> int:
    """How many models are compared at once: all of them if there are enough cores."""
    cores = os.cpu_count() or 1
    return len(MODELS) if cores >= 8 else max(cores // 2, 1)


def _has_transformers() -> bool:
    return importlib.util.find_spec("transformers") is not None


def _versions(device: str) -> str:
    import torch

    where = f", {torch.cuda.get_device_name(0)}" if device == "cuda" and torch.cuda.is_available() else ""
    return f"torch {torch.__version__}, {os.cpu_count()} CPU cores{where}"


def _in_process(name: str, options: argparse.Namespace) -> list[Compared]:
    """What the process of a model prints, also if it does not end well; what it has started ends with it."""
    command = [sys.executable, "-m", "benchmarks.differences.same_model_elsewhere", name, "--worker"]
    command += ["--device", options.device, "--timeout", str(options.timeout)]
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True)
        try:
            output, failure = child.communicate(timeout=options.timeout + _ENDING)[0], ""
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, failure = child.communicate()[0], f"longer than {options.timeout:g} s"
        errors.seek(0)
        lines = errors.read().strip().splitlines() or ["nothing printed"]
    rows = [Compared(**json.loads(line)) for line in output.splitlines() if line.startswith('{"')]
    if child.returncode:
        rows.append(Compared(name, "-", failure=failure or lines[-1]))
    for row in rows:
        print(
            f"{row.model}, {row.places}: {row.failure or f'{row.paired} launches, {row.same} the same'}",
            file=sys.stderr,
        )
    return rows


class _Model:
    """One model, its programs, packages and runs, in a directory of its own."""

    def __init__(self, name: str, options: argparse.Namespace) -> None:
        self._name = name
        self._device = options.device
        self._end = time.monotonic() + options.timeout
        self._folder = Path(tempfile.mkdtemp(prefix="aoti-debug-elsewhere-"))

    def compared(self) -> Iterator[Compared]:
        try:
            yield from self._compared()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _compared(self) -> Iterator[Compared]:
        builds = {
            "plain": self._build("cpu", "plain", "cpp.dynamic_threads=True"),
            "scalar": self._build("cpu", "scalar", "cpp.dynamic_threads=True", "cpp.simdlen=1"),
        }
        failure = ""
        if self._device == "cuda":
            try:
                builds["cuda"] = self._build("cuda", "cuda")
            except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch has no one class for it
                failure = f"it cannot be exported on the GPU: {str(error).splitlines()[0]}"
        threads = [{"OMP_NUM_THREADS": str(count)} for count in (1, 2)]
        yield self._row("threads", builds, ("plain", threads[0]), ("plain", threads[1]))
        yield self._row("settings", builds, ("plain", threads[0]), ("scalar", threads[0]))
        if failure:
            yield Compared(self._name, "CPU and GPU", failure=failure)
        elif self._device == "cuda":
            gpus = [{"CUDA_VISIBLE_DEVICES": name} for name in _gpus()]
            if len(gpus) > 1:
                yield self._row("two GPUs", builds, ("cuda", gpus[0]), ("cuda", gpus[1]))
            yield self._row("CPU and GPU", builds, ("plain", threads[1]), ("cuda", gpus[0]))

    def _build(self, device: str, package: str, *settings: str) -> subprocess.Popen[str]:
        """Exports the program for a device, unless that is done, and begins to build a package of it."""
        import torch

        from benchmarks.comparison.compare_model import models
        from benchmarks.models import planted_models

        self._example = models_by_name(models())[self._name]
        program = self._folder / f"program-{device}.pt2"
        if not program.exists():
            torch.export.save(planted_models.program(self._example, device), program)
        words: list[str | Path] = ["build", program, "-o", self._folder / f"{package}.pt2", "--level", "1"]
        for setting in settings:
            words += ["--inductor-config", setting]
        return self._start(words, {})

    def _row(
        self,
        places: str,
        builds: dict[str, subprocess.Popen[str]],
        a: tuple[str, dict[str, str]],
        b: tuple[str, dict[str, str]],
    ) -> Compared:
        """Compares two runs, of a package with variables of the environment each."""
        try:
            for package in dict.fromkeys((a[0], b[0])):
                self._output(builds[package], package)
            runs = [self._run(package, variables) for package, variables in (a, b)]
            said = self._output(
                self._start(["diff", *runs, "--json"], b[1] if "CUDA_VISIBLE_DEVICES" in b[1] else {}), "diff", (0, 1)
            )
            return _row_of(self._name, places, json.loads(said))
        except (_FailedError, json.JSONDecodeError) as error:
            return Compared(self._name, places, failure=str(error))

    def _run(self, package: str, variables: dict[str, str]) -> Path:
        name = "-".join((package, *variables.values()))
        folder = self._folder / "runs" / name
        if not (folder / "latest").exists():
            words: list[str | Path] = ["run", self._folder / f"{package}.pt2", "--out", folder]
            words += ["--level", "1", "--phase", "both"]
            self._output(self._start(words, {**variables, "AOTI_DEBUG_PRINT": "none"}), f"run of {package}")
        return folder / "latest"

    def _start(self, words: Sequence[str | Path], variables: dict[str, str]) -> subprocess.Popen[str]:
        imports = [word for module in self._example.imports for word in ("--import", module)]
        command = [sys.executable, "-m", "aoti_debug", *map(str, words), *imports]
        return subprocess.Popen(
            command,
            env={**os.environ, **variables},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _output(self, child: subprocess.Popen[str], what: str, codes: tuple[int, ...] = (0,)) -> str:
        """What a command prints.

        Raises:
            _FailedError: it fails, or the time of the model is over.
        """
        if child.stdout is not None and child.stdout.closed:
            if child.returncode in codes:
                return ""
            raise _FailedError(f"{what} failed, see above")
        try:
            output, errors = child.communicate(timeout=max(self._end - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired as expired:
            child.kill()
            child.communicate()
            raise _FailedError(f"{what} was not done in time") from expired
        if child.returncode not in codes:
            said = [line for line in errors.splitlines() if line.startswith("error:")] or errors.strip().splitlines()
            raise _FailedError(f"{what} failed: {said[-1] if said else f'exit code {child.returncode}'}")
        return output


class _FailedError(Exception):
    """A command that failed, in words."""


def models_by_name(others: dict[str, Any]) -> dict[str, Any]:
    """The models of other benchmarks and those of this one."""
    from benchmarks.models.elsewhere_models import ELSEWHERE

    return {**others, **ELSEWHERE}


def _gpus() -> list[str]:
    """The names of the visible GPUs for CUDA_VISIBLE_DEVICES."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]
    return names or ["0"]


def _row_of(model: str, places: str, diff: dict[str, Any]) -> Compared:
    launches, differences = diff["launches"], diff["differences"]
    causes: Counter[str] = Counter()
    listed, wrong = [], 0
    for item in differences:
        found = item["explanation"] or {"cause": "not known", "reason": diff["unexplained_reason"], "explained": False}
        causes[found["cause"]] += 1
        wrong += found["cause"] == "wrong"
        if not found["explained"]:
            sides = f" in {' and '.join(found['wrong'])}" if found.get("wrong") else ""
            listed.append(f"{item['launch']} {item['kernel']}: {found['cause']}{sides}: {found['reason']}")
    for item in diff["wrong_alone"]:
        wrong += 1
        listed.append(
            f"{item['launch']} {item['kernel']}: wrong in {item['side']}, without a counterpart: {item['reason']}"
        )
    listed += [f"{name}: an output without a counterpart" for name in diff["unpaired_outputs"]]
    listed += [f"{item['name']}: an input or weight that differs" for item in diff["inputs"]]
    listed += diff["unfinished"]
    alone = len(diff["only_a"]) + len(diff["only_b"])
    parted = sum(item["outcome"] == "parts" for item in differences)
    return Compared(
        model, places, launches["paired"], launches["same"], parted, dict(causes), alone, tuple(listed), wrong
    )


def _print(found: Sequence[Compared]) -> None:
    print(
        "| model | places | launches matched | the same | differ | first, from equal inputs | " + " | ".join(CAUSES),
        end="",
    )
    print(" | listed | without a counterpart |\n" + "|---" * (len(CAUSES) + 8) + "|")
    for row in found:
        if row.failure:
            print(f"| {row.model} | {row.places} | failed: {row.failure} |" + " |" * (len(CAUSES) + 5))
            continue
        causes = row.causes or {}
        counts = (row.paired, row.same, sum(causes.values()), row.parted, *(causes.get(cause, 0) for cause in CAUSES))
        cells = " | ".join(map(str, (*counts, len(row.listed), row.alone)))
        print(f"| {row.model} | {row.places} | {cells} |")
    for row in found:
        for line in row.listed:
            print(f"listed: {row.model}, {row.places}: {line}")


if __name__ == "__main__":
    sys.exit(main())
