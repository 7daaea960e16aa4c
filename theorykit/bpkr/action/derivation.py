"""The symbolic stage: from an architecture to its action, in matrix expressions with symbolic sizes.

Stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. derivations/notation.md lists the
symbols.
"""

from dataclasses import replace
from functools import lru_cache

from sympy import Expr, Integer, MatrixSymbol, Symbol, expand

from ...symbolic import positive_definite
from ..specification.architecture import Architecture, checked_architecture
from ..specification.layer_form import TOKENS, NetworkForm
from .action import Action
from .backpropagation import backpropagate
from .richness import with_richness
from .symbols import ActionSymbols


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
        return with_richness(_derive(replace(form, has_richness=False, is_infinite=False)), form)
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
