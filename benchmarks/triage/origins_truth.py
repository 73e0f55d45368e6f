"""Whether the planted faults of origins.py are faults: runs packages as torch compiled them.

usage: python -m benchmarks.triage.origins_truth FOLDER < NAMES OF CASES, one a line
       python -m benchmarks.triage.origins_truth FOLDER --claims < {"case", "tensor", "index", "value"}, one a line

Prints one JSON object a line: what came of the inputs as they should be, with the innocent numbers, and with all. With
--claims a JSON text: what comes of the model in eager with all, but this number in the place of the element's.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import torch
import torch._inductor.package  # before the forks: each would import it

from benchmarks.triage.origins_programs import BY_NAME, files_of
from benchmarks.triage.planted_origins import OPERATORS, Case, Element, inputs_of, model_of, of_model
from benchmarks.triage.planted_origins_cases import PROGRAMS

LIMIT = 120  # seconds, for one run
FINE = "fine"


def outcome(run: Callable[[], object]) -> str:
    """FINE, the exception's text, or the signal that ended the process, of a run in a process of its own."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        signal.alarm(LIMIT)
        os.write(write, _said(run).encode()[:2000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else said


def _said(run: Callable[[], object]) -> str:
    try:
        with torch.no_grad():
            run()
    except Exception as error:  # noqa: BLE001 - what is looked for
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0] if lines else ''}"
    return FINE


def run_package(case: Case, elements: tuple[Element, ...], folder: Path) -> None:
    """Runs what torch compiled; of the case's elements only these are as planted."""
    program = PROGRAMS[case.program]
    package = torch._inductor.aoti_load_package(str(files_of(case, folder).package), run_single_threaded=True)
    changed = {element.tensor for element in of_model(case, program)}
    if changed:
        model = model_of(program, elements)
        constants = {**dict(model.named_buffers()), **dict(model.named_parameters())}
        package.load_constants(constants, check_full_update=False)
    package(*inputs_of(program, elements))


def run_eagerly(case: Case, changed: Element) -> None:
    """Runs the model with all that is planted, but another number in one element."""
    program, elements = PROGRAMS[case.program], (*case.planted, *case.innocent, changed)
    model_of(program, elements)(*inputs_of(program, elements))


def _truth(name: str, folder: Path) -> dict[str, str]:
    case = BY_NAME[name]
    whole = (*case.planted, *case.innocent)
    seen = {"case": name, "all": outcome(lambda: run_package(case, whole, folder))}
    if case.planted:
        seen["good"] = outcome(lambda: run_package(case, (), folder))
    if case.innocent:
        seen["innocent"] = outcome(lambda: run_package(case, case.innocent, folder))
    return seen


def _claim(text: str) -> str:
    claim = json.loads(text)
    changed = Element(claim["tensor"], tuple(claim["index"]), claim["value"])
    return outcome(lambda: run_eagerly(BY_NAME[claim["case"]], changed))


def main() -> None:
    importlib.import_module(OPERATORS)
    torch.set_num_threads(1)
    folder, are_claims = Path(sys.argv[1]), "--claims" in sys.argv
    for line in sys.stdin.read().splitlines():
        print(json.dumps(_claim(line) if are_claims else _truth(line, folder)), flush=True)


if __name__ == "__main__":
    main()
