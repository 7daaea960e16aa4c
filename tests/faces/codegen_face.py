"""The parameters of the code generator."""

from sympy import Symbol, exp

from theorykit import codegen
from theorykit.codegen import MATRICES, batch

from .engine import Face, public_names
from .values import EMPTY, Kind, of, text

X = Symbol("x", real=True)
PROGRAM = codegen.lower("f", {"out": exp(X)}, (X,))
COMPILED = codegen.compile_expressions("f", {"out": exp(X)}, (X,))

FACE = Face(
    codegen,
    {
        "name": text("f"),
        "what": text("a symbol"),
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
        "program": of(PROGRAM, function=COMPILED),
        "expression": of(exp(X), "values", symbol_without_value=exp(Symbol("z"))),
        "check_covered.expression": exp(X),
        "values CompiledFunction.call_from.values": of(Kind(lambda: {"x": 1.0}), of_others={"y": 1.0}),
        "bound_sizes.arguments": of((X,), admits=EMPTY, text="x", numbers=(1.0,), of_text=("x",)),
    },
    any_precision={"CompiledFunction.call_from": "generated code has the precision of its arguments"},
    instances={"CompiledFunction": COMPILED, "Program": PROGRAM},
    records={
        "CompiledFunction": "compile_expressions makes it",
        "Instruction Program": "lower makes it",
        "Vocabulary": "BATCH and MATRICES are all there are",
    },
    untried={
        "check_name.what": "errors say it as it is",
        "CompiledFunction.__call__": "Python itself refuses arguments of other names; their values may be traced",
        " ".join(f"batch.{name}" for name in public_names(batch)): "generated code calls it",
    },
)
