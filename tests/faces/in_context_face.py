"""The parameters of the theory of learning in context."""

from theorykit.theories import in_context

from .engine import Face
from .values import of

# arrays of any shape are broadcast
ANY = ("True", "an array of seven axes", "one alone")
FACE = Face(
    in_context,
    {
        "alpha tau kappa ridge": of([1.0, 2.0], admits=(*ANY, "1", "1.5", "2**64"), negative=[1.0, -1.0], zero=0.0),
        "rho": of([0.0, 0.1], admits=(*ANY, "0", "1", "1.5", "2**64"), negative=[0.1, -0.1]),
    },
    made="Errors",
)
