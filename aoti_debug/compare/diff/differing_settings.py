"""The settings in which two runs differ: versions, devices, compilers, kernels and their configurations."""

from __future__ import annotations

from collections.abc import Iterator

from aoti_debug.base import wording
from aoti_debug.base.lazy.dataclass import dataclass
from aoti_debug.package.manifest import Kernel, Manifest
from aoti_debug.runs.rundir.run_directory import RunDir

_MAX_NAMES = 4


@dataclass(frozen=True)
class RunSetting:
    """Something that two runs do not have in common.

    Attributes:
        name: "torch", "kernel cpp_fused_add_0".
        a, b: its text in the first and the second run; "" where it is missing.
    """

    name: str
    a: str
    b: str


def differing_settings(a: RunDir, b: RunDir) -> tuple[RunSetting, ...]:
    """All of them, the most general first."""
    return tuple(setting for setting in _settings(a, b) if setting.a != setting.b)


def _settings(a: RunDir, b: RunDir) -> Iterator[RunSetting]:
    first, second = a.manifest, b.manifest
    yield RunSetting("torch that runs it", a.info.torch_version or "", b.info.torch_version or "")
    yield RunSetting("torch that compiled it", first.torch_version, second.torch_version)
    yield RunSetting("aoti-debug", first.tool_version, second.tool_version)
    yield RunSetting("device", first.device, second.device)
    yield RunSetting("compiler", first.compiler.command, second.compiler.command)
    flags = [set(manifest.compiler.kernel_flags) for manifest in (first, second)]
    yield RunSetting("compiler flags", " ".join(sorted(flags[0] - flags[1])), " ".join(sorted(flags[1] - flags[0])))
    yield RunSetting("calls", str(len(a.timeline.calls)), str(len(b.timeline.calls)))
    yield RunSetting("guards", _yes(a.info.guards), _yes(b.info.guards))
    yield from _kernels(first, second)


def _kernels(a: Manifest, b: Manifest) -> Iterator[RunSetting]:
    first, second = ({kernel.name: kernel for kernel in manifest.kernels} for manifest in (a, b))
    missing = [[name for name in own if name not in other] for own, other in ((first, second), (second, first))]
    yield RunSetting(
        "kernels of one only", *(wording.join_truncated(names, _MAX_NAMES) if names else "" for names in missing)
    )
    for name, kernel in first.items():
        other = second.get(name)
        if other is not None:
            yield RunSetting(f"kernel {name}", *_versions(kernel, other))


def _versions(a: Kernel, b: Kernel) -> tuple[str, str]:
    """The parts in which two kernels of one name differ, of each."""
    parts: list[tuple[str, str]] = []
    if a.sha256 != b.sha256:
        parts.append((f"source {a.sha256[:8]}", f"source {b.sha256[:8]}"))
    if a.config != b.config:
        parts.append((_config(a), _config(b)))
    if a.num_warps != b.num_warps:
        parts.append((f"{a.num_warps} warps", f"{b.num_warps} warps"))
    first, second = (", ".join(side) for side in zip(*parts, strict=True)) if parts else ("", "")
    return first, second


def _config(kernel: Kernel) -> str:
    return " ".join(f"{name}={value}" for name, value in kernel.config)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
