"""The CUDA half of the runtime on a real device: crumbs, errors and graph capture."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from tests.paths import ROOT
from tests.runtime_shims_cuda import samples
from tests.runtime_shims_cuda.device_library import DeviceLibrary
from tests.runtime_shims_cuda.gpu_device import LONG, stream_of, wait_for

pytest_plugins = ("tests.runtime_shims_cuda.gpu_fixtures",)
pytestmark = pytest.mark.cuda

CUDA_ERROR_ILLEGAL_ADDRESS = 700


def test_a_crumb_waits_for_what_was_enqueued_before_it(
    gpu: DeviceLibrary, crumbs: ctypes.Array[ctypes.c_uint32]
) -> None:
    for stream in (torch.cuda.default_stream(), torch.cuda.Stream()):
        crumbs[16] = 0
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG)
            assert gpu.library.harness_write_crumb(stream_of(stream), 64, 1)
            torch.cuda._sleep(LONG)
            assert gpu.library.harness_write_crumb(stream_of(stream), 64, 2)
        assert crumbs[16] == 0
        wait_for(crumbs, 16, 1)
        assert not stream.query()
        wait_for(crumbs, 16, 2)
        stream.synchronize()


def test_a_crumb_follows_what_the_kernel_before_it_wrote(
    gpu: DeviceLibrary, crumbs: ctypes.Array[ctypes.c_uint32]
) -> None:
    memory = torch.zeros(1 << 22, dtype=torch.int32, pin_memory=True)
    source = torch.ones(1 << 22, dtype=torch.int32, device="cuda")
    for number in range(1, 21):
        torch.mul(source, number, out=source)
        memory.copy_(source, non_blocking=True)
        assert gpu.library.harness_write_crumb(stream_of(), 0, number)
        wait_for(crumbs, 0, number)
        assert memory[-1].item() == memory[0].item() == source[0].item()
        source.fill_(1)


def test_no_error_is_pending(gpu: DeviceLibrary) -> None:
    torch.cuda._sleep(LONG)
    assert gpu.pending_error(stream_of()) == (0, "")
    torch.cuda.synchronize()
    assert gpu.pending_error(stream_of()) == (0, "")
    assert not gpu.library.harness_is_capturing(stream_of())


def test_capture_is_seen_and_left_alone(gpu: DeviceLibrary) -> None:
    tensor = torch.zeros(100, device="cuda")
    other = samples.ordinary(torch.float8_e5m2, 5000).cuda()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    seen: list[object] = []

    def elsewhere() -> None:
        # memory is allocated, a module loaded and a stream waited for while another thread captures
        seen.append(gpu.statistics(other, stream_of(stream)).numel)

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        seen.append(gpu.library.harness_is_capturing(stream_of()))
        seen.append(gpu.pending_error(stream_of()))
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        tensor.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert seen == [1, (0, ""), 5000]
    assert tensor.sum().item() == 100


CHILD = """
import ctypes, os
from pathlib import Path
import torch
from tests.runtime_shims_cuda.device_library import DeviceLibrary, describe
from tests.runtime_shims_cuda.gpu_device import PAGE, shared_words, stream_of
torch.zeros(1, device="cuda")
gpu = DeviceLibrary(Path({library!r}))
words = shared_words(Path({file!r}))
assert gpu.library.harness_register_crumbs(ctypes.addressof(words), PAGE)
stream = torch.cuda.Stream()
good = describe(torch.ones(1000, device="cuda"))
bad = describe(torch.ones(1000, device="cuda"))
bad.view.data = 0x10000
torch.cuda.synchronize()
gpu.statistics(good, stream_of(stream))
with torch.cuda.stream(stream):
    torch.cuda._sleep(1_000_000_000)
for number in range(1, 40):
    assert gpu.begin(bad if number == 17 else good, stream_of(stream))
    assert gpu.library.harness_write_crumb(stream_of(stream), 64, number)
assert gpu.take(stream_of(stream)) is None
assert len(gpu.take(stream_of(stream), wait=False)) == 16
code, text = gpu.pending_error(stream_of(stream))
print(code, text, flush=True)
os.abort()
"""


def test_the_last_crumb_before_a_fault_survives_the_process(gpu: DeviceLibrary) -> None:
    file = Path(f"/dev/shm/test_device_cuda-child-{os.getpid()}")
    script = CHILD.format(library=str(gpu.path), file=str(file))
    paths = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    try:
        command = [sys.executable, "-c", script]
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=300, env={**os.environ, "PYTHONPATH": paths}
        )
        expected = (
            f"{CUDA_ERROR_ILLEGAL_ADDRESS} CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered\n"
        )
        assert ran.stdout == expected, ran.stderr
        assert ran.returncode < 0
        assert int.from_bytes(file.read_bytes()[64:68], "little") == 16
    finally:
        file.unlink(missing_ok=True)
