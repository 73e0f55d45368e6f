"""Times calls of one package in a process of its own and prints one JSON object.

usage: python timed_calls.py PACKAGE PROGRAM.pt2 CALLS

PROGRAM is the exported program whose example inputs are used. Levels and directories come from the environment. Prints
`median_ms` and `best_ms` of a call (the device synchronised around each), `total_s` of all timed calls, and
`peak_growth_mib`, by how much the process's peak resident memory grew from the first warm-up call on.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time

import torch
from torch.export import load


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    package, program, calls = sys.argv[1], sys.argv[2], int(sys.argv[3])
    args, kwargs = load(program).example_inputs
    cuda = any(a.is_cuda for a in args)
    wait = torch.cuda.synchronize if cuda else (lambda: None)
    model = torch._inductor.aoti_load_package(package)
    with torch.no_grad():
        expected = None
        before = peak_mib()
        for _ in range(2 if calls < 10 else 10):
            expected = model(*args, **kwargs)
        wait()
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            model(*args, **kwargs)
            wait()
            times.append(time.perf_counter() - start)
    outputs = expected if isinstance(expected, (tuple, list)) else [expected]
    print(
        json.dumps(
            {
                "median_ms": 1e3 * statistics.median(times),
                "best_ms": 1e3 * min(times),
                "total_s": sum(times),
                "peak_growth_mib": peak_mib() - before,
                "checksum": [float(o.double().sum()) for o in outputs if isinstance(o, torch.Tensor)],
            }
        )
    )


if __name__ == "__main__":
    main()
