"""Run the `theorykit` command with `python -m theorykit`."""

from .cli import main

main()
