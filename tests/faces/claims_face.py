"""The parameters of what steps of derivations claim."""

from dataclasses import fields

from sympy import Symbol

from tests.derivation.examples import RULES, M, U
from theorykit.derivation import claims

from .derivation_face import EXAMPLES, like
from .engine import Face

CLAIMS = [step.claim for _, step in EXAMPLES.values()] + [
    RULES[name]().claim for name in ("linearise_square", "eliminate")
]
EVERY = {type(claim).__name__: claim for claim in CLAIMS}
EVERY["LargeSizeLimit"] = claims.LargeSizeLimit(Symbol("D", positive=True), lambda size, values, rng: rng, ())
EVERY["SolvesToFirstOrder"] = claims.SolvesToFirstOrder(U, ((U, M),), (), M)

FACE = Face(
    claims,
    {f"{name}.{each.name}": like(getattr(claim, each.name)) for name, claim in EVERY.items() for each in fields(claim)},
    known={"LargeSizeLimit(sample=a class)": "a class may be called, and may return draws"},
    untried={
        " ".join(
            f"{name}.*" for name in (*EVERY, "Claim", "Identity")
        ): "`Step.error` calls it, of values that it draws",
        "residuals difference worst": "parts of the claims",
    },
)
