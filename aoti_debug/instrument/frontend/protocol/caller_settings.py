"""Settings of the process that asks for a build: what torch compiles depends on them, and a worker starts without.

They are Inductor's settings that were assigned (`torch._inductor.config.max_autotune = True`), autocast, whether
gradients are on, with which Inductor freezes no weights, and what changes what operators compute (`torch_settings.py`).
What environment variables set reaches a worker by itself.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import field
from typing import Any

from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import torch_settings

UNSUPPORTED_CONFIGS = {  # with which a package cannot be instrumented
    "aot_inductor.use_minimal_arrayref_interface": True,
    "aot_inductor.allow_stack_allocation": True,
    "aot_inductor.compile_standalone": True,
    "aot_inductor.dynamic_linkage": False,
}
_OF_FILES = ("aot_inductor.output_path",)  # left out: where torch puts the files of its own package
MULTI_ARCH = "aot_inductor.emit_multi_arch_kernel"  # left out: a build compiles for the GPU of its machine


class NotSendableError(Exception):
    """A setting has a value that cannot be passed to another process."""


@dataclass(frozen=True)
class CallerSettings:
    """The settings that differ from those of a new process.

    Attributes:
        inductor: of `torch._inductor.config`, by name: {"max_autotune": True}.
        autocast: the dtype by the type of device, for those with autocast on: {"cuda": "bfloat16"}.
        torch: as `torch_settings.capture` returns them.
        has_gradients: `torch.is_grad_enabled()`.
    """

    inductor: Mapping[str, Any] = field(default_factory=dict)
    autocast: Mapping[str, str] = field(default_factory=dict)
    torch: Mapping[str, Any] = field(default_factory=dict)
    has_gradients: bool = False


def has_setting(key: str) -> bool:
    """True if this torch has a setting of Inductor: "aot_inductor.package_cpp_only"; imports torch."""
    import torch._inductor.config as config

    owner: Any = config
    for part in key.split("."):
        if not hasattr(owner, part):
            return False
        owner = getattr(owner, part)
    return True


def capture() -> CallerSettings:
    """Returns those of this process; imports torch.

    Raises:
        NotSendableError: one of them is an object, such as a pass over graphs.
    """
    import torch

    devices = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    return CallerSettings(
        inductor=_assigned(),
        autocast={device: str(torch.get_autocast_dtype(device)).removeprefix("torch.") for device in devices},
        torch=torch_settings.capture(),
        has_gradients=torch.is_grad_enabled(),
    )


def key() -> str:
    """A text that is another one where other settings may make torch compile something else."""
    try:
        return repr(capture())
    except NotSendableError as error:
        return f"{error} in process {os.getpid()}"


def with_assigned(inductor_configs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the given settings of Inductor, and those that this process has assigned.

    It warns of one that cannot be passed to another process, where the model is compiled without them.
    """
    try:
        assigned = _assigned()
    except NotSendableError as error:
        warnings.warn(f"{error}, which the build does not take over: its kernels may be others", stacklevel=3)
        assigned = {}
    return {**assigned, **(inductor_configs or {})}


def _assigned() -> dict[str, Any]:
    """The settings of Inductor that are not at their defaults; those that a build refuses are left out."""
    from torch._inductor import config

    names = {name for name in config._config if not config._is_default(name)}  # torch/utils/_config_module.py
    names -= set(_OF_FILES)
    values = {name: getattr(config, name) for name in sorted(names)}
    changed = {name: value for name, value in values.items() if value != config._config[name].default}
    settings = {name: value for name, value in changed.items() if UNSUPPORTED_CONFIGS.get(name) != value}
    for name, value in settings.items():
        if not _is_json(value):
            raise NotSendableError(f"torch._inductor.config.{name} is {value!r}")
    return settings


def _is_json(value: object) -> bool:
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError):
        return False


@contextmanager
def applied(settings: CallerSettings) -> Iterator[None]:
    """Makes the settings other than Inductor's those of this process, for the length of a `with` block."""
    import torch

    with torch_settings.applied(settings.torch), ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(settings.has_gradients))
        for device, dtype in settings.autocast.items():
            stack.enter_context(torch.autocast(device, dtype=getattr(torch, dtype)))
        yield
