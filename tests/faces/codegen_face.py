"""The parameters of the code generator."""

from sympy import Symbol, exp

from theorykit import codegen
from theorykit.codegen import batch
from theorykit.codegen.emission import MATRICES

from .engine import Face
from .values import Kind, of, text

X = Symbol("x", real=True)

FACE = Face(
    codegen,
    {
        "name": text("f"),
        "outputs": of(
            {"out": exp(X)},
            "output",
            of_text={"out": "x"},
            of_numbers={"out": 1.0},
            by_code={"x)": X},
        ),
        # without an argument the expression has a symbol too many, and the error says so
        "arguments": of((X,), "symbols", text="x", expression=(X + 1,), numbers=(1.0,), of_text=("x",), one_symbol=X),
        "vocabulary": of(MATRICES, module=batch),
        "expression": of(exp(X), "values", symbol_without_value=exp(Symbol("z"))),
        "values": of(Kind(lambda: {"x": 1.0}), of_others={"y": 1.0}),
    },
    instances={"CompiledFunction": codegen.compile_expressions("f", {"out": exp(X)}, (X,))},
    made="CompiledFunction",
    untried={"CompiledFunction.__call__": "Python itself refuses arguments of other names; their values may be traced"},
    any_precision={"CompiledFunction.call_from": "generated code has the precision of its arguments"},
)
