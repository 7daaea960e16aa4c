"""Architectures of the grammar to derive from."""

from theorykit import bpkr
from theorykit.bpkr.specification.layers import Dense, Skip

from ..bpkr.cases import GRAMMAR, ONE_LAYER, THREE_LAYERS, TWO_LAYERS, Case

ALL_OF_ONE = (1.0,) * 8


def case(*layers, outputs=1) -> Case:
    return Case(layers, (20.0,) * (len(layers) + 1), ALL_OF_ONE[: len(layers) + 2], outputs)


MORE = {
    "skips between": case(2, Skip(2), 2),
    "skips around dense layers": case(Skip(Dense(), 0.5), Dense(), Skip(Dense(), 2.0)),
    "a skip at two outputs": case(Skip(2), outputs=2),
}
ARCHITECTURES = {
    "one layer": ONE_LAYER,
    "two layers": TWO_LAYERS,
    "three layers": THREE_LAYERS,
    **{f"{kind.layers}, outputs {kind.outputs}": kind for kind in GRAMMAR},
    "one dense layer": case(Dense()),
    **MORE,
}
# the others take half a minute or more together
QUICK = {"one layer", "two layers", "one dense layer"}
QUICK |= {f"{kind.layers}, outputs {kind.outputs}" for kind in GRAMMAR[:3]}
SMALL = {"two layers": TWO_LAYERS, "a skip connection": case(Skip(2, 0.7))}


def action(name: str) -> bpkr.Action:
    return bpkr.derive({**ARCHITECTURES, **SMALL}[name].architecture())
