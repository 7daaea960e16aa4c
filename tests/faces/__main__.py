"""Try faces in a process of its own, without the runtime type checks that the tests put around the package.

python -m tests.faces FACE ... [--examples | --axes | --setting NAME VALUE | --single-precision]
python -m tests.faces FACE ... [--other-numbers [NAME ...] | --compiled [NAME ...]]

The last line printed is the report on every face, by its name.
"""

import importlib
import json
import sys
from itertools import takewhile

import jax

from theorykit import enable_float64

from .axes import try_axes
from .engine import as_dictionary, try_compiled, try_examples, try_face, try_other_numbers, try_single_precision

enable_float64()
names = list(takewhile(lambda argument: not argument.startswith("-"), sys.argv[1:]))
reports = {}
for name in names:
    face = importlib.import_module(f"tests.faces.{name}_face").FACE
    match sys.argv[1 + len(names) :]:
        case []:
            reports[name] = try_face(face)
        case ["--examples"]:
            reports[name] = try_examples(face)
        case ["--axes"]:
            reports[name] = try_axes(face)
        case ["--setting", setting, value]:
            jax.config.update(setting, json.loads(value))
            reports[name] = try_examples(face)
        case ["--single-precision"]:
            reports[name] = try_single_precision(face)
        case ["--other-numbers", *only]:
            reports[name] = try_other_numbers(face, tuple(only))
        case ["--compiled", *only]:
            reports[name] = try_compiled(face, tuple(only))
print(json.dumps({name: as_dictionary(report) for name, report in reports.items()}))
