"""Try a face in a process of its own, without the runtime type checks that the tests put around the package.

python -m tests.faces bpkr [--examples]
"""

import importlib
import json
import sys

from theorykit import enable_float64

from .engine import as_dictionary, try_examples, try_face

enable_float64()
name, *options = sys.argv[1:]
face = importlib.import_module(f"tests.faces.{name}_face").FACE
print(json.dumps(as_dictionary((try_examples if "--examples" in options else try_face)(face))))
