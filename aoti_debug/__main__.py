"""`python -m aoti_debug`."""

from aoti_debug.cli.main import main

main()
