"""What the parameters of the code generator's public callables are."""

from functools import cache

from sympy import Symbol, exp

from theorykit import codegen
from theorykit.codegen import MATRICES, batch

from .engine import Face, public_names
from .values import Kind, instance, text

X = Symbol("x", real=True)
NOT_SYMBOLS = {"text": "x", "an expression": (X + 1,), "numbers": (1.0,), "of text": ("x",), "one symbol": X}


@cache
def program():
    return codegen.lower("f", {"out": exp(X)}, (X,))


@cache
def compiled():
    return codegen.compile_expressions("f", {"out": exp(X)}, (X,))


FACE = Face(
    codegen,
    {
        "name": text("f", any_text=True),
        "what": text("a symbol", any_text=True),
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
        "vocabulary": instance(lambda: MATRICES, also=lambda: {"a module": batch}),
        "program": instance(program, also=lambda: {"a function": compiled()}),
        "expression": instance(lambda: exp(X), "values", also=lambda: {"a symbol that has no value": exp(Symbol("z"))}),
        "check_covered.expression": instance(lambda: exp(X)),
        "values": Kind(lambda: {"x": 1.0}, also=lambda: {"of others": {"y": 1.0}}),
        "CompiledFunction.call_from.values": Kind(lambda: {"x": 1.0}, also=lambda: {"of others": {"y": 1.0}}),
        "bound_sizes.arguments": Kind(
            lambda: (X,),
            dict.fromkeys(("an empty list", "an empty array"), "a function of no arguments knows no sizes"),
            lambda: {"text": "x", "numbers": (1.0,), "of text": ("x",)},
        ),
    },
    any_precision={"CompiledFunction.call_from": "generated code has the precision of its arguments"},
    instances={"CompiledFunction": compiled, "Program": program},
    records={
        "CompiledFunction": "compile_expressions makes it",
        "Instruction": "lower makes it",
        "Program": "lower makes it",
        "Vocabulary": "BATCH and MATRICES are all there are",
    },
    untried={
        "check_name.what": "errors say it as it is",
        "CompiledFunction.__call__": "Python itself refuses arguments of other names; their values may be traced",
        **{f"batch.{name}": "generated code calls it" for name in public_names(batch)},
    },
)
