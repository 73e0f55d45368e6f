"""`python -m aoti_debug`, and the console script."""

from __future__ import annotations

import gc

from aoti_debug.base.machine import bytecode_cache


def main() -> None:
    """Runs the command line, whose modules come from the bytecode cache where Python keeps none.

    Python's cycle collector is off: a run of many launches is millions of objects, none of them in a cycle.
    """
    gc.disable()
    bytecode_cache.use()
    from aoti_debug.app.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
