"""The symbolic action: expressions and their derivatives."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from sympy import Add, Expr, Identity, Inverse, MatrixSymbol, Poly, PolynomialError, Symbol, asinh, exp, expand, sqrt
from sympy.matrices.expressions.matexpr import MatrixExpr

from ... import saddle
from ...derivation import Derivation, Step, solving
from ...derivation.claims import SameMoments
from ...saddle.action import Slopes
from ...saddle.domains import Positive, PositiveDefinite
from ...symbolic import gradient, positive_definite, sum_of, trace
from ...symbolic.algebra import as_number, expand_products
from ...symbolic.documents import Block, DisplayMixin, as_latex, as_markdown
from ..specification.layers import LayerForm, NetworkForm
from . import document
from .prior import FiniteWidthPrior, finite_width_prior
from .symbols import ActionSymbols


class Predictor(NamedTuple):
    """Mean and covariance of the outputs on test examples, a row per label."""

    mean: MatrixExpr
    covariance: MatrixExpr


class Majoriser(NamedTuple):
    """An upper bound on the energy that touches it at U_1 = U_0.

    The log-determinant, with gradient G_+ at U_0, is concave in U_1. The misfit, with
    gradient -G_-, is concave in U_1^-1.

    - `logdet_gradient`, `weight`: symbols of G_+ and U_0 G_- U_0.
    - `bound`: tr(G_+ U_1) + tr(weight U_1^-1).
    - `minima`: of entropy plus bound in each order parameter, given the others;
      empty if one has no closed form.
    - `steps`: the solution of the Riccati equation of U_1.
    """

    logdet_gradient: MatrixSymbol
    weight: MatrixSymbol
    bound: Expr
    minima: Mapping[Expr, Expr]
    steps: tuple[Step, ...]


class KernelFormulas(NamedTuple):
    """The energy and the predictor as functions of kernels.

    - `between`: K of test and training examples.
    - `test`: K of test examples.
    - `resolvent`: (K + T I)^-1.
    - `representer`: g^(1/2) (K + T I)^-1 y with the power g of the likelihood.
    - `mean`, `covariance`: of the outputs on test examples.
    """

    kernel: MatrixSymbol
    between: MatrixSymbol
    test: MatrixSymbol
    energy: Expr
    resolvent: MatrixExpr
    representer: MatrixExpr
    mean: MatrixExpr
    covariance: MatrixExpr


@dataclass(frozen=True, eq=False, repr=False)
class Action(DisplayMixin):
    """The action S: the posterior is proportional to exp(-S/2) (Eq. 32).

    - `symbols`: the symbols of all expressions.
    - `entropies`: (S_1, ..., S_L, S_a), each given the next order parameter.
    - `nested`: the block that each nested order parameter is.
    - `energy`: E (Eq. 12).
    - `kernel`: K of the training examples (Eq. 10).
    - `predictor`: of the outputs on test examples (Eqs. 9, 29, 30).
    - `derivation`: its steps; `derivation.verify()` checks each.
    """

    symbols: ActionSymbols
    entropies: tuple[Expr, ...]
    nested: Mapping[Expr, Expr]
    energy: Expr
    kernel: MatrixExpr
    predictor: Predictor
    derivation: Derivation

    def _view(self) -> Iterator[Block]:
        return document.view(self)

    def render_latex(self) -> str:
        """Write the formulas as equations in LaTeX, with labels and the numbers of the paper."""
        parts = document.equations(self).values()
        return as_latex([each for part in parts for each in part], fragment=True)

    def render_markdown(self) -> str:
        """Write the formulas as Markdown with headings."""
        return as_markdown(document.blocks(self, *document.USUAL))

    @property
    def program_key(self) -> NetworkForm:
        """The part that names compiled programs."""
        return self.symbols.form

    @property
    def forms(self) -> tuple[LayerForm, ...]:
        return self.symbols.form.layers

    @property
    def ansatz(self) -> tuple[str, ...]:
        """Assumptions that are exact in no limit; none if hidden units are linear."""
        steps = (step for step in self.derivation.steps if isinstance(step.claim, SameMoments))
        return tuple(dict.fromkeys(assumption for step in steps for assumption in step.assumptions))

    @property
    def entropy(self) -> Expr:
        """S_a + S_1 + ... + S_L, in the free order parameters."""
        return self.substitute_nested(Add(*self.entropies))

    @property
    def total(self) -> Expr:
        """S = entropy + energy, in the free order parameters."""
        return Add(self.entropy, self.energy)  # Eq. (32)

    @cached_property
    def of_free_order_parameters(self) -> saddle.Action:
        """`total` for `theorykit.saddle`."""
        symbols = self.symbols
        domains = {u: PositiveDefinite() if u.is_Matrix else Positive() for u in symbols.free}
        parameters = symbols.completed((*symbols.numbers, *symbols.data))
        return saddle.Action(self.total, domains, parameters, symbols.widths[-1], self.derivation)

    def substitute_nested(self, expression: Expr) -> Expr:
        while any(expression.has(symbol) for symbol in self.nested):
            expression = expression.xreplace(self.nested)
        return expression

    @cached_property
    def saddle_point_equations(self) -> Mapping[Expr, Expr]:
        """The gradient of S with respect to each free order parameter."""
        return Slopes({u: self.substitute_nested(slope) for u, slope in self.named_slopes.items()})

    @cached_property
    def named_slopes(self) -> Mapping[Expr, Expr]:
        """`saddle_point_equations` in which nested order parameters keep their symbols."""
        total = Add(*self.entropies, self.energy)
        slopes = {u: gradient(total, u) for u in self.symbols.order_parameters}
        # Chain rule, from the innermost block.
        for inner, block in reversed(self.nested.items()):
            slope = slopes.pop(inner)
            (container,) = slopes.keys() & block.free_symbols
            if inner.is_Matrix:
                x = positive_definite("X", slope.shape[0])
                slopes[container] += gradient(trace(x * block), container).xreplace({x: slope})
            else:
                slopes[container] += slope * gradient(block, container)
        return Slopes(slopes)

    @cached_property
    def closed_forms(self) -> Mapping[Expr, Expr]:
        """Solutions of saddle-point equations, given the other order parameters, if any."""
        solved = {step.claim.variable: step.after for step in self._riccati_steps}
        for u in (symbol for symbol in self.symbols.free if isinstance(symbol, Symbol)):
            with suppress(PolynomialError):  # u may be inside a trace of an inverse
                a, b, minus_c = Poly(expand(self.saddle_point_equations[u] * u**2), u).all_coeffs()
                # The root of a u^2 + b u - c without cancellation for any sign of b.
                solved[u] = sqrt(-minus_c / a) * exp(-asinh(b / (2 * sqrt(-a * minus_c))))
        return solved

    @cached_property
    def _riccati_steps(self) -> tuple[Step, ...]:
        steps = []
        for symbol, equation in self.saddle_point_equations.items():
            if isinstance(symbol, MatrixSymbol) and not self.energy.has(symbol):
                with suppress(solving.RuleError):
                    steps.append(solving.riccati(equation, symbol, section="Closed forms"))
        return tuple(steps)

    @cached_property
    def majoriser(self) -> Majoriser:
        """The bound and minima for majorise-minimise steps."""
        u1, *others = self.symbols.free
        logdet_gradient, weight = (positive_definite(name, u1.shape[0]) for name in ("Gplus", "W"))
        bound = trace(logdet_gradient * u1) + trace(weight * Inverse(u1))
        minima = {}
        steps = ()
        if not self.nested and set(others) == set(self.closed_forms):
            with suppress(solving.RuleError):
                equation = gradient(Add(self.entropy, bound), u1)
                step = solving.riccati(equation, u1, section="Closed forms")
                minima = {u1: step.after, **self.closed_forms}
                steps = (step,)
        return Majoriser(logdet_gradient, weight, bound, minima, steps)

    @cached_property
    def finite_width(self) -> FiniteWidthPrior:
        """The exact prior of `symbols.overlaps`, by the second route."""
        return finite_width_prior(self.symbols, self.derivation.sizes)

    @property
    def corrections(self) -> Expr:
        """Terms that the exact prior at finite width adds to the entropy."""
        return self.substitute_nested(self._with_number(Add(*self.finite_width.corrections)))

    @property
    def route_differences(self) -> tuple[Expr, ...]:
        """Leading order of the exact prior minus each entropy: zero if both routes agree."""
        pairs = zip(map(self._with_number, self.finite_width.leading), self.entropies, strict=True)
        return tuple(expand(leading - entropy) for leading, entropy in pairs)

    def _with_number(self, expression: Expr) -> Expr:
        matrix = self.symbols.overlaps[-1]
        readout = self.symbols.readout
        return expression if readout == matrix else as_number(expression, matrix, readout)

    @property
    def derivations(self) -> Mapping[str, Derivation]:
        solved = (*self.majoriser.steps, *self._riccati_steps)
        return {
            "back-propagating kernel renormalisation": self.derivation,
            "finite width": self.finite_width.derivation,
            **({"closed forms": Derivation(solved, self.derivation.sizes)} if solved else {}),
        }

    @cached_property
    def of_kernels(self) -> KernelFormulas:
        symbols = self.symbols
        rows = symbols.features.shape[0]
        test_rows = symbols.test_features.shape[0]
        kernel = positive_definite("K", rows)
        between = MatrixSymbol("K_between", test_rows, rows)
        test = MatrixSymbol("K_test", test_rows, test_rows)
        with_noise = sum_of([symbols.temperature * Identity(rows), self.kernel])
        others = {symbols.kernel(1, 0): between, symbols.kernel(0, 1): between.T}

        def in_kernels(expression: Expr) -> Expr:
            with_kernel = sum_of([symbols.temperature * Identity(rows), kernel])
            found = expression.xreplace({with_noise: with_kernel, **others})
            # Within products, only `subs` finds kernels that are products.
            return found if symbols.noises else found.subs(others)

        energy = in_kernels(self.energy)
        # At infinite width the energy has no log-determinant.
        misfit = Add(*(term for term in Add.make_args(energy) if term.has(symbols.labels)))
        (resolvent,) = misfit.atoms(Inverse)
        representer = gradient(misfit / sqrt(symbols.power), symbols.labels) / 2
        covariance = self.predictor.covariance
        if not symbols.noises:
            covariance = expand_products(symbols.power * covariance)
        of_test = Add.make_args(symbols.kernel(1, 1))
        rest = (term for term in Add.make_args(covariance) if term not in of_test)
        covariance = expand_products((test + in_kernels(Add(*rest))) / symbols.power)
        outputs = in_kernels(self.predictor.mean), covariance
        return KernelFormulas(kernel, between, test, energy, resolvent, representer, *outputs)
