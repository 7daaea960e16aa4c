"""Try packages in a separate process, without the runtime type checks that the tests put around them.

The last line printed is the report on every package, by its name.
"""

import argparse
import dataclasses
import importlib
import json

import jax

from theorykit import enable_float64

from .axes import try_axes
from .engine import Report, try_compiled, try_examples, try_face, try_other_numbers, try_single_precision

TRIALS = {
    "mistakes": try_face,
    "examples": try_examples,
    "axes": try_axes,
    "single-precision": try_single_precision,
    "other-numbers": try_other_numbers,
    "compiled": try_compiled,
}

parser = argparse.ArgumentParser(prog="python -m tests.faces", description=__doc__)
parser.add_argument("trial", choices=TRIALS)
parser.add_argument("faces", nargs="+")
parser.add_argument("--only", nargs="+", default=[], help="names of callables, for other-numbers and compiled")
parser.add_argument("--setting", nargs=2, help="a setting of JAX and its value in JSON")
given = parser.parse_args()
enable_float64()
tables = {name: importlib.import_module(f"tests.faces.{name}_face").FACE for name in given.faces}
if given.setting:
    jax.config.update(given.setting[0], json.loads(given.setting[1]))
reports = {}
for name, face in tables.items():
    try:
        reports[name] = TRIALS[given.trial](face, *([given.only] if given.only else []))
    except LookupError as missing:
        reports[name] = Report(0, missing.args)
print(json.dumps({name: dataclasses.asdict(report) for name, report in reports.items()}))
