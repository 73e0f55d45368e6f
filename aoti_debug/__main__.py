"""`python -m aoti_debug`, and the console script."""

from __future__ import annotations

import gc


def main() -> None:
    """Runs the command line.

    Python's cycle collector is off: a run of many launches is millions of objects, none of them in a cycle.
    """
    gc.disable()
    from aoti_debug.app.cli.main import main as command_line

    command_line()


if __name__ == "__main__":
    main()
