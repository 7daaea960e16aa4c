"""The symbolic action: expressions, what follows from them by differentiation, and their compiled form."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from sympy import Add, Expr, Integer, MatrixSymbol, Poly, Symbol, asinh, exp, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..codegen import CompiledFunction, compile_expressions
from ..symbolic import Equation, align_environment, fold, gradient, latex, markdown_sections


@dataclass(frozen=True)
class ActionSymbols:
    """The symbols of an action, layer by layer from the input side; readout last."""

    heads: tuple[Symbol, ...]
    widths: tuple[Symbol, ...]
    variances: tuple[Symbol, ...]
    temperature: Symbol
    matrices: tuple[MatrixSymbol, ...]
    readout: Symbol
    features: MatrixSymbol
    labels: MatrixSymbol
    test_features: MatrixSymbol
    input_features: Symbol

    @property
    def order_parameters(self) -> tuple[Expr, ...]:
        """(U_1, ..., U_L, u)."""
        return (*self.matrices, self.readout)

    @property
    def arguments(self) -> tuple[Expr, ...]:
        """Everything that the action is a function of, in the order of the generated function's arguments."""
        return (*self.order_parameters, *self.widths, *self.variances, self.temperature, self.features, self.labels)

    @property
    def latex_names(self) -> Mapping[Expr, str]:
        """LaTeX of the symbols whose own names do not print as the field writes them."""
        suffixes = (symbol.name.removeprefix("sigma2_") for symbol in self.variances)
        variances = zip(self.variances, suffixes, strict=True)
        return {
            self.test_features: r"\Phi_{*}",
            **{symbol: rf"\sigma_{{{layer}}}^{{2}}" for symbol, layer in variances},
        }


@dataclass(frozen=True)
class Predictor:
    """Mean and variance of the network's output on test examples, as columns."""

    mean: MatrixExpr
    variance: MatrixExpr


@dataclass(frozen=True)
class Action:
    """The action S of the order parameters, symbolic: their posterior goes as exp(-S/2) (Eq. 32).

    `layer_entropies` holds S_1, ..., S_L and `readout_entropy` S_a. Differentiate it, render it, compile it:
    every other room uses these expressions and no other.
    """

    heads: tuple[int, ...]
    symbols: ActionSymbols
    layer_entropies: tuple[Expr, ...]
    readout_entropy: Expr
    energy: Expr
    kernel: MatrixExpr
    test_kernel: MatrixExpr
    predictor: Predictor

    @property
    def entropy(self) -> Expr:
        """S_a + S_1 + ... + S_L."""
        return Add(self.readout_entropy, *self.layer_entropies)

    @property
    def total(self) -> Expr:
        """S, entropy plus energy."""
        return Add(self.entropy, self.energy)  # Eq. (32)

    @property
    def order_parameter_shapes(self) -> Mapping[Expr, tuple[Expr, Expr]]:
        """The shape of each order parameter; the readout's is (1, 1)."""
        one = (Integer(1), Integer(1))
        return {symbol: getattr(symbol, "shape", one) for symbol in self.symbols.order_parameters}

    @cached_property
    def saddle_point_equations(self) -> Mapping[Expr, Expr]:
        """For each order parameter, the gradient of S that vanishes at a saddle point."""
        return MappingProxyType({symbol: gradient(self.total, symbol) for symbol in self.symbols.order_parameters})

    @cached_property
    def readout_solution(self) -> Expr:
        """The readout order parameter u eliminated: the positive root of its saddle-point equation, given U_L.

        The equation, times u^2, is a u^2 + b u - c = 0 with a, c > 0. Its root is written so that nothing cancels
        whatever the sign of b.
        """
        readout = self.symbols.readout
        a, b, minus_c = Poly(expand(self.saddle_point_equations[readout] * readout**2), readout).all_coeffs()
        return sqrt(-minus_c / a) * exp(-asinh(b / (2 * sqrt(-a * minus_c))))

    @cached_property
    def compiled(self) -> CompiledFunction:
        """The JAX function of the entropies, the energy and the total, as it runs; not jitted."""
        layers = {f"entropy_{layer}": entropy for layer, entropy in enumerate(self.layer_entropies, 1)}
        outputs = {**layers, "entropy_a": self.readout_entropy, "energy": self.energy, "total": self.total}
        return compile_expressions("action", outputs, self.symbols.arguments)

    @cached_property
    def compiled_readout(self) -> CompiledFunction:
        """The JAX function of `readout_solution`."""
        numbers = (*self.symbols.widths, *self.symbols.variances, self.symbols.temperature)
        return compile_expressions("readout", {"u": self.readout_solution}, (self.symbols.matrices[-1], *numbers))

    @cached_property
    def compiled_predictor(self) -> CompiledFunction:
        """The JAX function of the predictor's mean and variance; not jitted."""
        outputs = {"mean": self.predictor.mean, "variance": self.predictor.variance}
        return compile_expressions("predictor", outputs, (*self.symbols.arguments, self.symbols.test_features))

    @cached_property
    def compiled_kernel(self) -> CompiledFunction:
        """The JAX function of the kernel between training and test features."""
        symbols = self.symbols
        arguments = (*symbols.order_parameters, symbols.features, symbols.test_features)
        return compile_expressions("kernel", {"kernel": self.test_kernel}, arguments)

    def latex(self) -> str:
        """The action, its saddle-point equations and its predictor, as one LaTeX `align*` environment."""
        return align_environment(self._equations())

    def markdown(self) -> str:
        """The same as Markdown, with headings and the sizes of this architecture."""
        header = [f"# Action of a network with heads {self.heads}", "", *self._sizes(), ""]
        return "\n".join(header) + "\n" + markdown_sections(self._equations())

    def python(self) -> str:
        """Source of the generated JAX function of the action: the text that runs."""
        return self.compiled.source

    def _sizes(self) -> Iterator[str]:
        yield f"Attention layers: {len(self.heads)}. Attention paths: {math.prod(self.heads)}."
        yield ""
        yield "| order parameter | shape | here |"
        yield "|---|---|---|"
        values = dict(zip(self.symbols.heads, self.heads, strict=True))
        for symbol, shape in self.order_parameter_shapes.items():
            sizes = r" \times ".join(latex(side) for side in shape)
            here = " x ".join(str(side.subs(values)) for side in shape)
            yield f"| ${latex(symbol)}$ | ${sizes}$ | {here} |"

    def _equations(self) -> Iterator[Equation]:
        kernel = MatrixSymbol("K", *self.kernel.shape)
        names = self.symbols.latex_names

        def display(expression: Expr) -> str:
            return latex(fold(expression, {kernel: self.kernel}), names)

        terms = {"S_{a}": self.readout_entropy}
        terms |= {f"S_{{{layer}}}": entropy for layer, entropy in enumerate(self.layer_entropies, 1)}
        terms |= {"E": self.energy}
        yield Equation("Action", "S", " + ".join(terms))
        yield from (Equation("Action", name, display(term)) for name, term in terms.items())
        yield Equation("Action", "K", latex(self.kernel, names))
        for symbol, slope in self.saddle_point_equations.items():
            yield Equation("Saddle point", rf"0 = \frac{{\partial S}}{{\partial {latex(symbol)}}}", display(slope))
        yield Equation("Saddle point", latex(self.symbols.readout), display(self.readout_solution))
        yield Equation("Predictor", r"\langle f \rangle", display(self.predictor.mean))
        yield Equation("Predictor", r"\operatorname{var} f", display(self.predictor.variance))
