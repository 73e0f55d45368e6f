"""Loads the interposing libraries and the model, in the process that runs a package."""

from __future__ import annotations

import ctypes
from typing import Any

from aoti_debug.package.inputs.signature import Leaf, ModelSignature
from aoti_debug.package.pt2 import archive
from aoti_debug.runs.run import load_model

_DRIVER = "libcuda.so.1"


class Interposed:
    """A model whose calls are recorded. Created after torch is loaded and before the package is."""

    def __init__(
        self, *, front: str, recorder: str, package: str, model: str, device: str, single_threaded: bool = False
    ) -> None:
        self._on_device = device == "cuda"
        # The dynamic linker asks the libraries of the global scope, in this order, before those that the package's
        # library needs. The recorder finds the driver there.
        self._front = ctypes.CDLL(front, mode=ctypes.RTLD_GLOBAL)
        if self._on_device:
            ctypes.CDLL(_DRIVER, mode=ctypes.RTLD_GLOBAL)
        self._recorder = ctypes.CDLL(recorder)
        self._recorder.aoti_debug_interposer_hooks.restype = ctypes.c_void_p
        self._recorder.aoti_debug_interposer_begin.argtypes = (ctypes.c_void_p,)
        self._recorder.aoti_debug_interposer_end.argtypes = (ctypes.c_uint32,)
        self._front.aoti_debug_interposer_attach.argtypes = (ctypes.c_void_p,)
        self._front.aoti_debug_interposer_attach(self._recorder.aoti_debug_interposer_hooks())
        self._model = load_model.load(archive.inspect(package), model, device, single_threaded)

    @property
    def signature(self) -> ModelSignature:
        """The number of inputs and their structure, which is all that torch keeps of them."""
        from torch.utils import _pytree as pytree

        in_spec = self._model.in_spec
        count = pytree.treespec_loads(in_spec).num_leaves
        return ModelSignature(tuple(Leaf(f"input {i}") for i in range(count)), in_spec)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._recorder.aoti_debug_interposer_begin(self._stream())
        try:
            result = self._model(*args, **kwargs)
        except BaseException:
            self._recorder.aoti_debug_interposer_end(1)
            raise
        self._recorder.aoti_debug_interposer_end(0)
        return result

    def _stream(self) -> int | None:
        """The handle of the stream that torch runs the model on; None on a CPU."""
        import torch

        return int(torch.cuda.current_stream().cuda_stream) if self._on_device else None
