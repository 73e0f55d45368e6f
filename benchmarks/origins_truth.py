"""Whether the planted faults of benchmarks/origins.py are faults: runs packages as torch compiled them.

usage: python benchmarks/origins_truth.py FOLDER < NAMES OF CASES, one a line

Prints one JSON object a line: what came of the inputs as they should be, with the innocent numbers, and with all.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch._inductor.package  # before the forks: each would import it
from origins_programs import BY_NAME, PROGRAMS, files_of
from planted_origins import OPERATORS, Case, Element, inputs_of, model_of, of_model

LIMIT = 120  # seconds, for one run
FINE = "fine"


def outcome(case: Case, elements: tuple[Element, ...], folder: Path) -> str:
    """FINE, the exception's text, or the signal that ended the process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        signal.alarm(LIMIT)
        os.write(write, _run(case, elements, folder).encode()[:2000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    return signal.Signals(os.WTERMSIG(status)).name if os.WIFSIGNALED(status) else said


def _run(case: Case, elements: tuple[Element, ...], folder: Path) -> str:
    program = PROGRAMS[case.program]
    try:
        package = torch._inductor.aoti_load_package(str(files_of(case, folder).package), run_single_threaded=True)
        changed = {element.tensor for element in of_model(case, program)}
        if changed:
            model = model_of(program, tuple(e for e in elements if e.tensor in changed))
            constants = {**dict(model.named_buffers()), **dict(model.named_parameters())}
            package.load_constants(constants, check_full_update=False)
        with torch.no_grad():
            package(*inputs_of(program, tuple(e for e in elements if e.tensor in program.names)))
    except Exception as error:  # noqa: BLE001 - what is looked for
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0] if lines else ''}"
    return FINE


def main() -> None:
    importlib.import_module(OPERATORS)
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    for name in sys.stdin.read().splitlines():
        case = BY_NAME[name]
        seen = {"case": name, "all": outcome(case, (*case.planted, *case.innocent), folder)}
        if case.planted:
            seen["good"] = outcome(case, (), folder)
        if case.innocent:
            seen["innocent"] = outcome(case, case.innocent, folder)
        print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    main()
