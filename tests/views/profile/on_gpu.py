"""Runs on a GPU with what its profiler recorded, for tests of profiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from aoti_debug.base.abi import CallFlag
from aoti_debug.package.manifest import Manifest
from aoti_debug.runs.rundir import device_activity, run_directory
from aoti_debug.runs.rundir.device_activity import Activity, DeviceActivity, Enqueued
from aoti_debug.runs.rundir.run_directory import RunDir
from tests import factories
from tests.factories import JournalWriter, tensor
from tests.views.profile import measured

PRODUCT, REDUCE, RELU = "gemm_128x64", "splitKreduce", "triton_poi_fused_relu_0"
LAUNCH_NS = 10_000  # on the host


@dataclass
class Recorder:
    """Writes a journal and what the profiler sees of the same calls; the journal's clock loses 1 of 1000."""

    journal: JournalWriter = field(default_factory=JournalWriter)
    enqueued: list[Enqueued] = field(default_factory=list)
    activities: list[Activity] = field(default_factory=list)
    device_ns: int = 0  # when the GPU has done all that it was given

    @property
    def now_ns(self) -> int:
        """The wall clock."""
        return self.journal.start_unix_ns + self.journal.time_ns * 1001 // 1000

    def clock(self) -> None:
        """A record of the wall clock, which advances the journal's by a microsecond first."""
        self.journal.clock(self.now_ns + 1001)

    def launch(self, number: int, site: int, call: int, *kernels: tuple[str, int]) -> None:
        """A launch that enqueues kernels of a duration, one microsecond after it began."""
        values = (tensor(4, 8), tensor(4, 16), tensor(16, 8)) if site == 0 else (tensor(4, 8),)
        self.journal.launch_begin(number, site, *values, call=call)
        for name, duration in kernels:
            self.journal.time_ns += 1000
            self.enqueue(name, duration)
        self.journal.time_ns += LAUNCH_NS - 1000 * len(kernels) - 1000
        self.journal.launch_end(number, call=call)

    def enqueue(self, name: str, duration: int) -> None:
        """Enqueues a kernel that begins when the GPU is free, 5 microseconds from now or later."""
        correlation = len(self.enqueued) + 1
        self.enqueued.append(Enqueued(correlation, self.now_ns, self.now_ns + 500))
        self.run(correlation, name, duration)

    def run(self, correlation: int, name: str, duration: int) -> None:
        """The work of the GPU."""
        begin = max(self.device_ns, self.now_ns + 5_000)
        self.activities.append(Activity(name, 7, correlation, begin, duration))
        self.device_ns = begin + duration

    def call(self, number: int, flags: int = 0, kernels: bool = True) -> None:
        """A call of three launches; the first has two kernels."""
        self.clock()
        self.journal.call_begin(number, flags=flags)
        product = ((PRODUCT, 40_000), (REDUCE, 2_000)) if kernels else ()
        relu = ((RELU, 3_000),) if kernels else ()
        self.launch(0, 0, number, *product)
        self.launch(1, 1, number, *relu)
        if kernels:
            self.journal.time_ns += 1000
            self.enqueue("Memset (Device)", 1_000)  # by the wrapper
        self.launch(2, 1, number, *relu)
        self.journal.call_end(number, launches=3)
        self.clock()
        self.synchronise()

    def synchronise(self) -> None:
        """The host waits for the GPU."""
        self.journal.time_ns += max(self.device_ns - self.now_ns, 0) + 2_000

    def replay(self, *names: str, breadcrumbs: bool = True) -> None:
        """A replay of a CUDA graph, of kernels that take 3 microseconds each."""
        correlation = len(self.enqueued) + 1
        self.enqueued.append(Enqueued(correlation, self.now_ns, self.now_ns + 20_000, replays=True))
        for name in ("aoti_debug_begin_replay", *names, "Memset (Device)") if breadcrumbs else names:
            self.run(correlation, name, 3_000)
        self.synchronise()

    def write(self, base: Path) -> RunDir:
        """The run directory."""
        found = run_directory.open_run(factories.run_directory(base, package(), self.journal))
        following = (9e-6,) if any(one.replays for one in self.enqueued) else ()
        activity = DeviceActivity(
            tuple(self.enqueued), tuple(self.activities), (100e-6, 120e-6), (110e-6, 130e-6, 140e-6), following
        )
        device_activity.write(activity, found.path)
        return found


def replayed(base: Path, *kernels: str) -> RunDir:
    """A call, one that a CUDA graph captured, and two replays of these kernels."""
    recorder = Recorder()
    recorder.call(0)
    recorder.call(1, flags=capturing(), kernels=False)
    for _ in range(2):
        recorder.replay(*kernels)
    return recorder.write(base)


def package() -> Manifest:
    """The model of measured.py on a GPU."""
    return factories.make_manifest(*measured.package().sites, device="cuda")


def capturing() -> int:
    """The flags of a call that a CUDA graph captures."""
    return int(CallFlag.CAPTURING)
