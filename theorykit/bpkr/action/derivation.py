"""The symbolic stage: from an architecture to its action, in matrix expressions with symbolic sizes.

Stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. derivations/notation.md lists the
symbols.
"""

from dataclasses import replace
from functools import lru_cache

from sympy import Add, Expr, Integer, MatrixSymbol, Symbol, expand

from ...derivation import Derivation, Recorder, claims
from ...symbolic import latex, positive_definite
from ..specification.architecture import Architecture, checked_architecture
from ..specification.layer_form import TOKENS, NetworkForm
from .action import Action, Predictor
from .backpropagation import backpropagate
from .symbols import ActionSymbols

_COLD = "the likelihood $\\exp(-{power} |f - y|^2 / (2 T))$, which sharpens with the width: a cold posterior"


def derive(architecture: Architecture) -> Action:
    """Derive the action of `architecture` step by step, with symbolic sizes; Eqs. (10), (12), (32).

    Widths, prior variances, numbers of heads and parameters of layers appear as symbols. The action depends only on the
    kinds of layers, and on whether there is more than one output.

    Example:
        >>> from theorykit import bpkr
        >>> action = bpkr.derive(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1))
        >>> action.derivation.verify().holds
        True
    """
    return _derive(checked_architecture(architecture).form)


@lru_cache
def _derive(form: NetworkForm) -> Action:
    """Derive one action per structure. The action does not depend on numbers or head counts."""
    if form.has_richness:
        return _with_richness(_derive(replace(form, has_richness=False, is_infinite=False)), form)
    layers, outputs, rows = form.layers, form.outputs, [form.readings]
    for layer in reversed(layers):
        rows.insert(0, expand(layer.branches * rows[0]))
    overlaps = tuple(positive_definite(f"U_{layer}", size) for layer, size in enumerate(rows, 1))
    columns = expand(overlaps[0].shape[0] * _size("N_0"))
    parameters = frozenset().union(*(layer.parameters for layer in layers))
    symbols = ActionSymbols(
        heads=tuple(layer.symbols.heads for layer in layers if layer.forward.has(layer.symbols.heads)),
        widths=form.widths,
        variances=(*(layer.symbols.variance for layer in layers), Symbol("sigma2_a", positive=True)),
        parameters=tuple(sorted(parameters, key=lambda symbol: symbol.name)),
        temperature=Symbol("T", positive=True),
        overlaps=overlaps,
        nested=tuple(outer for layer, outer in zip(layers, overlaps[1:], strict=True) if layer.has_skip),
        features=MatrixSymbol("Phi", _size("P") * outputs, columns),
        labels=MatrixSymbol("y", _size("P") * outputs, 1),
        test_features=MatrixSymbol("Phi_test", _size("P_test") * outputs, columns),
        input_features=_size("N_0"),
        outputs=outputs,
        examples=_size("P"),
        read_tokens=TOKENS if form.every_token else Integer(1),
    )

    # Test the steps with several heads at width one, and then with unequal heads and widths: the digits of the number
    # of a layer, so that any two layers differ in some trial and a wrong symbol of a size is found. Every width exceeds
    # one in some trial, so that a wrong power of a width is found.
    several = symbols.outputs.is_Symbol
    common = {TOKENS: 3, symbols.input_features: 2, _size("P_test"): 2, _size("D"): 3}

    def trial(examples: int, outputs: int, widths: dict[Expr, int], heads: dict[Expr, int]) -> dict[Expr, int]:
        counts = {symbols.examples: examples, **({symbols.outputs: outputs} if several else {})}
        return {**common, **widths, **heads, **counts}

    def unequal(place: int) -> tuple[dict[Expr, int], dict[Expr, int]]:
        """Return digits of the numbers of layers as widths and heads, with equal widths on both sides of a skip."""
        number, widths, heads = 1, {form.widths[0]: 1 + 1 // 3**place % 3}, {}
        for i, layer in enumerate(form.layers):
            heads[layer.symbols.heads] = 1 + i // 2**place % 2
            widths[layer.symbols.width] = 1 + number // 3**place % 3
            number += not layer.has_skip
            widths[layer.symbols.next_width] = 1 + number // 3**place % 3
        return widths, heads

    ones, twos = dict.fromkeys(form.widths, 1), dict.fromkeys((layer.symbols.heads for layer in form.layers), 2)
    first = trial(2 // (1 + several), 1 + several, ones, twos)
    sizes = first, trial(3, 1, *unequal(0)), trial(1, 1, *unequal(1))
    return backpropagate(form, symbols, sizes)


def _size(name: str) -> Symbol:
    return Symbol(name, integer=True, positive=True)


def _with_richness(action: Action, form: NetworkForm) -> Action:
    """Return the action of the mean-field parameterisation, given the `action` of the standard one.

    The prior variance of the readout and the temperature are divided by g = N gamma_0^2, where N = N_1. Everything is
    then written in U' = g U, of order one, without the prime. U' has the prior that U has in the standard
    parameterisation, and

        S = S_a + S_1 + ... + S_L + logdet(K + T I) + g y^T (K + T I)^-1 y.

    All terms but the log-determinant grow with the width. Without it, S is the action of infinitely wide networks with
    learned features, and S / N depends on the ratios of the widths alone.

    Source: C. Lauditi, B. Bordelon, C. Pehlevan, "Adaptive kernel predictors from feature-learning infinite limits of
    neural networks", arXiv 2502.07998. The form for attention paths is ours.
    """
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
    derivation, predictor = Derivation(tuple(route.steps), action.derivation.sizes), Predictor(mean, covariance)
    return replace(action, form=form, symbols=symbols, energy=energy, predictor=predictor, derivation=derivation)
