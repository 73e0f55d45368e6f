"""A new process for a module: `python -m aoti_debug.base.machine.processes.module_process MODULE ARGUMENT...`."""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Calls the `main` of a module that is imported by its own name, as in a forked process, and not as `__main__`."""
    sys.argv = sys.argv[1:]
    sys.exit(importlib.import_module(sys.argv[0]).main())


if __name__ == "__main__":
    main()
