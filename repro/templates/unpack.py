"""Unpacks the modules and tensors of a repro that is one file; this text is copied into it."""

import base64
import hashlib
import io
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

MARK = "\n# The modules and tensors of this repro: a zip archive in base64.\n"


def unpack(script: Path) -> Path:
    """Unpacks the archive at the end of this file next to it, or else into a temporary folder; returns the folder."""
    lines = script.read_text(encoding="utf-8").rpartition(MARK)[2].splitlines()
    packed = base64.b64decode("".join(line.removeprefix("# ") for line in lines))
    key = hashlib.sha256(packed).hexdigest()
    folder = script.with_suffix(".unpacked")
    if (folder / "key").is_file() and (folder / "key").read_text() == key:
        return folder
    writable = os.access(script.parent, os.W_OK)
    unfinished = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=script.parent if writable else None))
    zipfile.ZipFile(io.BytesIO(packed)).extractall(unfinished)
    (unfinished / "key").write_text(key)
    if not writable:
        return unfinished
    shutil.rmtree(folder, ignore_errors=True)
    return unfinished.rename(folder)
