"""Files of the runtime on a disk that is full."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.runtime_shims.runtime_library import FLAGS, SHIMS

# A disk that has half of what is asked for gives it, and extends the file, before it says that it is full.
PROGRAM = """
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>
#include "machine/file.h"
extern "C" int posix_fallocate(int file, off_t at, off_t bytes) {
  return ftruncate(file, at + bytes / 2) == 0 ? ENOSPC : EIO;
}
int main(int, char** words) {
  aoti_debug::File file;
  if (aoti_debug::create_file(words[1], &file) != 0 || aoti_debug::write_at(file, "abc", 3, 0) != 0) return 1;
  return aoti_debug::allocate(file, 3, 1 << 20) == ENOSPC ? 0 : 2;
}
"""


@pytest.mark.usefixtures("compiler")
def test_a_part_that_a_full_disk_gave_is_given_back(tmp_path: Path) -> None:
    source, program, file = tmp_path / "program.cpp", tmp_path / "program", tmp_path / "file"
    source.write_text(PROGRAM)
    sources = [str(source), str(SHIMS / "machine/file.cpp")]
    subprocess.run(["g++", *FLAGS, f"-I{SHIMS}", *sources, "-o", str(program)], check=True)
    assert subprocess.run([program, file]).returncode == 0
    assert file.read_bytes() == b"abc"
