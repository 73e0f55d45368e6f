"""The inputs of calls, kept in files."""

from __future__ import annotations

import itertools
import os
import time
from collections import defaultdict
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
import torch

from aoti_debug.app.execute import call_file, kept_inputs
from aoti_debug.app.execute.call_file import KeptCall, KeptEnd
from aoti_debug.app.execute.kept_inputs import NOT_FINITE, KeptInputs, kept_calls


def doubled(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    results = [tensor * 2 for tensor in inputs if tensor.is_floating_point()]
    inputs[0].zero_()
    return results


def kept(run: Path, package: str = "a", order: int = 0) -> dict[int, KeptCall]:
    return {call.number: call for call in kept_calls(run, os.getpid(), package, order)}


@pytest.fixture(autouse=True)
def no_calls_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_inputs, "_orders", defaultdict(count))


def test_tensors_are_what_they_were(tmp_path: Path) -> None:
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=False)
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    inputs = [
        base.clone(),
        base.t()[1:, ::2],
        base[:1].expand(3, 6),
        torch.tensor(7),
        torch.zeros(0, 3),
        torch.ones(2, requires_grad=True).to(torch.bfloat16),
    ]
    expected = [tensor.detach().clone() for tensor in inputs]
    assert use.call(doubled, inputs)[0].sum().item() == 2 * base.sum()
    found = kept(tmp_path)[0]
    assert found.end is KeptEnd.RETURNED
    for tensor, original, before in zip(found.tensors(), inputs, expected, strict=True):
        assert (tensor.dtype, tensor.shape, tensor.stride()) == (before.dtype, before.shape, original.stride())
        assert torch.equal(tensor, before)


def test_tensors_share_what_memory_they_shared(tmp_path: Path) -> None:
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=False)
    base, bytes_ = torch.arange(40.0), torch.arange(64, dtype=torch.uint8)
    inputs = [base[20:], base[:8], base[4:12].view(2, 4).t(), torch.ones(3), base[20:], base[12:16]]
    inputs += [bytes_[1:9], bytes_[4:12].view(torch.float32), base[3:3], torch.zeros(0)]
    use.call(lambda _: [], inputs)
    found = kept(tmp_path)[0].tensors()
    for tensor, original in zip(found, inputs, strict=True):
        assert (tensor.shape, tensor.stride()) == (original.shape, original.stride())
        assert torch.equal(tensor.nan_to_num(), original.nan_to_num())
    shared = [(0, 4), (1, 2), (6, 7)]
    for one, other in itertools.combinations(range(len(found)), 2):
        same = found[one].untyped_storage().data_ptr() == found[other].untyped_storage().data_ptr() != 0
        assert same == ((one, other) in shared)
    assert found[2].data_ptr() - found[1].data_ptr() == 16
    found[1][4] = -1
    assert found[2][0, 0] == -1
    assert kept(tmp_path)[0].file.stat().st_size < 2048


def test_storages_of_one_memory_and_tensors_within_elements(tmp_path: Path) -> None:
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=False)
    array, data = numpy.arange(10, dtype=numpy.float32), bytearray(range(100))
    inputs = [torch.from_numpy(array), torch.from_numpy(array[4:])]
    inputs += [torch.frombuffer(data, dtype=torch.int64, offset=at, count=4) for at in (12, 20)]
    inputs.append(torch.frombuffer(data, dtype=torch.int32, offset=2, count=4))
    use.call(lambda _: [], inputs)
    found = kept(tmp_path)[0].tensors()
    for tensor, original in zip(found, inputs, strict=True):
        assert torch.equal(tensor, original)
    found[0][4] = -1
    assert found[1][0] == -1


def test_what_torch_negates_and_conjugates(tmp_path: Path) -> None:
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=False)
    conjugate = torch.randn(3, 2, dtype=torch.complex64).conj()
    inputs = [conjugate, conjugate.imag, conjugate.imag.resolve_neg(), torch.ones(2)]
    use.call(lambda _: [], inputs)
    for tensor, original in zip(kept(tmp_path)[0].tensors(), inputs, strict=True):
        assert torch.equal(tensor, original)
        assert (tensor.is_neg(), tensor.is_conj()) == (original.is_neg(), original.is_conj())


def test_the_last_calls_and_the_one_that_failed(tmp_path: Path) -> None:
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=False)

    def fails(_: Any) -> None:
        raise ValueError("of the model")

    for number in range(9):
        use.call(doubled, [torch.full((number,), float(number))])
    with pytest.raises(ValueError, match="of the model"):
        use.call(fails, [torch.full((2,), 9.0)])
    found = kept(tmp_path)
    assert [number for number in sorted(found) if found[number].end is KeptEnd.RETURNED] == [6, 7, 8]
    assert found[9].end is KeptEnd.RAISED
    assert found[9].tensors()[0].tolist() == [9, 9]


@pytest.mark.parametrize("calls", [1, 6])
def test_a_process_that_was_forked_numbers_its_own_calls(tmp_path: Path, calls: int) -> None:
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=False)
    for _ in range(calls):
        use.call(doubled, [torch.ones(2)])
    child = os.fork()
    if not child:
        try:
            use.call(doubled, [torch.full((2,), 5.0)])
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    (of_child,) = kept_calls(tmp_path, child, "a", 0)
    assert (of_child.number, of_child.tensors()[0].tolist()) == (0, [5, 5])
    assert sorted(kept(tmp_path)) == list(range(calls))[-4:]
    assert all(call.tensors()[0].tolist() == [1, 1] for call in kept(tmp_path).values())


def test_tensors_of_other_layouts_get_files_of_their_own(tmp_path: Path) -> None:
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=False)
    inputs = [torch.arange(6.0), torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2).t(), torch.arange(6)]
    for number in range(12):
        use.call(lambda _: [], [inputs[number % 4 if number < 8 else 0]])
    found = kept(tmp_path)
    assert sorted(found) == [8, 9, 10, 11]
    assert all(torch.equal(call.tensors()[0], inputs[0]) for call in found.values())


def test_the_first_call_that_is_not_finite(tmp_path: Path) -> None:
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=True)
    for number in range(9):
        use.call(doubled, [torch.tensor([float("inf") if number in (2, 3) else number])])
    found = [call for call in kept(tmp_path).values() if call.file.name == NOT_FINITE]
    assert [call.number for call in found] == [2]
    assert found[0].tensors()[0].tolist() == [float("inf")]


def test_models_of_a_package_are_told_apart_by_their_first_calls(tmp_path: Path) -> None:
    loaded = [KeptInputs("a.pt2", tmp_path, "a", keeps_all=False) for _ in range(3)]
    for use in (loaded[2], loaded[0], loaded[2]):
        use.call(doubled, [torch.tensor([float(loaded.index(use))])])
    assert kept(tmp_path, order=0)[0].tensors()[0].item() == 2
    assert kept(tmp_path, order=1)[0].tensors()[0].item() == 0
    assert not kept(tmp_path, order=2)


def test_nothing_is_kept_that_costs_too_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_inputs, "_MEASURED", 0.0)
    monkeypatch.setattr(kept_inputs, "_SHARE", 0.0)
    for keeps_all in (False, True):
        use = KeptInputs("a.pt2", tmp_path, str(keeps_all), keeps_all=keeps_all)
        for _ in range(3):
            use.call(doubled, [torch.ones(4)])
        assert bool(kept(tmp_path, str(keeps_all))) == keeps_all


def test_a_copy_that_another_process_has_interrupted_is_not_what_copies_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill = call_file.CallFile.fill

    def interrupted(file: Any, number: int, inputs: list[torch.Tensor]) -> None:
        fill(file, number, inputs)
        if number == 30:
            time.sleep(0.15)

    monkeypatch.setattr(call_file.CallFile, "fill", interrupted)
    monkeypatch.setattr(kept_inputs, "_MEASURED", 0.1)
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=False)
    for _ in range(40):
        use.call(doubled, [torch.ones(4)])
    assert sorted(kept(tmp_path)) == [36, 37, 38, 39]


def test_a_file_without_room_is_no_error_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=True)
    assert use.call(doubled, [torch.ones(1)])[0].item() == 2


def test_a_device_that_has_failed_says_so_in_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", fails)
    use = KeptInputs("a.pt2", tmp_path, "a", keeps_all=True)
    storage = SimpleNamespace(data_ptr=lambda: 64, nbytes=lambda: 4)
    layout = {"dtype": torch.float32, "shape": (1,), "stride": lambda: (1,), "untyped_storage": lambda: storage}
    on_gpu: Any = SimpleNamespace(is_cpu=False, is_neg=lambda: False, is_conj=lambda: False, nbytes=4, **layout)
    assert use.call(lambda _: [], [on_gpu]) == []
    assert not use._is_ended  # what comes later is kept again
    assert not kept(tmp_path)
