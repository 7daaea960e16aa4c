"""Actions with one minimum each, over every domain: what tests of things that take any action are tried on."""

from collections.abc import Sequence

from sympy import Add, Expr, Trace, cosh, log, symbols

from ...saddle import Action, Between, Positive, PositiveDefinite, Real, Symmetric
from ...saddle.domains import AbstractDomain
from ...symbolic import log_det, positive_definite, symmetric

_SIZE = 3
_x, _b, _s, _a, _q = symbols("x b s a q", real=True)
_Q, _J = symmetric("Q", _SIZE), symmetric("J", _SIZE)
_U, _K = positive_definite("U", _SIZE), positive_definite("K", _SIZE)
_weight = symbols("weight", positive=True)

# by domain: the order parameter, its parameters, and an action that is convex in the steps of its domain
_PIECES: dict[str, tuple[Expr, AbstractDomain, tuple[Expr, ...], Expr]] = {
    "Real": (_x, Real(), (_b,), _x**2 / 2 + log(cosh(_x)) - _b * _x),
    "Positive": (_s, Positive(), (_weight,), _weight * _s - log(_s)),
    "Between": (_q, Between(0, 1), (_a,), -log(_q) - log(1 - _q) + _a * _q),
    "Symmetric": (_Q, Symmetric(), (_J,), Trace(_Q * _Q) / 2 - Trace(_J * _Q)),
    "PositiveDefinite": (_U, PositiveDefinite(), (_K,), Trace(_K * _U) - log_det(_U)),
}
DOMAINS = tuple(_PIECES)
"""The names of the domains."""


def convex_action(domains: Sequence[str]) -> Action:
    """The sum of one action for each of these domains; any values of its parameters give it one minimum."""
    pieces = [_PIECES[domain] for domain in domains]
    return Action(
        Add(*(action for *_, action in pieces)),
        {symbol: domain for symbol, domain, *_ in pieces},
        tuple(parameter for *_, parameters, _ in pieces for parameter in parameters),
    )
