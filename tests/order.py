"""The order of the tests: each worker begins with files that take long, so that none is left with one at the end."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

# Longest first. Three workers begin with files of which only the first needs what torch finds out about the machine and
# the precompiled headers: the others would wait, or make the same.
LONGEST = (
    *("repro/test_execution.py", "runtime_shims/test_sanitizers.py", "runtime_shims_cuda/test_cuda_ptx.py"),
    *("corpus/test_corpus.py", "triage/test_torture.py", "runtime_shims/test_device.py"),
    *("app/cli/commands/test_exec.py", "app/execute/test_triage_script.py"),
    *(
        "instrument/frontend/test_compiled_package.py",
        "end_to_end/test_every_package.py",
        "instrument/builder/test_build.py",
    ),
    # The last of these waits for processes that hang.
    *("compare/test_compiled_packages.py", "end_to_end/test_ranks.py", "instrument/frontend/test_exported_program.py"),
    *("end_to_end/test_inspected_models.py", "end_to_end/test_examples.py"),
    *("views/report/test_browser.py", "compare/fx_repro/test_fx_repro.py", "runtime_shims/test_journal_blocks.py"),
    *("end_to_end/test_stripped_packages.py", "triage/test_compiled_package.py", "end_to_end/test_prints.py"),
    *("views/report/test_diff_page.py", "repro/test_reduce.py", "end_to_end/test_inside_examples.py"),
    *("repro/test_triton_recorded.py", "repro/test_sanitize.py", "base/native/test_crash_stacks.py"),
    *("compare/test_bad_input.py", "repro/test_replay.py", "runs/run/test_inspector.py"),
    *(
        "instrument/builder/compiling/test_compile_library.py",
        "package/printing/test_inspectors.py",
        "repro/test_run_repro.py",
    ),
    *("attacks/test_report_page.py", "compare/test_compare.py"),
    *(
        "instrument/builder/compiling/test_regex_templates.py",
        "compare/regions/test_program_calls.py",
        "instrument/frontend/worker/test_lower.py",
    ),
    *("runs/run/test_runner.py", "compare/what_if/test_replay.py", "end_to_end/test_inspections.py"),
    *(
        "triage/contracts/test_contracts.py",
        "app/torch_compile/test_backend.py",
        "compare/bisect/test_bisect.py",
    ),
    *("triage/nonfinite/test_nonfinite_model.py", "triage/memory_errors/test_uninitialised.py"),
)


def beginning(sizes: Sequence[int], share: float) -> int:
    """The number of the first of some parts before which lies a share of all."""
    sums = [0, *itertools.accumulate(sizes)]
    return next(number for number, before in enumerate(sums) if before >= share * sums[-1])


def dealt(tests: Sequence[T], file_of: Callable[[T], str], workers: int) -> list[T]:
    """All tests: the longest files in turn to each worker, whose share is filled up with the others.

    xdist gives each worker a part of the list, of equal length; an idle worker takes over from the end of a part.

    Args:
        file_of: the path of a test's file, below tests/.
    """
    of_file: dict[str, list[T]] = {}
    for test in tests:
        of_file.setdefault(file_of(test), []).append(test)
    shares: list[list[T]] = [[] for _ in range(workers)]
    for number, long in enumerate(LONGEST):
        shares[number % workers] += of_file.pop(long, [])
    others = [test for file in of_file.values() for test in file]
    length = -(-len(tests) // workers)
    ordered: list[T] = []
    for share in shares:
        room = max(length - len(share), 0)
        ordered += [*share, *others[:room]]
        del others[:room]
    return ordered + others
