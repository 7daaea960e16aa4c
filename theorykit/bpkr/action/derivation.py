"""From an architecture to its action: the symbolic stage, in matrix expressions with symbolic sizes.

Stage 1 of `Architecture -> derive -> Action -> compile -> bind -> solve -> predict`. The action
is what back-propagating kernel renormalisation arrives at; names are listed in derivations/notation.md.
"""

from functools import lru_cache

from sympy import Expr, Integer, MatrixSymbol, Symbol, expand

from ...symbolic import positive_definite
from ..specification.architecture import Architecture, checked_architecture
from ..specification.layer_form import LayerForm, network_widths
from .action import Action
from .backpropagation import backpropagate
from .cached import read_cached, write_cached
from .symbols import ActionSymbols


def derive(architecture: Architecture) -> Action:
    """The action of `architecture`, derived step by step, with symbolic sizes; Eqs. (10), (12), (32).

    Widths, variances, heads and the layers' own numbers appear as symbols: the action depends on the kinds of layers,
    and on whether there is more than one output.

        >>> from theorykit import bpkr
        >>> action = bpkr.derive(bpkr.Architecture(layers=(2,), widths=10, temperature=0.1))
        >>> action.derivation.verify().holds
        True
    """
    return _derive(checked_architecture(architecture).forms, architecture.outputs > 1)


@lru_cache
def _derive(forms: tuple[LayerForm, ...], several_outputs: bool) -> Action:
    """One action for every structure: it does not depend on numbers, head counts included."""
    found = read_cached(forms, several_outputs)
    if found is None:
        found = _derive_anew(forms, several_outputs)
        write_cached(found, several_outputs)
    return found


def _derive_anew(forms: tuple[LayerForm, ...], several_outputs: bool) -> Action:
    symbols = _symbols(forms, several_outputs)
    return backpropagate(forms, symbols, trial_sizes(forms, symbols))


def _size(name: str) -> Symbol:
    return Symbol(name, integer=True, positive=True)


def _order_parameters(forms: tuple[LayerForm, ...], outputs: Expr) -> tuple[MatrixSymbol, ...]:
    """(U_1, ..., U_{L+1}) as matrix symbols; the last is outputs x outputs."""
    sizes = [outputs]
    for form in reversed(forms):
        sizes.append(expand(form.branches * sizes[-1]))
    return tuple(positive_definite(f"U_{layer}", size) for layer, size in enumerate(reversed(sizes), 1))


def _symbols(forms: tuple[LayerForm, ...], several_outputs: bool) -> ActionSymbols:
    outputs = _size("C") if several_outputs else Integer(1)
    overlaps = _order_parameters(forms, outputs)
    columns = expand(overlaps[0].shape[0] * _size("N_0"))
    parameters = frozenset().union(*(form.parameters for form in forms))
    return ActionSymbols(
        heads=tuple(form.symbols.heads for form in forms if form.forward.has(form.symbols.heads)),
        widths=network_widths(forms),
        variances=(*(form.symbols.variance for form in forms), Symbol("sigma2_a", positive=True)),
        parameters=tuple(sorted(parameters, key=lambda symbol: symbol.name)),
        temperature=Symbol("T", positive=True),
        overlaps=overlaps,
        nested=tuple(outer for form, outer in zip(forms, overlaps[1:], strict=True) if form.has_skip),
        features=MatrixSymbol("Phi", _size("P") * outputs, columns),
        labels=MatrixSymbol("y", _size("P") * outputs, 1),
        test_features=MatrixSymbol("Phi_test", _size("P_test") * outputs, columns),
        input_features=_size("N_0"),
        outputs=outputs,
        examples=_size("P"),
    )


def trial_sizes(forms: tuple[LayerForm, ...], symbols: ActionSymbols) -> tuple[dict[Expr, int], ...]:
    """Sizes at which the steps are tried with numbers: several heads at width one, then unequal widths.

    Every width is larger than one in some trial, where a wrong power of it shows; no more than two numbers at a time
    are integrated over, but in the layers of users' own.
    """
    several = symbols.outputs.is_Symbol
    common = {forms[0].symbols.tokens: 2, symbols.input_features: 2, _size("P_test"): 2}

    def trial(heads: int, outputs: int, widths: dict[Expr, int]) -> dict[Expr, int]:
        examples = {symbols.examples: 2 // outputs, **({symbols.outputs: outputs} if several else {})}
        return {**common, **widths, **dict.fromkeys((form.symbols.heads for form in forms), heads), **examples}

    return (
        trial(2, 2 if several else 1, dict.fromkeys(_alternating(forms, 1), 1)),
        trial(1, 1, _alternating(forms, 1)),
        trial(1, 1, _alternating(forms, 2)),
    )


def _alternating(forms: tuple[LayerForm, ...], first: int) -> dict[Expr, int]:
    """Widths 1 and 2 in turn, but for the two sides of a skip connection."""
    width, widths = first, {}
    for form in forms:
        widths[form.symbols.width] = width
        width = width if form.has_skip else 3 - width
        widths[form.symbols.next_width] = width
    return widths
