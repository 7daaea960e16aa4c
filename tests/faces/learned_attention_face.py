"""The parameters of the theory of learned attention."""

from sympy import symbols

from theorykit.theories import learned_attention

from .engine import Face
from .values import number, of, whole_number

FACE = Face(
    learned_attention,
    {
        "alpha": number(0.1, above=0.0),
        "rho": number(0.5, above=0.0),
        "tokens": whole_number(2, least=2),
        "q V": of(symbols("q", positive=True), admits=("-1", "0", "1", "1.5", "-0.5", "10**400", "2**64")),
    },
)
