"""The same host as soak_host.cpp, in Python.

usage: python soak_host.py LAUNCHES PLAIN PLAIN INPUT PACKAGE LAUNCHES_OF_A_CALL PACKAGE LAUNCHES_OF_A_CALL
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path
from typing import Any

import torch

THREADS, RUNNERS, CALLS_OF_A_LOAD = 8, 4, 100


def load(path: str) -> torch._C._aoti.AOTIModelPackageLoader:
    return torch._C._aoti.AOTIModelPackageLoader(path, "model", False, RUNNERS, -1)  # noqa: FBT003 - torch names no parameter


def main() -> int:
    torch.set_num_threads(1)
    wanted, plains, (input_file, *packages) = int(sys.argv[1]), sys.argv[2:4], sys.argv[4:]
    levels = os.environ["SOAK_LEVELS"].split(",")
    given = torch._C._pickle_load_obj(Path(input_file).read_bytes())
    os.environ["AOTI_DEBUG_LEVEL"] = "0"
    expected = [load(plain).run([given])[0] for plain in plains]
    launches, number = 0, 0
    wrong: list[bool] = []
    while launches < wanted and not wrong:
        os.environ["AOTI_DEBUG_LEVEL"] = levels[number % len(levels)]
        which = number % 2
        loader = load(packages[2 * which])

        def calls(loader: Any = loader, right: torch.Tensor = expected[which]) -> None:
            for _ in range(CALLS_OF_A_LOAD // THREADS):
                if not torch.equal(loader.run([given])[0].view(torch.int32), right.view(torch.int32)):
                    wrong.append(True)

        threads = [threading.Thread(target=calls) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        launches += CALLS_OF_A_LOAD // THREADS * THREADS * int(packages[2 * which + 1])
        del loader, calls
        gc.collect()
        number += 1
        print(launches, anonymous_bytes(), len(os.listdir("/proc/self/fd")), flush=True)
    if wrong:
        print("soak_host: another output than that of the plain package", file=sys.stderr)
    return 1 if wrong else 0


def anonymous_bytes() -> int:
    """Memory of this process that belongs to no file: torch keeps the libraries of packages mapped."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


if __name__ == "__main__":
    sys.exit(main())
