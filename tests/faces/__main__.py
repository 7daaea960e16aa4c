"""Try packages in a separate process, without the runtime type checks that the tests put around them.

    python -m tests.faces mistakes dmft saddle compiled dmft:Parameters,Window

The last line printed is the report on every package, by trial and name.
"""

import argparse
import importlib
import json

import jax

from theorykit import enable_float64

from .engine import TRIALS, Report

parser = argparse.ArgumentParser(prog="python -m tests.faces", description=__doc__)
parser.add_argument("words", nargs="+", help="a trial, the packages that it is for, another trial, and so on")
parser.add_argument("--setting", nargs=2, help="a setting of JAX and its value in JSON")
given = parser.parse_args()
enable_float64()
packages = [word.partition(":")[0] for word in given.words if word not in TRIALS]
tables = {name: importlib.import_module(f"tests.faces.{name}_face").FACE for name in packages}
if given.setting:
    jax.config.update(given.setting[0], json.loads(given.setting[1]))
reports = {}
for word in given.words:
    if word in TRIALS:
        trial = word
        continue
    name, _, only = word.partition(":")
    try:
        report = TRIALS[trial](tables[name], only.split(",") if only else ())
    except LookupError as missing:
        report = Report(0, missing.args)
    reports[f"{trial} {name}"] = report
print(json.dumps(reports))
