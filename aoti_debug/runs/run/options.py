"""The options of a run, their validation, and the equivalent command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from enum import Enum
from pathlib import Path

from aoti_debug.base.errors import UsageError
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import current_rank
from aoti_debug.base.machine.current_rank import Rank
from aoti_debug.base.machine.user_code import UserCode
from aoti_debug.package import recording_settings
from aoti_debug.package.recording_settings import SiteFilter
from aoti_debug.runs.run.device_profiler import DeviceTimes
from aoti_debug.runs.rundir import run_directory, watch_condition
from aoti_debug.runs.rundir.threads_json import ThreadPlan, WeightUpdates


class Shown(str, Enum):
    """The text of its launches that a model prints while it runs."""

    ALL = "all"  # names at level 3, statistics and values at level 2
    VALUES = "values"  # as ALL, without the names of level 3
    NOTHING = "nothing"


@dataclass(frozen=True)
class RunOptions:
    """The package to run, and the options for what is recorded.

    Attributes:
        inputs: a .pt or .safetensors file; None for those embedded in the package.
        random_inputs: a seed: generate inputs that fit the model and save them in the run directory.
        level, filters, modules, lines, phase: None for the setting of the environment or the package.
        out: the directory for run directories; None for `ResultKind.RUNS.place()`.
        calls: the number of calls of the model.
        timeout: seconds, counted from the beginning of loading.
        stall: seconds without a launch that begins or ends, after which the process is killed; level 1 or more.
        user_code: in addition to what the package was built with.
        launch: "0.3", or "0.3,0.5": print and save these launches only.
        flight: the number of launches whose inputs survive a crash; None for the setting of the environment.
        crumb_every: launches per breadcrumb; None: 1, and 16 while launches come in a burst.
        environment: variables of the process, in addition to this process's.
        guards: put zones of known bytes around the buffers that the model allocates, and compare them after every
            launch.
        model: the name of the model in a compiled package without source that holds several; "" for the only one.
        watch: watchpoints, each "NAME: CONDITION" (watch_condition.py); level 1 or more.
        on_hit: what a hit does, in words of `watch_condition.ACTIONS` with commas between them; "" records it only.
        summaries: calls per call whose statistics are kept; None for the setting of the environment.
        inspector: "FILE.py:FUNCTION", called on the tensors of launches that `filters` and `launch` select; level 1 or
            more.
        tag: a pattern of tags: the inspector sees tensors of such inspectors in the model only.
        ranks: "0,2-3": record at this level, and call the inspector, on these ranks only; the others keep their
            journals; "" for all.
        rank: the rank that this process is: its run goes into the directory that all ranks have in common; None for a
            directory of its own.
        poison: the byte that those buffers are filled with; needs guards; None for 0xff.
        substitute: a file of instructions for the runtime (runtime_shims/run/substitutions.h): launches to skip, to
            replace the results of, or to stop before; level 1 or more.
        outputs: a folder for what the last call of the model returns, a tensor file each; None to drop it.
        weights: a file that torch.save has written: tensors that take the place of weights and buffers, by their names.
        memory: keep the counters of memory around each call.
        built_from: the file name of the model that a command has built the package from; "" if it was given.
        device_times: on a GPU, keep what its profiler records of the calls, or of replays of a CUDA graph.
        threads: the threads that make the calls; None for the one of the process.
        shown: what is printed of launches; NOTHING also if the environment asks for more.
        gpu_core: have the CUDA driver write a core dump, without the GPU's memory, into the run directory: where a
            kernel fails, and before a process is killed in which one may hang.
    """

    package: Path
    inputs: Path | None = None
    level: int | None = None
    filters: tuple[str, ...] | None = None
    modules: tuple[str, ...] | None = None
    lines: tuple[str, ...] | None = None
    phase: str | None = None
    out: Path | None = None
    calls: int = 1
    timeout: float | None = None
    stall: float | None = None
    user_code: UserCode = UserCode()
    launch: str | None = None
    flight: int | None = None
    crumb_every: int | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    guards: bool = False
    poison: int | None = None
    random_inputs: int | None = None
    watch: tuple[str, ...] = ()
    on_hit: str = ""
    inspector: str = ""
    tag: str = ""
    ranks: str = ""
    rank: Rank | None = None
    model: str = ""
    summaries: int | None = None
    substitute: Path | None = None
    outputs: Path | None = None
    weights: Path | None = None
    memory: bool = False
    built_from: str = ""
    device_times: DeviceTimes | None = None
    threads: ThreadPlan | None = None
    shown: Shown = Shown.ALL
    gpu_core: bool = False

    @property
    def site_filter(self) -> SiteFilter:
        """The patterns that the options give."""
        return SiteFilter(self.filters or (), self.modules or (), self.lines or ())


@dataclass(frozen=True, kw_only=True)
class ModelCalls:
    """The calls of a model: options of every command that builds a model if necessary, and runs it.

    Attributes:
        inputs: a .pt or .safetensors file; None for those embedded in the program or the package.
        calls: how many times the model is called.
        user_code: as for `build` and `run`.
    """

    inputs: Path | None = None
    calls: int = 1
    user_code: UserCode = UserCode()

    def recorded(self, package: Path, out: Path, built_from: str = "") -> RunOptions:
        """The options of a run with these calls that records every launch, whatever the environment and package say.

        Args:
            built_from: as of RunOptions.
        """
        everything = recording_everything(package, out)
        return replace(
            everything, inputs=self.inputs, calls=self.calls, user_code=self.user_code, built_from=built_from
        )


def recording_everything(package: Path, out: Path) -> RunOptions:
    """The options of a run that records every launch, whatever the environment and the package say.

    Args:
        out: the directory for run directories.
    """
    return RunOptions(package=package, filters=(), modules=(), lines=(), out=out)


def check(options: RunOptions) -> None:
    """Validates the options.

    Raises:
        UsageError: an option is wrong, or excludes another.
        ArtifactError: the inputs file does not exist, or is no file.
    """
    if options.level is not None:
        recording_settings.level_number(options.level)
    if options.phase is not None and options.phase not in recording_settings.PHASES:
        raise UsageError(
            f"there is no phase {options.phase!r}", hint=f"phases are {', '.join(recording_settings.PHASES)}"
        )
    if options.calls < 1:
        raise UsageError(f"--calls {options.calls} is less than 1", hint="--calls takes a number from 1")
    if options.timeout is not None and not options.timeout > 0:  # also for NaN
        raise UsageError(f"--timeout {options.timeout:g} is not greater than 0", hint="--timeout takes seconds")
    if options.stall is not None and not options.stall > 0:
        raise UsageError(f"--stall {options.stall:g} is not greater than 0", hint="--stall takes seconds")
    if options.crumb_every is not None and options.crumb_every < 1:
        raise UsageError(f"--crumb-every {options.crumb_every} is less than 1", hint="it takes a number from 1")
    if options.poison is not None and not options.guards:
        raise UsageError("--poison needs --guards", hint="only buffers between guards are filled")
    if options.poison is not None and options.poison not in range(256):
        raise UsageError(f"{options.poison} is not a byte", hint="--poison takes two hexadecimal digits")
    recording_settings.check_patterns(options.site_filter)
    for watchpoint in options.watch:
        watch_condition.check(watchpoint)
    if options.on_hit:
        watch_condition.check_actions(options.on_hit)
        if not options.watch:
            raise UsageError("--on-hit needs --watch", hint="--watch 'buf7: absmax > 1e4' names what is watched")
    if options.tag and not options.inspector:
        raise UsageError("--tag needs --inspect", hint="--inspect my.py:f names the function to call")
    current_rank.parse(options.ranks)
    if options.inspector:
        from aoti_debug.runs.run import inspector  # few runs have one

        inspector.user_function(options.inspector).check()
    for launch in () if options.launch is None else options.launch.split(","):
        run_directory.parse_launch_id(launch)
    if options.flight is not None and options.flight not in range(recording_settings.MAX_FLIGHT + 1):
        raise UsageError(
            f"--flight {options.flight} is out of range",
            hint=f"it takes a number from 0 to {recording_settings.MAX_FLIGHT}",
        )
    if options.summaries is not None and options.summaries < 1:
        raise UsageError(f"--freq {options.summaries} is less than 1", hint="--freq takes a number from 1")
    check_inputs(options.inputs, options.random_inputs)
    if options.inputs is not None:
        from aoti_debug.package.inputs import input_files  # most runs have those of the package

        input_files.check_is_file(options.inputs)
    for library in options.user_code.libraries:
        if not library.is_file():
            raise UsageError(f"{library} does not exist", hint="--load-library takes the path of a shared library")


def check_inputs(inputs: Path | None, random_inputs: int | None) -> None:
    """Checks that inputs come from one place.

    Raises:
        UsageError: there are a file and a seed.
    """
    if inputs is not None and random_inputs is not None:
        raise UsageError("--inputs and --random-inputs exclude each other", hint="pass one of them")


def command(options: RunOptions) -> tuple[str, ...]:
    """The command line that repeats the run."""
    return ("aoti-debug", "run", str(options.package), *words_of(options))


def words_of(options: RunOptions) -> tuple[str, ...]:
    """The options as words of a command line."""
    single = {
        "--inputs": options.inputs,
        "--random-inputs": options.random_inputs,
        "--model": options.model or None,
        "--level": None if options.level is None else recording_settings.written_level(options.level),
        "--phase": options.phase,
        "--out": options.out,
        "--timeout": None if options.timeout is None else f"{options.timeout:g}",
        "--stall": None if options.stall is None else f"{options.stall:g}",
        "--calls": options.calls if options.calls != 1 else None,
        "--launch": options.launch,
        "--flight": options.flight,
        "--crumb-every": options.crumb_every,
        "--on-hit": options.on_hit or None,
        "--freq": options.summaries if (options.summaries or 1) != 1 else None,
        "--inspect": options.inspector or None,
        "--tag": options.tag or None,
        "--ranks": options.ranks or None,
        "--poison": None if options.poison is None else f"{options.poison:02x}",
    }
    words = ["--guards"] if options.guards else []
    words += ["--gpu-core"] if options.gpu_core else []
    if options.threads is not None and options.threads.threads > 1:
        words += ["--threads", str(options.threads.threads), "--runners", str(options.threads.runners)]
        words += ["--update-weights"] if options.threads.updates is WeightUpdates.EQUAL else []
        words += [] if options.threads.jitter is None else ["--jitter", str(options.threads.jitter.seed)]
    words += ["--summaries"] if options.summaries is not None else []
    for option, value in single.items():
        words += [] if value is None else [option, str(value)]
    words += [word for criterion, pattern in options.site_filter.patterns() for word in (criterion.value, pattern)]
    repeated = {
        "--watch": options.watch,
        "--import": options.user_code.imports,
        "--load-library": options.user_code.libraries,
    }
    for option, values in repeated.items():
        words += [word for value in values for word in (option, str(value))]
    return tuple(words)
