"""The second route: the exact prior of the order parameters at any finite width, and its leading order.

Given the path weights w^(l+1), the columns of w^(l) are independent Gaussians; so U_l given U_{l+1} is Wishart, or,
where a skip connection makes U_{l+1} a block of it, a Gaussian overlap and a Wishart. Nothing is taken to a limit here
but in the last step, and nothing is shared with back-propagating kernel renormalisation but the forward maps.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sympy import Expr, Identity, MatrixSymbol, S, Symbol, Trace, expand, sqrt

from ...derivation import Derivation, Recorder, Step, rules
from ...symbolic import kronecker, latex
from ...symbolic.atoms import Stacked
from ..specification.layer_form import LayerForm
from .symbols import ActionSymbols


@dataclass(frozen=True)
class FiniteWidthPrior:
    """-2 log density of each order parameter given the next, from U_1 to U_{L+1}, up to constants.

    - `derivation`: every step.
    - `exact`: at any width N_l of at least n_l units, the number of partial paths; singular below.
    - `leading`: what grows with the width: the entropies of the action.
    - `corrections`: exact - leading, of order one.
    """

    derivation: Derivation
    exact: tuple[Expr, ...]
    leading: tuple[Expr, ...]

    @property
    def corrections(self) -> tuple[Expr, ...]:
        """What the exact terms add to the leading ones, of order one in the width."""
        return tuple(expand(exact - leading) for exact, leading in zip(self.exact, self.leading, strict=True))


def finite_width_prior(
    forms: tuple[LayerForm, ...], symbols: ActionSymbols, sizes: tuple[Mapping[Expr, int], ...]
) -> FiniteWidthPrior:
    """The prior of (U_1, ..., U_{L+1}) of a network with the layers `forms`; `sizes` to try the steps at."""
    steps: list[Step] = []
    priors = [_layer_prior(steps, form, *symbols.overlaps[layer : layer + 2]) for layer, form in enumerate(forms)]
    priors.append(_readout_prior(steps, symbols.overlaps[-1], symbols.widths[-1], symbols.variances[-1]))
    exact, leading = zip(*priors, strict=True)
    return FiniteWidthPrior(Derivation(tuple(steps), sizes), exact, leading)


def _layer_prior(steps, form: LayerForm, overlap: MatrixSymbol, outer: MatrixSymbol) -> tuple[Expr, Expr]:
    """The law of U_l given U_{l+1}: characteristic function of the path weights, density, volume, leading order."""
    index, width, next_width = form.symbols.index, form.symbols.width, form.symbols.next_width
    do = Recorder(steps, f"Layer {index}").apply
    size, of_blocks = outer.shape[0], expand(form.blocks * outer.shape[0])
    above = MatrixSymbol(f"w_{index + 1}", size, next_width)
    source = MatrixSymbol("G", of_blocks, width)
    weights = Stacked(above * form.weights, form.blocks) / sqrt(next_width)  # Eq. (6)
    coupling = do(rules.unstack, 2 * S.ImaginaryUnit * Trace(source.T * weights), equations="6")
    row, column = MatrixSymbol("v", form.weights.shape[1], 1), MatrixSymbol("r", size, 1)
    one_row = do(rules.split_into_rows, coupling, [(row, form.weights), (column, above.T)])
    covariance = kronecker(form.covariance, Identity(width))
    averaged = do(rules.gaussian_average, one_row, row, covariance)
    total = do(rules.sum_over_rows, averaged, next_width, [(column, above.T)])
    named = do(rules.name, total, outer, above * above.T / next_width, equations="13")
    characteristic = do(rules.gather_blocks, named)
    given = outer if form.has_skip else None
    return _density(do, characteristic, source, overlap, width, given, (overlap, outer))


def _readout_prior(steps, overlap: MatrixSymbol, width: Expr, variance: Symbol) -> tuple[Expr, Expr]:
    do = Recorder(steps, "Readout").apply
    weights, source = (MatrixSymbol(name, overlap.shape[0], width) for name in ("A", "G"))
    row, column = MatrixSymbol("v", width, 1), MatrixSymbol("r", width, 1)
    coupling = 2 * S.ImaginaryUnit * Trace(source.T * weights)
    one_row = do(rules.split_into_rows, coupling, [(row, weights), (column, source)])
    averaged = do(rules.gaussian_average, one_row, row, variance * Identity(width))
    characteristic = do(rules.sum_over_rows, averaged, overlap.shape[0], [(column, source)])
    return _density(do, characteristic, source, overlap, width, None, (overlap,))


def _density(do, characteristic, source, overlap, width, given, variables) -> tuple[Expr, Expr]:
    """From the characteristic function of the weights to the density of their overlap, and its leading order."""
    weights = MatrixSymbol("W", *source.shape)
    of_source, of_weights = (MatrixSymbol(name, source.shape[0], 1) for name in ("g", "x"))
    one_column = do(rules.split_into_rows, characteristic, [(of_source, source.T)])
    density = do(rules.gaussian_density, one_column, of_source, of_weights)
    total = do(rules.sum_over_rows, density, width, [(of_weights, weights.T)])
    wide = (f"width ${latex(width)}$ of at least ${latex(overlap.shape[0])}$ units",)
    volume = do(rules.gram_volume, total, weights, overlap, width, given, assumptions=wide)
    exact = do(rules.drop_constants, do(rules.reduce_traces, volume), variables)
    return exact, do(rules.leading_order, exact, width, assumptions=(f"width ${latex(width)}$ large",))
