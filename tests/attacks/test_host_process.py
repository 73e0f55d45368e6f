"""A host that loads and unloads an instrumented package again and again, and a full disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from aoti_debug.base.machine.compiler import find_compiler

SHIMS = Path(__file__).parents[2] / "runtime_shims"

RELOADS = """
import gc, os, sys
import torch
from tests import faulty_ops
for _ in range(12):
    loader = torch._C._aoti.AOTIModelPackageLoader(sys.argv[1], "model", False, 1, -1)
    loader.boxed_run([torch.ones(2, 4)])
    del loader
    gc.collect()
names = [os.readlink(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
print(sum("journal" in name or "aoti_debug" in name for name in names), flush=True)
os._exit(0)
"""

DISK = r"""
#include <stdio.h>
#include <stdlib.h>
#include <sys/statvfs.h>

#include "saving/save_budget.h"

static unsigned long long g_free = 0;
extern "C" int statvfs(const char*, struct statvfs* disk) {
  *disk = {};
  disk->f_frsize = 1;
  disk->f_bavail = g_free;
  return 0;
}

int main(int, char** arguments) {
  g_free = strtoull(arguments[1], nullptr, 10);
  aoti_debug::SaveLimits limits{1 << 30, 100, 1 << 30, 1000};
  aoti_debug::SaveBudget budget("/", limits);
  budget.reserve(strtoull(arguments[2], nullptr, 10));
  puts(budget.take_stop_reason().c_str());
}
"""


def test_a_run_ends_with_the_last_container_of_its_models(faulty_package: Path, tmp_path: Path) -> None:
    import os

    environment = {**os.environ, "AOTI_DEBUG_DIR": str(tmp_path), "AOTI_DEBUG_LEVEL": "3", "AOTI_DEBUG_PRINT": "none"}
    command = [sys.executable, "-c", RELOADS, str(faulty_package)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0"]
    kinds = [
        json.loads(path.read_text())["exit"]["kind"]
        for path in tmp_path.glob("*/run.json")
        if path.parent.name != "latest"
    ]
    assert kinds == ["clean"] * 12


def test_a_full_disk_is_called_full(tmp_path: Path) -> None:
    (tmp_path / "disk.cpp").write_text(DISK)
    program = tmp_path / "disk"
    sources = [str(tmp_path / "disk.cpp"), str(SHIMS / "saving/save_budget.cpp")]
    subprocess.run([find_compiler().path, "-std=c++17", f"-I{SHIMS}", *sources, "-o", str(program)], check=True)

    def reason(free: int, wanted: int) -> str:
        return subprocess.run(
            [program, str(free), str(wanted)], capture_output=True, text=True, check=True
        ).stdout.strip()

    for free, bytes_ in ((0, 0), (0, 100), (50, 100)):
        assert reason(free, bytes_).startswith("the disk is full: a file needs 1 MiB, and 0 MiB are free; ")
    assert reason(1050, 100).startswith("the disk would have less than AOTI_DEBUG_KEEP_FREE_BYTES left: a file needs ")
    assert reason(2000, 100) == ""
