"""Checks if this machine can build, run and debug packages; those of the CUDA driver and toolkit are here, too."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator

from aoti_debug.app.doctor import host
from aoti_debug.app.doctor.host import MachineCheck, Status, missing, missing_required, ok, torch_cuda, warning
from aoti_debug.base import wording
from aoti_debug.base.frozen import dataclass
from aoti_debug.base.machine import compiler

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _MINOR
_NO_DEVICE, _MISMATCH = 100, 803  # CUresult


@dataclass(frozen=True)
class Gpu:
    """A visible GPU: its name, compute capability and bytes of memory."""

    name: str
    capability: tuple[int, int]
    bytes: int

    def __str__(self) -> str:
        return f"{self.name} (sm_{self.capability[0]}{self.capability[1]}, {wording.byte_size_in('GiB', self.bytes)})"


@dataclass(frozen=True)
class Driver:
    """The installed CUDA driver.

    Attributes:
        version: the newest CUDA version that it supports: (13, 0).
        release: version of the driver, "580.65.06"; "" if NVML does not report it.
        error: CUresult of cuInit.
    """

    version: tuple[int, int]
    release: str
    error: int
    gpus: tuple[Gpu, ...]


def driver() -> Iterator[MachineCheck]:
    """Checks the driver and lists the GPUs."""
    installed, build = find_driver(), torch_cuda()
    if installed is None:
        if build:
            todo = "nothing for models on the CPU; for others install NVIDIA's driver, or docker run --gpus all"
            yield warning("driver", f"libcuda.so.1 is not there; torch is built for CUDA {build}", todo)
        else:
            yield ok("driver", "none, and torch is built for the CPU: models on the CPU only")
        return
    yield check_driver(installed, build)
    if installed.gpus:
        yield ok("GPUs", ", ".join(map(str, installed.gpus)))


def check_driver(driver: Driver, build: str) -> MachineCheck:
    """Checks a driver against the CUDA version of torch.

    Args:
        build: the CUDA version that torch was built for; "" for the CPU.
    """
    newest = ".".join(map(str, driver.version))
    text = f"{f'{driver.release}, ' if driver.release else ''}for CUDA up to {newest}"
    if driver.error == _MISMATCH:
        todo = "load the kernel module that belongs to the library (restart the machine), or install its library"
        return missing_required("driver", f"{text}; library and kernel module differ", todo)
    if driver.error == _NO_DEVICE or (driver.error == 0 and not driver.gpus):
        todo = "docker run --gpus all; CUDA_VISIBLE_DEVICES names GPUs that are there"
        return warning("driver", f"{text}; no GPU can be seen", todo)
    if driver.error != 0:
        return missing_required(
            "driver", f"{text}; cuInit fails with error {driver.error}", "nvidia-smi and dmesg say more"
        )
    if not build:
        return warning("driver", f"{text}; torch is built for the CPU", "install a torch that is built for CUDA")
    if int(build.partition(".")[0]) > driver.version[0]:
        todo = "update the driver, or install a torch that is built for an older CUDA"
        return missing_required("driver", f"{text}; torch is built for CUDA {build}", todo)
    return ok("driver", text)


def find_driver() -> Driver | None:
    """Reads the installed driver; None if there is no driver library."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    library.cuDriverGetVersion(ctypes.byref(number))
    version = (number.value // 1000, number.value % 1000 // 10)
    error = int(library.cuInit(0))
    return Driver(version, _release(), error, tuple(_gpus(library)) if error == 0 else ())


def _gpus(library: ctypes.CDLL) -> Iterator[Gpu]:
    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    for index in range(count.value):
        device, major, minor, size = ctypes.c_int(), ctypes.c_int(), ctypes.c_int(), ctypes.c_size_t()
        name = ctypes.create_string_buffer(128)
        library.cuDeviceGet(ctypes.byref(device), index)
        library.cuDeviceGetName(name, len(name), device)
        library.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, device)
        library.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, device)
        library.cuDeviceTotalMem_v2(ctypes.byref(size), device)
        yield Gpu(name.value.decode(errors="replace"), (major.value, minor.value), size.value)


def _release() -> str:
    """The driver version that nvidia-smi shows."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    text = ctypes.create_string_buffer(96)
    if library.nvmlInit_v2() != 0:
        return ""
    succeeded = library.nvmlSystemGetDriverVersion(text, len(text)) == 0
    library.nvmlShutdown()
    return text.value.decode(errors="replace") if succeeded else ""


def headers() -> Iterator[MachineCheck]:
    """Checks for the CUDA headers, which the wrappers of CUDA models include."""
    if not torch_cuda():
        return
    directory = compiler.find_header_directory("cuda_runtime_api.h")
    if directory is None:
        todo = "install the CUDA toolkit and set CUDA_HOME, or pip install nvidia-cuda-runtime"
        yield missing("CUDA headers", "cuda_runtime_api.h is nowhere", todo)
    else:
        yield ok("CUDA headers", str(directory))


CHECKS: tuple[Callable[[], Iterable[MachineCheck]], ...] = (
    host.python,
    host.compiler,
    host.torch,
    host.triton,
    driver,
    headers,
    host.ptxas,
    host.sanitizer,
    host.debugger,
    host.tracing,
    host.symbolizer,
    host.shared_memory,
    host.directories,
)


def run_checks() -> tuple[MachineCheck, ...]:
    """Runs all checks; takes a second or two the first time, because it compiles a test program."""
    return tuple(check for function in CHECKS for check in function())


def is_ready(checks: Iterable[MachineCheck]) -> bool:
    """True if nothing that builds and runs need is missing."""
    return not any(check.needed and check.status is Status.MISSING for check in checks)
