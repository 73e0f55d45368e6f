"""Links that open a line of the model in an editor: vscode://file/home/u/model.py:23."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote

from aoti_debug.package.manifest import ModelLine
from aoti_debug.runs.rundir.run_directory import RunDir

_SCHEME = "vscode://file"


def editor_links(runs: Iterable[RunDir], lines: Iterable[ModelLine] = ()) -> Mapping[str, str]:
    """The links of the files of model lines, by file; a link is complete with ":LINE" behind it.

    Only of files that this machine has, and of none if a run was not made on this account: what it names is not looked
    up.

    Args:
        runs: whose model lines are shown.
        lines: others that are shown with them.
    """
    known = tuple(runs)
    if not known or not all(run.is_made_here for run in known):
        return {}
    shown = {frame.file for run in known for site in run.manifest.sites for frame in site.provenance.source}
    shown |= {line.file for line in lines}
    return {file: f"{_SCHEME}{quote(file)}" for file in sorted(shown) if os.path.isabs(file) and Path(file).is_file()}
