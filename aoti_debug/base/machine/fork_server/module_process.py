"""A new process for a module: `python -m aoti_debug.base.machine.fork_server.module_process MODULE ARGUMENT...`."""

from __future__ import annotations

import sys

from aoti_debug.base.machine import bytecode_cache


def main() -> None:
    """Calls the module's `main` as `python -m MODULE` does, with the bytecode cache where Python keeps none."""
    bytecode_cache.use()
    import importlib

    sys.argv = sys.argv[1:]
    sys.exit(importlib.import_module(sys.argv[0]).main())


if __name__ == "__main__":
    main()
