"""What the parameters of the code generator's public callables are."""

from functools import cache

from sympy import Symbol, exp

from theorykit import codegen
from theorykit.codegen import BATCH, batch

from .engine import Face
from .values import Kind, instance, text

X = Symbol("x", real=True)
NOT_SYMBOLS = {"text": "x", "an expression": (X + 1,), "numbers": (1.0,), "of text": ("x",), "one symbol": X}


@cache
def compiled():
    return codegen.compile_expressions("f", {"out": exp(X)}, (X,))


FACE = Face(
    codegen,
    {
        "name": text("f", any_text=True),
        "outputs": Kind(
            lambda: {"out": exp(X)},
            called=("output",),
            also=lambda: {
                "of text": {"out": "x"},
                "of numbers": {"out": 1.0},
                "by number": {1: X},
                "by code": {"x)": X},
            },
        ),
        "arguments": Kind(
            lambda: (X,),
            # the expression then has a symbol that is no argument, and the error says so
            called=("arguments", "symbols"),
            also=lambda: NOT_SYMBOLS,
        ),
        "vocabulary": instance(lambda: BATCH, also=lambda: {"a module": batch}),
        "expression": instance(lambda: exp(X), "values", also=lambda: {"a symbol that has no value": exp(Symbol("z"))}),
        "values": Kind(lambda: {"x": 1.0}, also=lambda: {"of others": {"y": 1.0}}),
        "CompiledFunction.call_from.values": Kind(lambda: {"x": 1.0}, also=lambda: {"of others": {"y": 1.0}}),
    },
    any_precision={"CompiledFunction.call_from": "generated code has the precision of its arguments"},
    instances={"CompiledFunction": compiled},
    records={"CompiledFunction": "compile_expressions makes it"},
    untried={"CompiledFunction.__call__": "Python itself refuses arguments of other names; their values may be traced"},
)
