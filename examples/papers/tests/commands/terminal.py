"""Run the commands as a user at the terminal."""

from functools import partial

from papers.cli import main
from tests.cli import terminal

run = partial(terminal.run, main=main)
refused = partial(terminal.refused, main=main)
