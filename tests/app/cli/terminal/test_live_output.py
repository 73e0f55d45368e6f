from __future__ import annotations

from pathlib import Path

from aoti_debug.app.cli.terminal.live_output import SavedSoFar, launches_per_call
from tests.factories import make_manifest, site

KERNELS = make_manifest(site("cpp_fused_relu_0"), site("triton_poi_fused_1"))


def test_how_much_was_saved_so_far(tmp_path: Path) -> None:
    saved = SavedSoFar(tmp_path / "tensors", 4, 2)
    saved.update()
    assert (saved.text(), saved.launches, saved.total) == ("running", 0, 8)
    for folder, size in (("0/0003_a", 1000), ("0/0000_b", 24), ("c0/0009_c", 5000)):
        path = tmp_path / "tensors" / folder
        path.mkdir(parents=True)
        (path / "x.safetensors").write_bytes(bytes(size))
        (path / ".x.tmp").write_bytes(bytes(7))
    saved.update()
    assert (saved.text(), saved.launches) == ("launch 0.3: 2 tensors, 1.0 KiB", 4)
    newest = tmp_path / "tensors" / "1/0010_d"
    newest.mkdir(parents=True)
    (newest / "y.safetensors").write_bytes(bytes(1024))
    saved.update()
    assert saved.text() == "launch 1.10: 3 tensors, 2.0 KiB"


def test_launches_that_a_call_has() -> None:
    assert launches_per_call(KERNELS) == 2
    assert launches_per_call(make_manifest(site("k"), site("c", function="_const_run_impl"))) == 1
    assert launches_per_call(make_manifest(site("k"), site("b", subgraph="true_graph_0"))) is None
    assert launches_per_call(make_manifest(site("k", loops=1))) is None
