"""Runs of two small kernels with known times, for tests of profiles."""

from __future__ import annotations

from pathlib import Path

from aoti_debug.package.manifest import Certainty, Kind, Manifest, ModelLine, Provenance, Role
from aoti_debug.runs.rundir import run_directory
from aoti_debug.runs.rundir.run_directory import RunDir
from aoti_debug.views.profile import profile
from aoti_debug.views.profile.model_profile import ModelProfile
from aoti_debug.views.profile.roofline import Peaks
from tests import factories
from tests.factories import JournalWriter, tensor

LINE = ModelLine("/home/u/model.py", 12, "forward", "    y = torch.relu(x @ w)")


def package() -> Manifest:
    """A product of matrices, and a kernel that is launched twice."""
    mm = factories.site(
        "aoti_torch_cpu_mm_out",
        factories.arg("buf0", Role.OUT),
        factories.arg("x"),
        factories.arg("w"),
        op="aten.mm.out",
        provenance=Provenance(Certainty.EXACT, source=(LINE,), post_grad_nodes=("mm",), modules=("layers.0.linear",)),
    )
    relu = factories.site(
        "cpp_fused_relu_0",
        factories.arg("buf0", Role.INOUT),
        kind=Kind.CPP,
        provenance=Provenance(
            Certainty.EXACT, source=(LINE,), post_grad_nodes=("relu",), modules=("layers.0.act", "layers.0.norm")
        ),
    )
    return factories.make_manifest(mm, relu)


def write(base: Path, times: list[tuple[int, int, int]], gap: int = 10_000) -> RunDir:
    """A run.

    Args:
        times: nanoseconds of the three launches of each call.
        gap: nanoseconds before, between and after them.
    """
    journal = JournalWriter()
    out, x, w = (tensor(4, 8, data_ptr=0x1000), tensor(4, 16, data_ptr=0x2000), tensor(16, 8, data_ptr=0x3000))
    for call, durations in enumerate(times):
        journal.call_begin(call)
        begin = journal.time_ns
        for number, duration in enumerate(durations):
            journal.time_ns = begin + gap - 1000  # a record advances the clock
            values = (out, x, w) if number == 0 else (out,)
            journal.launch_begin(number, min(number, 1), *values, call=call)
            begin = journal.time_ns + duration
            journal.time_ns = begin - 1000
            journal.launch_end(number, call=call)
        journal.time_ns = begin + gap - 1000
        journal.call_end(call, launches=len(durations))
    return run_directory.open_run(factories.run_directory(base, package(), journal, calls=len(times)))


def profile_of(model: Path, run: RunDir, peaks: Peaks) -> ModelProfile:
    """The profile of a run at level 3, as after a measurement with these peaks."""
    return profile.profile_of(model, run, profile.calls_of(run, profile.WARM_UP), peaks)
