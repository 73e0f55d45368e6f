"""Launches machine code through the CUDA driver, as the generated code of a package does."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from typing import TypeAlias

import torch

WARP = 32  # threads
MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
SPARE_PARAMETERS = 4  # null pointers behind the known parameters; the driver reads as many as the kernel has

Value: TypeAlias = (
    ctypes.c_bool
    | ctypes.c_int8
    | ctypes.c_int16
    | ctypes.c_int32
    | ctypes.c_int64
    | ctypes.c_uint8
    | ctypes.c_uint16
    | ctypes.c_uint32
    | ctypes.c_uint64
    | ctypes.c_float
    | ctypes.c_double
    | ctypes.c_void_p
)


class Function:
    """A kernel in machine code, loaded on the current CUDA device.

    Args:
        image: the bytes of a cubin.
        name: of the kernel in it.
        shared_bytes: dynamic shared memory of a block.
    """

    def __init__(self, image: bytes, name: str, *, num_warps: int, shared_bytes: int) -> None:
        self.name = name
        self.threads = num_warps * WARP
        self.shared_bytes = shared_bytes
        torch.cuda.current_stream().synchronize()  # makes the device's context
        module = ctypes.c_void_p()
        self._function = ctypes.c_void_p()
        _check("cuModuleLoadData", ctypes.byref(module), image)
        _check("cuModuleGetFunction", ctypes.byref(self._function), module, name.encode())
        if shared_bytes > 0:
            attribute = (ctypes.c_int(MAX_DYNAMIC_SHARED_SIZE_BYTES), ctypes.c_int(shared_bytes))
            _check("cuFuncSetAttribute", self._function, *attribute)

    def launch(self, grid: Sequence[int], values: Sequence[Value]) -> None:
        """Starts it on torch's current stream.

        Args:
            values: one a parameter, each with its exact type.

        Raises:
            RuntimeError: the driver refuses.
        """
        spare = [ctypes.c_void_p() for _ in range(SPARE_PARAMETERS)]
        parameters = [*values, *spare]
        addresses = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(value) for value in parameters))
        blocks = [ctypes.c_uint(size) for size in grid]
        threads = [ctypes.c_uint(self.threads), ctypes.c_uint(1), ctypes.c_uint(1)]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        shared = ctypes.c_uint(self.shared_bytes)
        _check("cuLaunchKernel", self._function, *blocks, *threads, shared, stream, addresses, None)


@cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _check(function: str, *arguments: object) -> None:
    code = getattr(_driver(), function)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        _driver().cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{function}: {(text.value or b'unknown').decode()} ({code})")
