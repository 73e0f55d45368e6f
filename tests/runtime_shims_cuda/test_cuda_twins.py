"""The runtime's two halves tell the same of the same elements."""

from __future__ import annotations

import pytest
import torch

from tests.runtime_shims_cuda import samples
from tests.runtime_shims_cuda.checks import check_twins
from tests.runtime_shims_cuda.device_library import DeviceLibrary, HostLibrary
from tests.runtime_shims_cuda.samples import VIEWS


@pytest.mark.parametrize("dtype", samples.DTYPES, ids=samples.name)
@pytest.mark.parametrize("count", [0, 1, 8, 65, 5000])
def test_sizes(device: DeviceLibrary, host: HostLibrary, dtype: torch.dtype, count: int) -> None:
    for tensor in (samples.ordinary(dtype, count), samples.random_bits(dtype, count)):
        check_twins(device.statistics(tensor), host.statistics(tensor), dtype)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.complex64], ids=samples.name)
def test_views(device: DeviceLibrary, host: HostLibrary, dtype: torch.dtype, view: str) -> None:
    tensor = VIEWS[view](samples.ordinary(dtype, 1008))
    check_twins(device.statistics(tensor), host.statistics(tensor), dtype)
