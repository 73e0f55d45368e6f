from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from aoti_debug.base.machine.files import cgroup_memory


def free(root: Path, groups: str, files: Mapping[str, str]) -> int | None:
    for name, text in files.items():
        path = root / "mounted" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "groups").write_text(groups)
    return cgroup_memory.free_bytes(root / "groups", root / "mounted")


STAT = "anon 70\nactive_file 20\ninactive_file 10\nslab_reclaimable 5\n"


@pytest.mark.parametrize("path", ["/a/b", "/only/outside/of/the/container/a"])
def test_version_2(tmp_path: Path, path: str) -> None:
    top = {"memory.max": "1000\n", "memory.current": "400\n", "memory.stat": STAT}
    own = {"a/b/memory.max": "500\n", "a/b/memory.current": "200\n", "a/b/memory.stat": STAT}
    files = {**top, "a/memory.max": "max\n", **own}
    assert free(tmp_path, f"0::{path}\n", files) == {"/a/b": 335}.get(path, 635)


def test_version_1(tmp_path: Path) -> None:
    stat = "cache 9\ntotal_active_file 100\ntotal_inactive_file 50\nactive_file 1\n"
    group = {"limit_in_bytes": "1000\n", "usage_in_bytes": "1200\n"}
    files = {f"memory/x/memory.{name}": text for name, text in group.items()}
    files |= {"memory/x/memory.stat": stat, "memory/memory.limit_in_bytes": "9223372036854771712\n"}
    assert free(tmp_path, "9:name=systemd:/\n4:cpu,memory:/x\n0::/\n", files) == 0
    assert free(tmp_path, "4:cpu,memory:/x\n", {"memory/x/memory.usage_in_bytes": "300"}) == 850


def test_no_limit(tmp_path: Path) -> None:
    assert free(tmp_path, "0::/\n", {"memory.max": "max\n"}) is None
    assert free(tmp_path, "4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}) is None
    assert cgroup_memory.free_bytes(tmp_path / "missing", tmp_path) is None
