"""`python -m theorykit`: the `theorykit` command."""

from .cli import main

main()
