"""The recorded launch that a repro replays, and one run of it."""

from __future__ import annotations

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from safetensors.torch import load_file

from .kernel import Findings, ReplayKernel, Settings
from .memory import LaunchArgument, LaunchMemory, Result, Storage, available_device, fill, load, memory_of

AS_RECORDED, FAILED, DIFFERS, FAULT, NO_FAULT = 0, 1, 10, 11, 12

Launch = Callable[..., "dict[str, torch.Tensor] | None"]


@dataclass(frozen=True)
class Job:
    """A launch with its arguments and recorded values.

    Attributes:
        launch: takes the arguments by name and returns the tensors that it allocated, by name.
        folder: where the script lies, with tensors/.
        kernel: what it launches, where that must be compiled or loaded first.
        fault: what the recorded launch ended in; "" if it ended well.
        random: why its values cannot be compared; "" if they can.
        libraries, imports: shared libraries and Python modules that define its operator.
    """

    launch: Launch
    title: str
    folder: Path
    arguments: Sequence[LaunchArgument]
    storages: Sequence[Storage]
    results: Sequence[Result] = ()
    kernel: ReplayKernel | None = None
    fault: str = ""
    random: str = ""
    libraries: Sequence[str] = ()
    imports: Sequence[str] = ()

    @property
    def outputs(self) -> list[LaunchArgument | Result]:
        """The arguments that it writes, and the tensors that it allocates."""
        return [*(a for a in self.arguments if a.written), *self.results]

    @property
    def cuda_devices(self) -> list[str]:
        """The GPUs that its tensors lie on."""
        return sorted({s.device for s in self.storages if s.device.startswith("cuda")})

    def before(self, argument: LaunchArgument) -> torch.Tensor:
        """The recorded values of an argument before the launch; zeros if they were not recorded."""
        if not argument.recorded:
            count = math.prod(argument.shape) * argument.dtype.itemsize
            return torch.zeros(count, dtype=torch.uint8).view(argument.dtype).reshape(argument.shape)
        return load(self.folder / "tensors" / f"before_{argument.name}.safetensors", argument)

    def after(self, output: LaunchArgument | Result) -> torch.Tensor:
        """The recorded values of an output."""
        return load(self.folder / "tensors" / f"after_{output.name}.safetensors", output)

    def program_values(self, name: str) -> torch.Tensor | None:
        """What the program gives for an output, in float64; None where it was not evaluated."""
        path = self.folder / "tensors" / f"program_{name}.safetensors"
        return next(iter(load_file(path).values())) if path.is_file() else None

    def on(self, backend: str) -> Job:
        """The job with its tensors where a back end wants them."""
        if self.kernel is None:
            return self
        kernel = self.kernel
        moved = [replace(s, device=kernel.device(backend, s.device)) for s in self.storages]
        return replace(self, storages=moved)

    def on_available_gpus(self) -> Job:
        """The job with tensors of a GPU that this machine lacks on the first one."""
        return replace(self, storages=[replace(s, device=available_device(s.device)) for s in self.storages])

    def prepare(self, settings: Settings) -> None:
        """Loads what the launch needs and compiles its kernel.

        Raises:
            SystemExit: a device, a library or a module is missing, or the kernel cannot be prepared.
        """
        if self.cuda_devices and not torch.cuda.is_available():
            where = ", ".join(self.cuda_devices)
            raise SystemExit(f"{self.title} ran on {where}; torch finds no CUDA device here{self._elsewhere()}")
        for library in self.libraries:
            _load_library(library)
        for module in self.imports:
            _import(module)
        if self.kernel is not None:
            sizes = {s.name: s.bytes for s in self.storages}
            extents = {a.name: (a.offset, sizes[a.storage] // a.dtype.itemsize) for a in self.arguments}
            self.kernel.prepare(replace(settings, extents=extents))

    def memory(self) -> LaunchMemory:
        """The arguments as they were just before the launch."""
        memory = memory_of(self.arguments, self.storages)
        self.fill(memory)
        return memory

    def fill(self, memory: LaunchMemory) -> None:
        """Copies the recorded values to the arguments."""
        for argument in self.arguments:
            fill(memory.views[argument.name], self.before(argument))

    def run(self, memory: LaunchMemory) -> dict[str, torch.Tensor]:
        """Launches it once and waits for it: the arguments and what it allocated, by name."""
        if self.kernel is not None:
            self.kernel.name_arguments(memory.views)
        with torch.no_grad():
            made = self.launch(**memory.views) or {}
        for device in self.cuda_devices:
            torch.cuda.synchronize(device)
        return memory.views | made

    def findings(self) -> Findings | None:
        """The findings of the kernel's back end in the last launch."""
        return None if self.kernel is None else self.kernel.findings()

    def _elsewhere(self) -> str:
        """A hint at a back end that needs no GPU."""
        backends = () if self.kernel is None else self.kernel.backends
        kernel = self.kernel
        without = [b for b in backends if kernel is not None and kernel.device(b, self.cuda_devices[0]) == "cpu"]
        return f" (--backend {without[0]} needs none)" if without else ""


def _load_library(path: str) -> None:
    if not Path(path).is_file():
        raise SystemExit(f"the operator comes from {path}, which does not exist; name another one: --load-library PATH")
    try:
        torch.ops.load_library(path)
    except OSError as error:
        raise SystemExit(f"{path} cannot be loaded: {error}") from error


def _import(module: str) -> None:
    """A module by its name, or by its file."""
    if not module.endswith(".py"):
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise SystemExit(
                f"the operator comes from module {module}: {error}; put it next to repro.py or on PYTHONPATH, "
                "or name its file: --import FILE.py"
            ) from error
        return
    spec = importlib.util.spec_from_file_location(Path(module).stem, module)
    if spec is None or spec.loader is None or not Path(module).is_file():
        raise SystemExit(f"{module} does not exist")
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[loaded.__name__] = loaded
    spec.loader.exec_module(loaded)
