"""What `aoti-debug exec` costs a script, beyond the build: in its calls, and as a whole.

All times are those of processors, so that other work on the machine counts little: of a call, that of the thread which
makes it; of the whole script, that of all its processes, those of aoti-debug included.

python -m benchmarks.performance.scripts [--calls N] [--tries N]
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import checkout
from benchmarks.markdown import table

_COMPILE = """
import sys, torch
from torch import nn
torch.manual_seed(0)
width, layers = int(sys.argv[1]), int(sys.argv[2])
model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width)) for _ in range(layers)))
x = torch.randn(64, width)
with torch.no_grad():
    program = torch.export.export(model.eval(), (x,))
torch._inductor.aoti_compile_and_package(program, package_path="model.pt2")
"""

_CALL = """
import sys, time, torch
width, calls = int(sys.argv[1]), int(sys.argv[3])
model = torch._inductor.aoti_load_package("model.pt2")
x = torch.randn(64, width)
torch.set_num_threads(1)
for _ in range(calls // 10):
    model(x)
began = time.thread_time()
for _ in range(calls):
    model(x)
print((time.thread_time() - began) / calls)
"""

_MODELS = {"small": (64, 4), "medium": (512, 8), "large": (1024, 16)}
_WAYS = {
    "alone": (),
    "exec": ("-m", "aoti_debug", "exec"),
    "exec, level 0": ("-m", "aoti_debug", "exec", "--level", "0"),
}


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=300)
    parser.add_argument("--tries", type=int, default=5)
    options = parser.parse_args()
    rows = []
    for name, (width, layers) in _MODELS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows.append(_row(Path(folder), name, [str(width), str(layers), str(options.calls)], options.tries))
    ratios = [f"{way} / alone: a call, all" for way in list(_WAYS)[1:]]
    table(("model", *(f"{way}: a call, all" for way in _WAYS), *ratios), rows)


def _row(folder: Path, name: str, words: list[str], tries: int) -> tuple[str, ...]:
    """The fastest of several tries of each way, taken in turns."""
    for file, text in (("compile.py", _COMPILE), ("call.py", _CALL)):
        (folder / file).write_text(text)
    _run(folder, "compile.py", *words)
    _run(folder, *_WAYS["exec"], "call.py", *words)  # instruments the package
    calls: dict[str, list[float]] = {way: [] for way in _WAYS}
    processes: dict[str, list[float]] = {way: [] for way in _WAYS}
    for _ in range(tries):
        for way, before in _WAYS.items():
            used = _seconds_of_children()
            calls[way].append(float(_run(folder, *before, "call.py", *words)))
            processes[way].append(_seconds_of_children() - used)
    cells = [f"{min(calls[way]) * 1e3:.3f} ms, {min(processes[way]):.2f} s" for way in _WAYS]
    ratios = [
        ", ".join(f"{min(found[way]) / min(found['alone']):.3f}" for found in (calls, processes))
        for way in list(_WAYS)[1:]
    ]
    return (name, *cells, *ratios)


def _seconds_of_children() -> float:
    """The processor time of the processes that were started here and have ended, and of those that they started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=checkout.environment(), capture_output=True, text=True, check=True
    )
    return done.stdout


if __name__ == "__main__":
    main()
