"""Inductor's record of the configurations that it compiled Triton kernels with."""

from __future__ import annotations

import pytest

from aoti_debug.instrument.frontend.protocol.messages import TritonConfig
from aoti_debug.instrument.frontend.worker.lower import triton_configs


def test_every_kernel_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    tl = pytest.importorskip("triton.language")
    from torch._inductor.codecache import CudaKernelParamCache

    config = {"XBLOCK": 128, "KIND": tl.float32, "FAST": True, "num_warps": 4, "num_stages": 1}
    kept = {
        "triton_poi_fused_0": {"config": config, "global_scratch": None, "profile_scratch": None, "num_warps": 4},
        "add_kernel_0": {"config": {"num_warps": 8}, "global_scratch": 512},
    }
    monkeypatch.setattr(CudaKernelParamCache, "cache", kept)
    assert triton_configs() == {
        "triton_poi_fused_0": TritonConfig(
            (
                ("XBLOCK", "128"),
                ("KIND", "triton.language.float32"),
                ("FAST", "True"),
                ("num_warps", "4"),
                ("num_stages", "1"),
            )
        ),
        "add_kernel_0": TritonConfig((("num_warps", "8"),), global_scratch=512),
    }
