"""Generates the texts of a repro folder from a recorded launch. Opens no file.

The kinds of launches are written by modules with two functions: `refusal(launch, manifest)` returns the reason why a
launch cannot be replayed ("" if it can), and `script(launch, manifest, arguments)` returns its part of repro.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from aoti_debug.base.errors import UsageError
from aoti_debug.base.machine import torch_settings
from aoti_debug.package.launch_traits import traits_of
from aoti_debug.package.manifest import Kind, Manifest, Provenance
from aoti_debug.repro import aten, cpp, proxy, triton
from aoti_debug.repro.arguments import ReproArguments
from aoti_debug.repro.recorded_launch import RecordedLaunch
from aoti_debug.repro.script import Script, render


class ReproKind(Protocol):
    """A module that writes the repros of some kinds of launches."""

    def refusal(self, launch: RecordedLaunch, manifest: Manifest) -> str:
        """Returns the reason why a launch cannot be replayed; "" if it can."""

    def script(self, launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> Script:
        """Returns what the launch contributes to repro.py."""


# By the name that a kind of launch gives in its LaunchTraits.
REPLAYS: dict[str, ReproKind] = {"aten": aten, "cpp": cpp, "proxy": proxy, "triton": triton}


def kind_of(launch: RecordedLaunch, manifest: Manifest) -> ReproKind:
    """Returns the module that writes the repro of a launch.

    Raises:
        UsageError: launches of this kind cannot be replayed, or this one cannot.
    """
    traits = traits_of(launch.site.kind)
    kind = REPLAYS[traits.replay] if traits.replay else None
    reason = traits.not_replayed if kind is None else kind.refusal(launch, manifest)
    if kind is None or reason:
        raise UsageError(
            f"launch {launch.id}, {launch.site.kernel} ({launch.site.kind.value}), cannot be replayed alone: {reason}",
            hint=f"aoti-debug show {launch.id} shows what was recorded of it",
        )
    return kind


def generate(launch: RecordedLaunch, manifest: Manifest, arguments: ReproArguments) -> dict[str, str | bytes]:
    """Returns file name -> content: repro.py, README, and what the kind adds.

    Raises:
        UsageError: launches of this kind cannot be replayed, or this one cannot.
    """
    script = kind_of(launch, manifest).script(launch, manifest, arguments)
    if settings := _settings(launch):
        script = replace(script, source="\n\n".join(filter(None, ["\n".join(settings), script.source])))
    header = list(_header(launch, script))
    title = f"{launch.id} {launch.site.kernel}"
    return {
        "repro.py": render(title, header, script, arguments, launch.fault),
        "README": "\n".join([*header, "", *_manual(launch, script)]) + "\n",
        **script.files,
    }


def _settings(launch: RecordedLaunch) -> list[str]:
    """Statements that make torch compute as it did in the run; of a generated kernel, only denormals depend on them."""
    chosen = launch.run.torch_settings or {}
    if traits_of(launch.site.kind).replay not in ("aten", "proxy"):
        chosen = {name: value for name, value in chosen.items() if name == torch_settings.DENORMALS}
    lines = torch_settings.statements(chosen)
    return ["# Settings of torch that the process of the run had.", *lines] if lines else []


_EXECUTED = {
    "cpp": "the source below, compiled with the recorded command",
    "triton": "the recorded machine code, or the source below",
}


def _header(launch: RecordedLaunch, script: Script) -> Iterator[str]:
    site, run = launch.site, launch.run
    yield f"Launch {launch.id} of {site.kernel}, alone, with its recorded arguments."
    yield ""
    yield f"written by  aoti-debug {run.tool_version}"
    yield f"run         {run.path.name}, started {run.started}, torch {run.torch_version}, {run.device}"
    if site.op:
        way = "the proxy executor" if site.kind is Kind.PROXY else f"C shim {site.callee}"
        yield f"operator    {site.op} ({way})"
    executed = [_EXECUTED.get(traits_of(site.kind).replay, "this operator")]
    executed += [f"the module {module}" for module in script.modules]
    executed += [f"the library {library}" for library in script.libraries]
    yield f"executes    {', '.join(executed)}"
    yield from script.about
    yield from _provenance(site.provenance)
    if launch.fault:
        yield f"ended in    {launch.fault}"


def _provenance(provenance: Provenance) -> Iterator[str]:
    certainty = provenance.certainty.value
    for n, frame in enumerate(provenance.source):
        label = "model" if n == 0 else ""
        yield f"{label:10}  {frame.file}:{frame.line} in {frame.function}: {frame.text.strip()} ({certainty})"
    for label, nodes in (("FX nodes", provenance.post_grad_nodes), ("pre-grad", provenance.pre_grad_nodes)):
        if nodes:
            yield f"{label:10}  {', '.join(nodes)} ({certainty})"


def _manual(launch: RecordedLaunch, script: Script) -> Iterator[str]:
    needs = "torch, safetensors, numpy" + (f" and {script.needs}" if script.needs else "")
    watched = traits_of(launch.site.kind).replay in ("cpp", "triton") or launch.run.device == "cuda"
    yield "    python repro.py                launches once, compares the outputs with the recorded ones"
    yield "    python repro.py --repeat 20    launches 20 times: do the results vary?"
    if watched:
        yield "    python repro.py --sanitize     out-of-bounds and other invalid accesses, by argument and element"
    yield "    python repro.py --poison       small overruns and uninitialised reads"
    yield "    python repro.py --bench        time and bytes per second"
    yield "    python repro.py --reduce       the smallest part that still shows the fault or the difference"
    if script.kernel:
        yield "    python repro.py --debugger     gdb or cuda-gdb, stopped at the kernel, with its arguments"
    yield "    python repro.py --help         all options"
    if script.ways:
        yield ""
        yield from (f"    {line}" for line in script.ways)
    yield ""
    yield f"needs {needs}; aoti-debug is not needed."
    yield ""
    yield "repro.py   the launch: edit the arguments and the call as you like"
    yield "tensors/   before_<argument>.safetensors and after_<argument>.safetensors"
    yield "replay/    Python modules that load the tensors, run the launch and compare the outputs"
    yield ""
    yield "Exit codes: 0 as recorded, 10 differs, 11 a fault, 12 the recorded fault was not reproduced, 1 the replay"
    yield "failed. Python's own codes are 1 and 2."
    if launch.fault:
        yield ""
        yield "The launch runs in a child process; --here runs it in this one, for a debugger."
