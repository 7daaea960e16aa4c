"""Try a face in a process of its own, without the runtime type checks that the tests put around the package.

python -m tests.faces bpkr [--examples | --single-precision | --other-numbers [NAME ...]]
"""

import importlib
import json
import sys

from theorykit import enable_float64

from .engine import as_dictionary, try_examples, try_face, try_other_numbers, try_single_precision

enable_float64()
name, *options = sys.argv[1:]
face = importlib.import_module(f"tests.faces.{name}_face").FACE
match options:
    case []:
        report = try_face(face)
    case ["--examples"]:
        report = try_examples(face)
    case ["--single-precision"]:
        report = try_single_precision(face)
    case ["--other-numbers", *only]:
        report = try_other_numbers(face, tuple(only))
print(json.dumps(as_dictionary(report)))
