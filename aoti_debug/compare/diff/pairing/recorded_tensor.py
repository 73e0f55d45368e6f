"""The tensors that a launch read and wrote, with the hashes of their bytes."""

from __future__ import annotations

from aoti_debug.base.abi import Phase
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.compare.regions.kernel_stores import begins_with_a_store
from aoti_debug.package.manifest import Role
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.runs.rundir.timeline import Argument, Launch, LaunchStatus, SavedTensor

_READ = (Role.IN, Role.INOUT, Role.UNKNOWN)


@dataclass(frozen=True)
class RecordedTensor:
    """A tensor argument of a launch, before or after it."""

    launch: Launch
    argument: Argument
    phase: Phase

    @property
    def hash(self) -> int | None:
        """The 64 bit hash of its elements, row-major; None if it was not recorded."""
        if self.file is not None:
            return self.file.hash[0]
        stats = self.argument.stats.get(self.phase)
        return None if stats is None else stats.hash

    @property
    def file(self) -> SavedTensor | None:
        """The file with its elements; None if they were not saved."""
        saved = self.argument.files.get(self.phase)
        return saved if saved is not None and saved.path else None

    @property
    def is_known(self) -> bool:
        """True if its hash was recorded."""
        return self.hash is not None


class RecordedTensors:
    """The tensors that the launches of a run read and wrote."""

    def __init__(self, run: RunDir) -> None:
        self.run = run
        self._kernels = {kernel.name: kernel for kernel in run.manifest.kernels}

    def reads(self, launch: Launch) -> tuple[RecordedTensor, ...]:
        """The tensors that a launch reads, each once, as they were before it.

        One that it does not write may be recorded after it only: it is the same then.
        """
        arguments = (argument for argument in _tensors(launch) if argument.role in _READ)
        return tuple(_read(launch, argument) for argument in arguments if not self.is_partial_result(launch, argument))

    def writes(self, launch: Launch) -> tuple[RecordedTensor, ...]:
        """The tensors that a launch may write, each once, as they were after it; none if it did not return."""
        if launch.status is not LaunchStatus.RETURNED:
            return ()
        return tuple(RecordedTensor(launch, argument, Phase.AFTER) for argument in _tensors(launch) if argument.written)

    def is_partial_result(self, launch: Launch, argument: Argument) -> bool:
        """True if a kernel reads from an argument only what it has itself stored there: before, it held anything."""
        names = launch.site.launches or (launch.site.kernel,)
        kernels = [self._kernels[name] for name in names if name in self._kernels]
        return argument.role is Role.INOUT and any(
            begins_with_a_store(kernel, argument.spec.param) for kernel in kernels
        )


def _read(launch: Launch, argument: Argument) -> RecordedTensor:
    before = RecordedTensor(launch, argument, Phase.BEFORE)
    return before if before.is_known or argument.written else RecordedTensor(launch, argument, Phase.AFTER)


def _tensors(launch: Launch) -> tuple[Argument, ...]:
    by_name = {argument.name: argument for argument in launch.args if argument.layout is not None}
    return tuple(by_name.values())
