"""Architectures of the grammar to derive from."""

from theorykit import bpkr
from theorykit.bpkr.specification.layers import Dense, Skip

from ..bpkr.cases import GRAMMAR, ONE_LAYER, THREE_LAYERS, TWO_LAYERS, Case

ALL_OF_ONE = (1.0,) * 8


def case(*layers, **more) -> Case:
    return Case(layers, (20.0,) * (len(layers) + 1), ALL_OF_ONE[: len(layers) + 2], **more)


def named(case: Case) -> str:
    return f"{case.layers}, outputs {case.outputs}"


MORE = {
    "skips between": case(2, Skip(2), 2),
    "skips around dense layers": case(Skip(Dense(), 0.5), Dense(), Skip(Dense(), 2.0)),
    "a skip at two outputs": case(Skip(2), outputs=2),
    "nonlinear layers": case(Dense(activation="erf"), 2, embedding="relu", outputs=2, read_tokens=2),
    "a nonlinear embedding": case(embedding="quadratic"),
}
ARCHITECTURES = {
    "one layer": ONE_LAYER,
    "two layers": TWO_LAYERS,
    "three layers": THREE_LAYERS,
    **{named(kind): kind for kind in GRAMMAR},
    "one dense layer": case(Dense()),
    **MORE,
}
# the others take half a minute or more together
QUICK = {"one layer", "two layers", "one dense layer"}
QUICK |= {named(kind) for kind in GRAMMAR[:2]} | {"a nonlinear embedding"}
SMALL = {"two layers": TWO_LAYERS, "a skip connection": case(Skip(2, 0.7))}


def action(name: str) -> bpkr.Action:
    return bpkr.derive({**ARCHITECTURES, **SMALL}[name].architecture())
