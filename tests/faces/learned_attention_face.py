"""The parameters of the theory of learned attention."""

from theorykit.theories import learned_attention

from .engine import Face
from .values import number, whole_number

FACE = Face(
    learned_attention,
    {
        "alpha": number(0.1, above=0.0),
        "rho": number(0.5, above=0.0),
        "tokens": whole_number(2, least=2),
    },
)
