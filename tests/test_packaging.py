"""The packages that pyproject.toml lists, which are what a wheel contains."""

from __future__ import annotations

import os
import re
from pathlib import Path

from paths import PACKAGE

SUFFIXES = {".py", ".h", ".cpp", ".cu", ".ptx"}
LISTED = re.compile(r"^packages = \[$(.*?)^\]$", re.MULTILINE | re.DOTALL)


def test_every_folder_with_code_is_a_package() -> None:
    folders = {
        Path(folder).relative_to(PACKAGE.parent)
        for folder, _, names in os.walk(PACKAGE, followlinks=True)
        if any(Path(name).suffix in SUFFIXES for name in names)
    }
    listed = LISTED.search((PACKAGE.parent / "pyproject.toml").read_text())
    assert listed is not None
    assert set(re.findall(r'"(.*)"', listed[1])) == {".".join(folder.parts) for folder in folders}
