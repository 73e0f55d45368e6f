"""The traits of each kind of launch."""

from __future__ import annotations

from enum import Enum

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.wording import pluralize
from aoti_debug.package.manifest import Kind, Manifest


class RunsOn(Enum):
    """The device that a launch runs on."""

    HOST = "host"
    DEVICE = "device"
    TENSORS = "tensors"  # where its tensors are


@dataclass(frozen=True)
class LaunchTraits:
    """The traits that the launches of one kind share.

    Attributes:
        compiled_for_layouts: the kernel was generated for one layout of its arguments and ignores the real one.
        keeps_old_elements: it may write only a part of an output that has contents already.
        user_operator: it is a custom operator, whose fake kernel describes its results.
        allocates_outputs: it allocates its own outputs.
        waits_for_device: it returns only when the device has completed all earlier work.
        word: the name of a launch without an operator in the model's source.
        replay: the module of aoti_debug/repro/ that replays it: "cpp"; "" for none.
        not_replayed: the reason why there is none.
    """

    runs_on: RunsOn = RunsOn.TENSORS
    compiled_for_layouts: bool = False
    keeps_old_elements: bool = False
    user_operator: bool = False
    allocates_outputs: bool = False
    waits_for_device: bool = False
    word: str = ""
    replay: str = ""
    not_replayed: str = ""


_OPERATOR = LaunchTraits(replay="aten")
TRAITS = {
    Kind.CPP: LaunchTraits(runs_on=RunsOn.HOST, compiled_for_layouts=True, keeps_old_elements=True, replay="cpp"),
    Kind.SHIM_OUT: _OPERATOR,
    Kind.SHIM_ALLOC: _OPERATOR,
    Kind.SHIM_INPLACE: _OPERATOR,
    Kind.CUSTOM_SHIM: LaunchTraits(user_operator=True, replay="aten"),
    Kind.PROXY: LaunchTraits(user_operator=True, allocates_outputs=True, replay="proxy"),
    Kind.CLONE: _OPERATOR,
    Kind.ITEM: LaunchTraits(
        waits_for_device=True,
        word="item",
        not_replayed="it only reads a number from a tensor; its argument is saved in the run",
    ),
    Kind.TRITON: LaunchTraits(
        runs_on=RunsOn.DEVICE, compiled_for_layouts=True, keeps_old_elements=True, replay="triton"
    ),
    Kind.CUTLASS: LaunchTraits(
        runs_on=RunsOn.DEVICE,
        compiled_for_layouts=True,
        not_replayed="the generated CUDA source would have to be compiled with nvcc",
    ),
}


def traits_of(kind: Kind) -> LaunchTraits:
    """The traits that the launches of a kind share."""
    return TRAITS[kind]


def overlap_remark(manifest: Manifest) -> str:
    """Says that recording may keep kernels apart that overlap otherwise; "" if none do."""
    count = sum(kernel.overlaps for kernel in manifest.kernels)
    kernels = pluralize(count, "kernel")
    why = "while launches are recorded they may not, and a race between the two may not show"
    return f"{kernels} may begin before the one before ends; {why}" if count else ""


def writes_shared_memory(manifest: Manifest) -> bool:
    """True if a launch writes to a weight or a state, which all calls of a package share."""
    shared = {constant.name for constant in manifest.constants}
    return any(arg.written and (arg.base or arg.name) in shared for site in manifest.sites for arg in site.args)
