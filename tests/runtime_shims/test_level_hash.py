"""Level hash: the hash of every tensor, as level 2 has it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from aoti_debug.base.abi import NoteCode, StatsFlag
from tests.runtime_shims.journal_decoder import Journal
from tests.runtime_shims.reference_hash import content_hash
from tests.runtime_shims.runtime_library import IN, INOUT, OUT, Handle, Runtime, Slot

Load = Callable[..., Runtime]
Decode = Callable[[], Journal]
STATISTICS = ("n_nan", "n_pos_inf", "n_neg_inf", "n_zero", "min_bits", "max_bits", "min_index", "max_index", "mean")
SLOTS = (Slot("a", role=IN), Slot("b", role=OUT, value=1), Slot("c", role=INOUT, value=2))


def hash_of(tensor: torch.Tensor) -> int:
    return content_hash(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_tensor_has_its_hash_and_nothing_is_printed(
    load: Load,
    library: Path,
    device_library: Path,
    journal: Decode,
    capfd: pytest.CaptureFixture[str],
    device: str,
) -> None:
    runtime = load({"cpu": library, "cuda": device_library}[device], LEVEL="hash")
    site = runtime.site(0, "k", *SLOTS)
    a, b, c = torch.randn(300, 200).t(), torch.randn(3, dtype=torch.float64), torch.randint(9, (1000,))
    handles = [Handle(tensor) for tensor in (a, b, c)]
    if device == "cuda":
        for handle in handles:
            runtime.lib.f_mark(handle.pointer)
    expected = []
    for _ in range(2):
        expected += [(0, 0, hash_of(a)), (2, 0, hash_of(c))]
        with runtime.call(), runtime.launch(site, *(handle.value for handle in handles)):
            b += 1
            c += 1
        expected += [(1, 1, hash_of(b)), (2, 1, hash_of(c))]
    runtime.unload()
    found = journal()
    stats = found.of("tensor_stats")
    assert [(r.slot, r.phase, r.hash) for r in stats] == expected
    assert {r.flags for r in stats} == {StatsFlag.HASH_ONLY}
    assert [r.numel for r in stats[:4]] == [60000, 1000, 3, 1000]
    assert {r.fields[name] for r in stats for name in STATISTICS} == {0}
    assert {r.tail for r in stats} == {b""}
    assert {r.level for r in found.of("call_begin")} == {4}
    assert capfd.readouterr().err == ""


def test_a_transposed_tensor_that_changes_between_launches(load: Load, journal: Decode) -> None:
    runtime = load(LEVEL="hash", PHASE="before")
    site = runtime.site(0, "k", Slot("w", role=IN))
    w = torch.randn(200, 300)
    views = (w.t(), w.t(), w, w.t()[:100], w.reshape(300, 200).t())
    handles = [Handle(view) for view in views]
    expected = []
    with runtime.call():
        for change in (0, 0, 1):
            w[3, 4] += change
            for view, handle in zip(views, handles, strict=True):
                expected.append(hash_of(view))
                with runtime.launch(site, handle.value):
                    pass
    runtime.unload()
    assert [r.hash for r in journal().of("tensor_stats")] == expected


def test_what_has_no_bytes_yet_or_cannot_be_read(load: Load, journal: Decode) -> None:
    runtime = load(LEVEL="hash", PHASE="before")
    site = runtime.site(0, "k", Slot("a", role=OUT), Slot("b", role=IN, value=1))
    handles = [Handle(torch.ones(2)), Handle(torch.ones(2).to_sparse())]
    with runtime.call(), runtime.launch(site, *(handle.value for handle in handles)):
        pass
    runtime.unload()
    unset, sparse = journal().of("tensor_stats")
    assert (unset.flags, sparse.flags) == (StatsFlag.UNINITIALISED, StatsFlag.SKIPPED)


def test_under_graph_capture_nothing_is_hashed_and_nothing_printed(
    load: Load, device_library: Path, journal: Decode, capfd: pytest.CaptureFixture[str]
) -> None:
    runtime = load(device_library, LEVEL="hash")
    site = runtime.site(0, "k", Slot("x", role=INOUT))
    x = Handle(torch.ones(3))
    runtime.lib.f_mark(x.pointer)
    for capturing in (1, 0):
        runtime.lib.f_set(b"capturing", capturing)
        with runtime.call(), runtime.launch(site, x.value):
            pass
    runtime.unload()
    found = journal()
    assert [(r.flags, r.level) for r in found.of("call_begin")] == [(1, 3), (0, 4)]
    assert {r.call for r in found.of("tensor_stats")} == {1}
    assert [r.code for r in found.of("note")] == [NoteCode.CRUMBS_OFF, NoteCode.CAPTURING]
    assert capfd.readouterr().err.splitlines() == [
        "aoti-debug: no breadcrumbs in a CUDA graph: the model was not called once, outside of a capture, before",
        "aoti-debug: a CUDA graph is being captured: it keeps no hashes of tensors",
    ]


def test_a_filter_and_watchpoints_work_as_at_other_levels(load: Load, journal: Decode) -> None:
    runtime = load(LEVEL="hash", FILTER="k*", WATCH="x: max > 1", PRINT="none")
    sites = [runtime.site(i, name, Slot("x", role=IN)) for i, name in enumerate(("k", "other"))]
    x = Handle(torch.full((100,), 2.0))
    with runtime.call():
        for site in sites:
            with runtime.launch(site, x.value):
                pass
    runtime.unload()
    found = journal()
    assert [r.launch for r in found.of("tensor_stats")] == [0]
    assert len(found.of("launch_end")) == 2
    assert [r.launch for r in found.of("watch_hit")] == [0, 1]


def test_summaries_have_their_statistics(load: Load, journal: Decode, run: Path) -> None:
    runtime = load(LEVEL="hash", SUMMARIES=2)
    site = runtime.site(0, "k", Slot("x", role=INOUT))
    x = Handle(torch.full((100,), 2.0))
    for _ in range(2):
        with runtime.call(), runtime.launch(site, x.value):
            pass
    runtime.unload()
    stats = [(r.call, r.phase, r.flags, r.mean) for r in journal().of("tensor_stats")]
    only = StatsFlag.HASH_ONLY
    assert stats == [(0, 0, only, 0), (0, 1, 0, 2), (1, 0, only, 0), (1, 1, only, 0)]
