"""The symbolic action: expressions, what follows from them by differentiation, and their compiled form."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType

from sympy import Add, Expr, Integer, MatrixSymbol, Poly, PolynomialError, Symbol, asinh, exp, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ..arguments import checked_instance
from ..codegen import CompiledFunction, compile_expressions
from ..derivation import Derivation, Step, rules
from ..symbolic import align_environment, as_markdown, gradient, positive_definite, trace
from . import document
from .action_symbols import ActionSymbols
from .dual import DualForm, dual_form
from .expansion import FirstOrder, expand_about_infinite_width, in_free
from .finite_width import FiniteWidthPrior, finite_width_prior
from .forward import LayerForm
from .kernel_energy import KernelEnergy, kernel_energy
from .majorisation import Majoriser, majorise


@dataclass(frozen=True)
class Predictor:
    """Mean and variance of the network's output on test examples, as columns."""

    mean: MatrixExpr
    variance: MatrixExpr


@dataclass(frozen=True)
class Action:
    """The action S of the order parameters, symbolic: their posterior goes as exp(-S/2) (Eq. 32).

    - `layer_entropies` holds S_1, ..., S_L and `readout_entropy` S_a, each of one order parameter given the next.
    - `contained`: the order parameters that are a block of another, with the block.
    - `derivation`: the steps that led here; `derivation.verify()` checks each.
    - `overlaps`, `overlap_entropies`, `overlap_blocks`: order parameters, entropies and `contained` with U_{L+1} a
      matrix also where there is one output and u is a number.
    - `layers`, `sizes`: the architecture in words, and its head counts and outputs by name.

    Differentiate it, render it, compile it: every other room uses these expressions and no other.
    """

    layers: tuple[str, ...]
    sizes: Mapping[str, int]
    forms: tuple[LayerForm, ...]
    symbols: ActionSymbols
    overlaps: tuple[MatrixSymbol, ...]
    overlap_entropies: tuple[Expr, ...]
    overlap_blocks: Mapping[MatrixSymbol, MatrixExpr]
    layer_entropies: tuple[Expr, ...]
    readout_entropy: Expr
    contained: Mapping[Expr, Expr]
    energy: Expr
    kernel: MatrixExpr
    test_kernel: MatrixExpr
    predictor: Predictor
    derivation: Derivation

    def __getstate__(self):
        """The fields alone: what follows from them, compiled functions too, is made again where it is wanted."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @property
    def entropy(self) -> Expr:
        """S_a + S_1 + ... + S_L, in the free order parameters."""
        return self.in_free(Add(self.readout_entropy, *self.layer_entropies))

    @property
    def total(self) -> Expr:
        """S, entropy plus energy, in the free order parameters."""
        return Add(self.entropy, self.energy)  # Eq. (32)

    def in_free(self, expression: Expr) -> Expr:
        """`expression` with every contained order parameter written as the block that it is."""
        return in_free(checked_instance("expression", expression, Expr), self.contained)

    @property
    def order_parameter_shapes(self) -> Mapping[Expr, tuple[Expr, Expr]]:
        """The shape of each order parameter; a scalar readout's is (1, 1)."""
        one = (Integer(1), Integer(1))
        return {symbol: getattr(symbol, "shape", one) for symbol in self.symbols.order_parameters}

    @cached_property
    def saddle_point_equations(self) -> Mapping[Expr, Expr]:
        """For each free order parameter, the gradient of S that vanishes at a saddle point."""
        return MappingProxyType({symbol: self.in_free(slope) for symbol, slope in self.named_slopes.items()})

    @cached_property
    def named_slopes(self) -> Mapping[Expr, Expr]:
        """`saddle_point_equations` with the contained order parameters under their own names, as they are read.

        What S gains in a contained order parameter it gains in the block that it is.
        """
        total = Add(self.readout_entropy, *self.layer_entropies, self.energy)
        slopes = {symbol: gradient(total, symbol) for symbol in self.symbols.order_parameters}
        for inner in reversed([symbol for symbol in slopes if symbol in self.contained]):
            block = self.contained[inner]
            (container,) = set(self.symbols.order_parameters) & block.free_symbols
            slopes[container] += _through(block, slopes.pop(inner), container)
        return MappingProxyType({symbol: slopes[symbol] for symbol in self.symbols.free})

    @cached_property
    def readout_solution(self) -> Expr:
        """The readout order parameter u eliminated: the solution of its saddle-point equation, given U_L.

        For one output, times u^2, it is a u^2 + b u - c = 0 with a, c > 0; the root is written so that nothing cancels
        whatever the sign of b. For several it is a Riccati equation.
        """
        readout = self.symbols.readout
        if readout in self.contained:
            raise ValueError(f"{readout} is a block of {self.symbols.matrices[-1]} across a straight branch: not free")
        if isinstance(readout, MatrixSymbol):
            return self.closed_forms[readout]
        a, b, minus_c = Poly(expand(self.saddle_point_equations[readout] * readout**2), readout).all_coeffs()
        return sqrt(-minus_c / a) * exp(-asinh(b / (2 * sqrt(-a * minus_c))))

    @cached_property
    def closed_forms(self) -> Mapping[MatrixSymbol, MatrixExpr]:
        """The order parameters that solve their own saddle-point equation in closed form, given their neighbours.

        The equation of a hidden layer without straight branches beside it is a Riccati equation; those of U_1, which
        the data enter, and of one that contains another are not.
        """
        return MappingProxyType({step.claim.variable: step.after for step in self._riccati_steps})

    @cached_property
    def _riccati_steps(self) -> tuple[Step, ...]:
        steps = []
        for symbol, equation in self.saddle_point_equations.items():
            if isinstance(symbol, MatrixSymbol) and not self.energy.has(symbol):
                try:
                    steps.append(rules.riccati(equation, symbol, section="Closed forms"))
                except rules.RuleError:
                    continue
        return tuple(steps)

    @cached_property
    def majoriser(self) -> Majoriser:
        """A bound of the energy, and closed forms of its minima, for majorise-minimise steps."""
        first, *others = self.symbols.free
        minima = dict(self.closed_forms)
        if not isinstance(self.symbols.readout, MatrixSymbol) and self.symbols.readout not in self.contained:
            with suppress(PolynomialError):
                minima[self.symbols.readout] = self.readout_solution
        known = not self.contained and all(symbol in minima for symbol in others)
        return majorise(self.entropy, first, {symbol: minima[symbol] for symbol in others} if known else None)

    @cached_property
    def finite_width(self) -> FiniteWidthPrior:
        """The exact prior of the order parameters at finite width, by the second route, in the matrices `overlaps`."""
        sizes = self.derivation.sizes
        return finite_width_prior(self.forms, self.overlaps, self.symbols.variances[-1], sizes)

    @property
    def derivations(self) -> Mapping[str, Derivation]:
        """All derivations of this action, by name."""
        sweeps = (*self.majoriser.steps, *self._riccati_steps)
        return {
            "back-propagating kernel renormalisation": self.derivation,
            "finite width": self.finite_width.derivation,
            "expansion about infinite width": self.expansion.derivation,
            "dual form": self.dual.derivation,
            **({"closed forms": Derivation(sweeps, self.derivation.sizes)} if sweeps else {}),
        }

    @property
    def route_differences(self) -> tuple[Expr, ...]:
        """What the exact prior's leading order has beyond each entropy: zeros, as the two routes agree."""
        pairs = zip(self.finite_width.leading, self.overlap_entropies, strict=True)
        return tuple(expand(leading - entropy) for leading, entropy in pairs)

    @cached_property
    def expansion(self) -> FirstOrder:
        """The order parameters to first order in one over the widths, in the matrices `overlaps`."""
        return expand_about_infinite_width(
            self.forms,
            self.overlaps,
            self.symbols.variances[-1],
            self.overlap_entropies,
            self.overlap_blocks,
            self.derivation.sizes,
        )

    @cached_property
    def compiled_force(self) -> CompiledFunction:
        """The JAX function of the energy's gradient in U_1, the force of `expansion`."""
        first = self.symbols.matrices[0]
        return compile_expressions("force", {"force": gradient(self.energy, first)}, self.symbols.arguments)

    @cached_property
    def compiled_expansion(self) -> CompiledFunction:
        """The JAX function of the order parameters to first order in one over the widths, given the force."""
        outputs = {symbol.name: value for symbol, value in self.expansion.order_parameters.items()}
        arguments = (self.expansion.force, *self.symbols.numbers, *self.symbols.sizes)
        return compile_expressions("first_order", outputs, arguments)

    @cached_property
    def compiled(self) -> CompiledFunction:
        """The JAX function of the entropies, the energy and the total, as it runs; not jitted."""
        layers = {f"entropy_{layer}": entropy for layer, entropy in enumerate(self.layer_entropies, 1)}
        outputs = {**layers, "entropy_a": self.readout_entropy, "energy": self.energy, "total": self.total}
        free = {name: self.in_free(expression) for name, expression in outputs.items()}
        return compile_expressions("action", free, self.symbols.arguments)

    @cached_property
    def compiled_entropy(self) -> CompiledFunction:
        """The JAX function of the entropy alone."""
        arguments = self.symbols.completed((*self.symbols.free, *self.symbols.numbers))
        return compile_expressions("entropy", {"entropy": self.entropy}, arguments)

    @cached_property
    def compiled_corrections(self) -> CompiledFunction:
        """The JAX function of what the exact prior at finite width adds to the entropy, in the overlaps."""
        free = tuple(symbol for symbol in self.overlaps if symbol not in self.overlap_blocks)
        corrections = in_free(Add(*self.finite_width.corrections), self.overlap_blocks)
        arguments = self.symbols.completed((*free, *self.symbols.numbers))
        return compile_expressions("corrections", {"corrections": corrections}, arguments)

    @cached_property
    def compiled_minima(self) -> Mapping[Expr, CompiledFunction]:
        """The JAX function of each closed form of `majoriser`, given the other order parameters.

        Empty where one has a square root of a matrix that is not seen to be positive definite.
        """
        majoriser, symbols = self.majoriser, self.symbols

        def compiled(symbol: Expr, minimum: Expr) -> CompiledFunction:
            matrices = (*symbols.free, majoriser.spread, majoriser.weight)
            arguments = symbols.completed((*(m for m in matrices if minimum.has(m)), *symbols.numbers))
            return compile_expressions(f"minimum_{symbol.name}", {symbol.name: minimum}, arguments)

        try:
            return {symbol: compiled(symbol, minimum) for symbol, minimum in majoriser.minima.items()}
        except NotImplementedError:
            return {}

    @cached_property
    def kernel_energy(self) -> KernelEnergy:
        """The energy as a function of the kernel K, and its gradients passed on to U_1 and to the labels."""
        return kernel_energy(self.energy, self.kernel, self.symbols.matrices[0], self.symbols.labels)

    @cached_property
    def compiled_kernel_energy(self) -> CompiledFunction:
        """The JAX function of the energy, of the resolvent (K + T I)^-1 and of (K + T I)^-1 y, given K."""
        form, symbols = self.kernel_energy, self.symbols
        outputs = {"energy": form.energy, "resolvent": form.resolvent, "representer": form.representer}
        arguments = symbols.completed((form.kernel, symbols.temperature, symbols.labels))
        return compile_expressions("kernel_energy", outputs, arguments)

    @cached_property
    def compiled_slopes(self) -> CompiledFunction:
        """The JAX function of the energy's gradient in U_1, its two parts apart, given resolvent and representer."""
        form, symbols = self.kernel_energy, self.symbols
        outputs = {"spread": form.spread, "pull": form.pull}
        arguments = (form.resolvent_symbol, form.representer_symbol, symbols.matrices[0], symbols.features)
        return compile_expressions("slopes", outputs, symbols.completed(arguments))

    @cached_property
    def dual(self) -> DualForm:
        """Energy and predictor in second moments of the data, for more examples than features."""
        return dual_form(self)

    @cached_property
    def compiled_dual(self) -> CompiledFunction:
        """The JAX function of the energy's two parts and of their sum in the dual form; not jitted."""
        return compile_expressions("dual_energy", self.dual.parts, self._dual_arguments)

    @cached_property
    def compiled_dual_slopes(self) -> CompiledFunction:
        """`compiled_dual` with the gradients in U_1 of its parts, from the same factorisation."""
        slopes = {"spread": self.dual.spread, "pull": self.dual.pull}
        return compile_expressions("dual_slopes", {**self.dual.parts, **slopes}, self._dual_arguments)

    @cached_property
    def compiled_dual_predictor(self) -> CompiledFunction:
        """The JAX function of the predictor's mean and variance in the dual form; not jitted."""
        form, symbols = self.dual, self.symbols
        arguments = (symbols.matrices[0], symbols.temperature, form.gram, form.projection, symbols.test_features)
        outputs = {"mean": form.mean, "variance": form.variance}
        return compile_expressions("dual_predictor", outputs, symbols.completed(arguments))

    @property
    def _dual_arguments(self) -> tuple[Expr, ...]:
        symbols = self.symbols
        return symbols.completed((symbols.matrices[0], symbols.temperature, *self.dual.statistics))

    @cached_property
    def compiled_readout(self) -> CompiledFunction:
        """The JAX function of `readout_solution`."""
        arguments = self.symbols.completed((self.symbols.matrices[-1], *self.symbols.numbers))
        return compile_expressions("readout", {"u": self.readout_solution}, arguments)

    @cached_property
    def compiled_predictor(self) -> CompiledFunction:
        """The JAX function of the predictor's mean and variance; not jitted."""
        outputs = {"mean": self.predictor.mean, "variance": self.predictor.variance}
        return compile_expressions("predictor", outputs, (*self.symbols.arguments, self.symbols.test_features))

    @cached_property
    def compiled_training_kernel(self) -> CompiledFunction:
        """The JAX function of the kernel among training features."""
        arguments = self.symbols.completed((self.symbols.matrices[0], self.symbols.features))
        return compile_expressions("training_kernel", {"kernel": self.kernel}, arguments)

    @cached_property
    def compiled_kernel_product(self) -> CompiledFunction:
        """The JAX function of (K + T I) V, V some columns: multiplied from the right, the kernel never formed."""
        symbols = self.symbols
        columns = MatrixSymbol("V", symbols.features.shape[0], Symbol("k", integer=True, positive=True))
        product = self.kernel * columns + symbols.temperature * columns
        arguments = symbols.completed((symbols.matrices[0], symbols.temperature, symbols.features, columns))
        return compile_expressions("kernel_product", {"product": product}, arguments)

    @cached_property
    def compiled_kernel(self) -> CompiledFunction:
        """The JAX function of the kernel between training and test features."""
        symbols = self.symbols
        arguments = symbols.completed((*symbols.free, symbols.features, symbols.test_features))
        return compile_expressions("kernel", {"kernel": self.test_kernel}, arguments)

    def latex(self) -> str:
        """The action, its saddle-point equations and its predictor, as one LaTeX `align*` environment."""
        equations = document.action_equations, document.saddle_point_equations, document.predictor_equations
        return align_environment(equation for part in equations for equation in part(self))

    def markdown(self) -> str:
        """The same as Markdown, with headings and the sizes of this architecture."""
        return as_markdown(document.action_blocks(self))

    def python(self) -> str:
        """Source of the generated JAX function of the action: the text that runs."""
        return self.compiled.source


def _through(block: Expr, slope: Expr, container: MatrixSymbol) -> MatrixExpr:
    """A gradient in `block`, a function of `container`, as a gradient in `container`."""
    if not getattr(slope, "is_Matrix", False):
        return slope * gradient(block, container)
    held = positive_definite("X", slope.shape[0])
    return gradient(trace(held * block), container).xreplace({held: slope})
