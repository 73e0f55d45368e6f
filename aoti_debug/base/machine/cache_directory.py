"""The root of the persistent cache. Its bytecode is looked for here before anything else is imported."""

from __future__ import annotations

import os

from aoti_debug.base.machine import user_directories
from aoti_debug.base.machine.files import private_directory


def make() -> str:
    """Creates and returns it; where no private one can be made, a folder in the temporary directory.

    Libraries, objects and bytecode in it are executed, so that nobody else may write there. A path with a space is not
    used: Inductor cannot compile there.

    Raises:
        OSError: there is no place for it.
    """
    root = user_directories.cache()
    if " " not in root and private_directory.make(root):
        return root
    from aoti_debug.base.machine.files import private_temporary_directory  # 50 modules more, seldom needed

    return str(private_temporary_directory.make(f"aoti_debug-{os.getuid()}"))
