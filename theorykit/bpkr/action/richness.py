"""The action with the richness gamma_0: the mean-field parameterisation, and its limit of infinite width.

The prior variance of the readout and the temperature of the standard parameterisation are divided by g = N gamma_0^2,
where N = N_1. Everything is then written in U' = g U, of order one, without the prime. U' has the prior that U has in
the standard parameterisation, and

    S = S_a + S_1 + ... + S_L + logdet(K + T I) + g y^T (K + T I)^-1 y.

All terms but the log-determinant grow with the width. Without it, S is the action of infinitely wide networks with
learned features, and S / N depends on the ratios of the widths alone.

Source: C. Lauditi, B. Bordelon, C. Pehlevan, "Adaptive kernel predictors from feature-learning infinite limits of
neural networks", arXiv 2502.07998. The form for attention paths is ours.
"""

from dataclasses import replace

from sympy import Add, Expr, Symbol, expand

from ...derivation import Derivation, Recorder, claims
from ...symbolic import latex
from ..specification.layer_form import NetworkForm
from .action import Action, Predictor

_COLD = "the likelihood $\\exp(-{power} |f - y|^2 / (2 T))$, which sharpens with the width: a cold posterior"


def with_richness(action: Action, form: NetworkForm) -> Action:
    """Return the action of the mean-field parameterisation, given the `action` of the standard one."""
    symbols = replace(action.symbols, richness=Symbol("gamma_0", positive=True))
    standard, power, overlaps = action.symbols, symbols.power, action.symbols.free
    # The order parameters and numbers of the network, in terms of U' and of the given numbers.
    scaled = {symbol: symbol / power for symbol in (*overlaps, standard.variances[-1], standard.temperature)}
    route = Recorder(list(action.derivation.steps), "Mean-field parameterisation")
    misfit = Add(*(term for term in Add.make_args(action.energy) if term.has(standard.labels)))
    energy = action.energy - misfit + power * misfit
    variables = (*overlaps, standard.features, standard.labels)
    assumption = _COLD.format(power=latex(power))

    def in_units(before: Expr, after: Expr, claim) -> Expr:
        return route.say("order parameters rescaled", before.xreplace(scaled), after, claim, assumptions=(assumption,))

    in_units(action.total, action.entropy + energy, claims.EqualUpToConstant(variables))
    mean = in_units(action.predictor.mean, action.predictor.mean, claims.Equal())
    covariance = in_units(action.predictor.covariance, action.predictor.covariance / power, claims.Equal())
    if form.is_infinite:
        scale = Symbol("N", positive=True)
        route.section = "Infinite width"
        wide = (action.entropy + energy).xreplace({width: scale * width for width in dict.fromkeys(symbols.widths)})
        fixed = f"widths large in fixed ratios to ${latex(symbols.widths[0])}$, number of examples fixed"
        leading = expand(wide - wide.subs(scale, 0))
        route.say("leading order", wide, leading, claims.LeadingOrder(scale), assumptions=(fixed,))
        energy = power * misfit
    steps = tuple(route.steps)
    return replace(
        action,
        form=form,
        symbols=symbols,
        energy=energy,
        predictor=Predictor(mean, covariance),
        derivation=Derivation(steps, action.derivation.sizes),
    )
