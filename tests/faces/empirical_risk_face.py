"""The parameters of the theory of empirical risk minimisation."""

import numpy as np
from sympy import symbols

from theorykit.theories import empirical_risk

from .engine import Face
from .values import number, of

X, Y = symbols("x y", real=True)
SQUARE = empirical_risk.action((X - Y) ** 2 / 2, X, Y, labels="linear")
VALUES = {"alpha": 1.0, "lambda_": 0.1, "sigma2": 0.25}
NUMBERS = ("-1", "0", "1", "1.5", "-0.5", "10**400", "2**64")
FACE = Face(
    empirical_risk,
    {
        "loss": of(X**2, concave=-(X**2), admits=NUMBERS),
        "x": X,
        "y": Y,
        "action": SQUARE,
        "values": of(VALUES, negative={**VALUES, "alpha": -1.0}),
        "eigenvalues teacher": of(np.array([1.0, 2.0]), negative=[1.0, -1.0], zeros=[0.0, 0.0]),
        "order_parameters": of({"m": 0.5, "s": 0.5}),
        "student": of(empirical_risk.solve(SQUARE, VALUES)),
        "rho": number(1.0, above=0.0),
    },
)
