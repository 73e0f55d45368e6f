"""`--sanitize`: the launch under a sanitizer in a child process, and its report by argument and element."""

from __future__ import annotations

import ast
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from . import sanitizers, verdict
from .accesses import Access, lines_of
from .child import ChildExit, ReplayReport, run_child
from .cpp_kernel import CHECKED, CppKernel
from .job import AS_RECORDED, FAILED, FAULT, Job
from .memory import Extent, LaunchMemory, extents_of, fill, locate_accesses, separate_memory
from .options import Options

TRIAL = "sanitize "  # a child's --trial; what follows names the tool
HANG_SECONDS = 900.0


def sanitize(job: Job, options: Options, report: ReplayReport) -> int:
    """Exits with 11 where the sanitizer reports something.

    Raises:
        SystemExit: no sanitizer can run this launch here; the text says why.
    """
    with tempfile.TemporaryDirectory(prefix="repro-sanitize-") as reports:
        if job.cuda_devices:
            return _cuda(job, options, report, Path(reports))
        if isinstance(job.kernel, CppKernel):
            return _cpp(job, job.kernel, options, report, Path(reports))
    what = (
        f"the back end {options.backend} checks its accesses itself"
        if options.backend
        else ("it calls torch's own code, which the repro does not compile")
    )
    raise SystemExit(f"{job.title}: no sanitizer for this launch: {what}; --poison looks for overruns")


def trial(job: Job, options: Options, report: ReplayReport) -> int:
    """Runs one launch in the child, each storage an allocation of its own."""
    tool = options.trial.removeprefix(TRIAL)
    settings = options.settings(job)
    job.prepare(replace(settings, sanitize="address" if tool == "address" else ""))
    memory = separate_memory(job.arguments, job.storages)
    _fill(job, memory, tool)
    for extent in extents_of(job.arguments, memory):
        report.send("extent", *extent.words())
    report.send("begin")
    job.run(memory)
    return AS_RECORDED


def _fill(job: Job, memory: LaunchMemory, tool: str) -> None:
    for argument in job.arguments:
        if tool == "initcheck" and argument.role == "out":
            continue
        fill(memory.views[argument.name], job.before(argument))


def _cuda(job: Job, options: Options, report: ReplayReport, reports: Path) -> int:
    tool, log = options.sanitize, reports / "report"
    before = sanitizers.command(sanitizers.find_compute_sanitizer(), tool, log)
    words = [*options.words(), "--trial", f"{TRIAL}{tool}"]
    ended = run_child(
        words, before=before, environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, text="kept", seconds=HANG_SECONDS
    )
    text = log.read_text(errors="replace") if log.exists() else ""
    name, script = f"compute-sanitizer {tool}", Path(sys.argv[0])
    accesses = sanitizers.parse_cuda_report(text)
    return _say(job, name, ended, report, accesses, _lines(script, script.name), pointers_in(script))


def _cpp(job: Job, kernel: CppKernel, options: Options, report: ReplayReport, reports: Path) -> int:
    if options.backend == CHECKED:
        raise SystemExit(f"{job.title}: the back end {CHECKED} checks its accesses itself")
    if options.sanitize != "memcheck":
        raise SystemExit(
            f"{job.title}: {options.sanitize} watches CUDA kernels; a C++ kernel has --sanitize and --repeat"
        )
    settings = options.settings(job)
    runtime = kernel.sanitizer()
    library = kernel.build(replace(settings, sanitize="address"))
    words = [*options.words(), "--trial", f"{TRIAL}address"]
    environment = sanitizers.environment(runtime, reports)
    ended = run_child(words, environment=environment, text="kept", seconds=HANG_SECONDS)
    text = "\n".join([ended.text, *(path.read_text(errors="replace") for path in sorted(reports.iterdir()))])
    source = library.with_suffix(".cpp")
    accesses = sanitizers.parse_compiler_report(text, source)
    return _say(job, "AddressSanitizer and UBSan", ended, report, accesses, _lines(source, "SOURCE"))


def _say(
    job: Job,
    name: str,
    ended: ChildExit,
    report: ReplayReport,
    accesses: Sequence[Access],
    text: Mapping[str, str],
    named: Mapping[str, str] = MappingProxyType({}),
) -> int:
    extents = [Extent.from_words(m[1:]) for m in ended.messages if m[0] == "extent"]
    report.add_child(ended)
    if ended.failed:
        print(ended.text, file=sys.stderr)
        print(f"{job.title}: the replay failed before the launch ({ended.failure_reason})")
        return FAILED
    if accesses:
        print(f"{job.title}: {name}: {len(accesses)} report{'' if len(accesses) == 1 else 's'}")
        verdict.remember(job.folder, accesses)
        for access in locate_accesses(accesses, extents, text, named):
            report.access(access)
            for line in lines_of(access):
                print(f"  {line}")
        return FAULT
    if ended.fault:
        print(f"{job.title}: {name} reported nothing; the launch ended in {ended.fault}")
        return FAULT
    print(f"{job.title}: {name} found nothing")
    return AS_RECORDED


def _lines(source: Path, name: str) -> dict[str, str]:
    """Place -> the text there: "repro.py:23" of a file that is called so."""
    text = source.read_text(encoding="utf-8", errors="replace").splitlines()
    return {f"{name}:{n}": line.strip() for n, line in enumerate(text, 1)}


def pointers_in(script: Path) -> dict[str, str]:
    """Place -> the argument whose pointer the only access on that line starts from: `tl.load(in_ptr0 + …)`."""
    text = script.read_text(encoding="utf-8", errors="replace")
    launches = [n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == "launch"]
    passed = {
        keyword.arg: keyword.value.id
        for launch in launches
        for call in ast.walk(launch)
        if isinstance(call, ast.Call)
        for keyword in call.keywords
        if isinstance(keyword.value, ast.Name)
    }
    pointers = {}
    for n, line in enumerate(text.splitlines(), 1):
        starts = {*re.findall(r"\btl\.(?:load|store|atomic_\w+)\(\s*(\w+)", line)}
        if len(starts) == 1 and (name := passed.get(starts.pop())) is not None:
            pointers[f"{script.name}:{n}"] = name
    return pointers
