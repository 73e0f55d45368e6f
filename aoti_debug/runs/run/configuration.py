"""The package that is run and its settings: level, request, environment, and run.json as it is at the start."""

from __future__ import annotations

import os
from datetime import datetime
from importlib import metadata
from pathlib import Path

from aoti_debug.base.abi import Level, Variable
from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import current_rank
from aoti_debug.base.machine.current_rank import Rank
from aoti_debug.base.version import __version__
from aoti_debug.package import recording_settings
from aoti_debug.package.manifest import MEMBER, Manifest
from aoti_debug.package.pt2 import archive, trust
from aoti_debug.package.pt2.archive import ArtifactKind
from aoti_debug.runs.run import options as run_options
from aoti_debug.runs.run.options import RunOptions, Shown
from aoti_debug.runs.run.protocol import InterposedLibraries, RunRequest
from aoti_debug.runs.rundir import ranks_directory, run_directory, run_json
from aoti_debug.runs.rundir.run_json import RankInfo, RunInfo


@dataclass(frozen=True)
class RunTarget:
    """A model that can be run.

    Attributes:
        text: the manifest as it is written to the run directory.
        interposed: None for an instrumented package.
    """

    manifest: Manifest
    text: bytes
    interposed: InterposedLibraries | None


def run_target(path: Path, model: str, *, trusted: bool) -> RunTarget:
    """Reads a package, and prepares the interposing libraries of one without wrapper source.

    Args:
        model: the name of the model in a compiled package with several; "" for the only one.
        trusted: it may run even if it was not made on this account.

    Raises:
        ArtifactError: it cannot be run.
        UsageError: it holds several models, or none of that name; or it is not trusted.
        ToolchainError: the interposing libraries do not compile.
    """
    package = archive.inspect(path)
    if not package.is_stripped(model):
        archive.require_kind(package, ArtifactKind.INSTRUMENTED)
        trust.require(package, trusted=trusted)
        return RunTarget(package.manifest(), package.read(MEMBER), None)
    trust.require(package, trusted=trusted)
    from aoti_debug.runs.run.interposer import prepare  # compiles; most packages have a source

    interposition = prepare(package, archive.resolve_model(package, model))
    libraries = InterposedLibraries(str(interposition.front), str(interposition.recorder), interposition.manifest.model)
    return RunTarget(interposition.manifest, interposition.text.encode(), libraries)


HOST = "aoti-debug run"


def check_level(manifest: Manifest, options: RunOptions) -> None:
    """Checks that the level in force is one that the options work at.

    Raises:
        UsageError: it is 0, and an option needs another one.
    """
    needs = (  # what each does at a level above 0
        (options.guards, "--guards", "which checks the guards"),
        (options.watch, "--watch", "which looks at launches"),
        (options.summaries, "--summaries", "which measures tensors"),
        (options.inspector, "--inspect", "which sees launches"),
        (options.stall, "--stall", "which records progress"),
    )
    for is_given, option, what in needs:
        if is_given and level_in_force(manifest, options) == 0:
            raise UsageError(f"{option} needs a level above 0, {what}", hint="--level 3 records launches")


def check_device(manifest: Manifest, options: RunOptions) -> None:
    """Checks that the model runs on the device that the options are for.

    Raises:
        UsageError: it runs on a CPU, and replays of a CUDA graph are to be measured, or the GPU's core dump is wanted.
    """
    if options.gpu_core and manifest.device != "cuda":
        raise UsageError(
            f"{options.package.name} runs on a CPU: there is no core dump of a GPU",
            hint="without --gpu-core it is run; `ulimit -c unlimited` lets the system write core files of processes",
        )
    if options.device_times is not None and options.device_times.replays and manifest.device != "cuda":
        raise UsageError(
            f"{options.package.name} runs on a CPU: no CUDA graph can capture it",
            hint="without --cuda-graph its calls are measured",
        )


def run_info(manifest: Manifest, options: RunOptions) -> RunInfo:
    """The information on a run that is known before its process starts."""
    poison = run_json.poison_in_force(options.poison, guards=options.guards)
    return RunInfo(
        tool_version=__version__,
        torch_version=installed_torch(),
        pid=os.getpid(),
        started=datetime.now().astimezone().isoformat(timespec="seconds"),
        level=level_in_force(manifest, options),
        filters=manifest.filters if options.filters is None else options.filters,
        module_filters=manifest.module_filters if options.modules is None else options.modules,
        line_filters=manifest.line_filters if options.lines is None else options.lines,
        phase=options.phase or "",
        device=manifest.device,
        command=run_options.command(options),
        host=HOST,
        calls=options.calls,
        imports=tuple(dict.fromkeys((*manifest.imports, *options.user_code.imports))),
        libraries=tuple(dict.fromkeys((*manifest.libraries, *options.user_code.library_paths))),
        poison=poison,
        guards=poison is not None,
        rank=_rank_info(options.rank),
        built_from=options.built_from,
    )


def _rank_info(rank: Rank | None) -> RankInfo | None:
    return None if rank is None else RankInfo(rank.number, rank.world_size, ranks_directory.machine_name())


def installed_torch() -> str | None:
    """The version of the torch that the process will import, read without importing it."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return None


def level_in_force(manifest: Manifest, options: RunOptions) -> int:
    """The level in force: the option's, the environment's, or the package's."""
    level = level_given(options)
    return manifest.level if level is None else level


def level_given(options: RunOptions) -> int | None:
    """The option's level, or the environment's; None if neither gives one."""
    if options.level is not None:
        return options.level
    given = [value for name in (Variable.LEVEL, Variable.PRINTER_LEVEL) if (value := os.environ.get(name.value))]
    known = {str(recording_settings.written_level(level)): level.value for level in recording_settings.LEVELS}
    return known.get(given[0]) if given else None


def run_request(path: Path, info: RunInfo, target: RunTarget, options: RunOptions) -> RunRequest:
    """The request to the process.

    Args:
        path: the run directory.

    Raises:
        ToolchainError: the host of threads cannot be compiled.
    """
    return RunRequest(
        package=str(options.package.resolve()),
        run=str(path),
        device=info.device,
        calls=options.calls,
        warm_up=0 if options.device_times is None else options.device_times.warm_up,
        inputs=None if options.inputs is None else str(options.inputs.resolve()),
        random_inputs=options.random_inputs,
        inspector=options.inspector,
        tag=options.tag,
        ranks=options.ranks,
        outputs="" if options.outputs is None else str(options.outputs.resolve()),
        weights="" if options.weights is None else str(options.weights.resolve()),
        memory=options.memory,
        device_times=options.device_times if info.device == "cuda" else None,
        threads=options.threads,
        thread_host="" if options.threads is None else _thread_host(),
        interposed=target.interposed,
        imports=info.imports,
        libraries=info.libraries,
    )


def _thread_host() -> str:
    from aoti_debug.runs.run import thread_host  # compiles; most runs call the model from one thread

    return str(thread_host.library())


def _print(options: RunOptions, level: int) -> str | None:
    """The variable for what is printed; with summaries nothing, unless a level or the environment asks for it."""
    if options.shown is Shown.NOTHING:
        return "none"
    if Variable.PRINT.value in os.environ:
        return None
    hides_names = options.shown is Shown.VALUES and level == Level.NAMES
    return "none" if hides_names or (options.summaries is not None and options.level is None) else None


def recording_variables(path: Path, options: RunOptions, level: int) -> dict[str, str]:
    """The variables that configure the runtime, which writes to a run directory.

    Args:
        level: the one in force.
    """
    jitter = None if options.threads is None else options.threads.jitter
    variables = {
        Variable.RUN: path,
        Variable.LEVEL: None if options.level is None else recording_settings.written_level(options.level),
        Variable.FILTER: None if options.filters is None else ",".join(options.filters),
        Variable.MODULE: None if options.modules is None else ",".join(options.modules),
        Variable.LINE: None if options.lines is None else ",".join(options.lines),
        Variable.PHASE: options.phase,
        Variable.LAUNCH: options.launch,
        Variable.FLIGHT: options.flight,
        Variable.CRUMB_EVERY: options.crumb_every,
        Variable.SUMMARIES: options.summaries,
        Variable.PRINT: _print(options, level),
        Variable.BACKTRACE: os.environ.get(Variable.BACKTRACE.value, "1"),
        Variable.GUARDS: 1 if options.guards else None,
        Variable.WATCH: ";".join(options.watch) or None,
        Variable.ON_HIT: options.on_hit or None,
        Variable.RANKS: options.ranks or None,
        Variable.SUBSTITUTE: options.substitute,
        Variable.JITTER: jitter.variable if jitter is not None else None,
        Variable.POISON: None if options.poison is None else f"{options.poison:02x}",
    }
    return {name.value: str(value) for name, value in variables.items() if value is not None}


_LIGHTWEIGHT = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory"
CORE_FILE, CORE_PIPE = "CUDA_COREDUMP_FILE", "CUDA_COREDUMP_PIPE"


def core_dump_variables(path: Path, temporary: Path) -> dict[str, str]:
    """The variables that have the CUDA driver write a core dump into a run directory, without the memory of the GPU.

    The process goes on after it, so that its own end is recorded as without the dump. Writing to the pipe that the
    driver makes asks for one of what the GPU does now (CUDA-GDB manual, "GPU core dump support").
    """
    return {
        "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
        "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
        CORE_FILE: str(path.resolve() / run_directory.GPU_CORE),
        "CUDA_COREDUMP_GENERATION_FLAGS": f"{_LIGHTWEIGHT},skip_abort",
        CORE_PIPE: str(temporary.resolve() / "gpu.pipe"),
    }


def run_environment(path: Path, options: RunOptions, level: int, temporary: Path) -> dict[str, str]:
    """This process's environment and the variables that configure the runtime.

    Args:
        level: the one in force.
        temporary: where torch unpacks the package; a process that dies leaves it there.
    """
    return {
        **os.environ,
        **_gpu_of(options.rank),
        **options.environment,
        **(core_dump_variables(path, temporary) if options.gpu_core else {}),
        "PYTHONUNBUFFERED": "1",
        "TMPDIR": str(temporary),
        **recording_variables(path, options, level),
    }


def _gpu_of(rank: Rank | None) -> dict[str, str]:
    """The variable that gives each rank of a machine a GPU of its own, as the only one that it sees."""
    name = "CUDA_VISIBLE_DEVICES"
    gpu = None if rank is None else current_rank.visible_gpus(rank, os.environ.get(name))
    return {} if gpu is None else {name: gpu}
