"""Numbers of the published program: cases by name, their weights and arrays. See tests/data/dmft/manifest.json."""

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

from theorykit import dmft

DATA = Path(__file__).parent.parent / "data" / "dmft"
MANIFEST = json.loads((DATA / "manifest.json").read_text())
KINDS = {"trajectories": "dmft_trajectories", "lyapunov": "dmft_lyapunov", "general_M": "dmft_general_M"}


@lru_cache
def arrays(kind: str) -> dict[str, np.ndarray]:
    with np.load(DATA / f"{KINDS[kind]}.npz") as stored:
        return dict(stored)


class Case:
    """One case: `case["att"]` is its array of that name, `case.about["beta"]` its entry of the manifest."""

    def __init__(self, kind: str, about: dict):
        self.kind, self.about = kind, about

    def __getitem__(self, name: str) -> np.ndarray:
        return arrays(self.kind)[f"{self.about['case']}/{name}"]

    def __repr__(self):
        return self.about["case"]

    @property
    def weights(self) -> dmft.Weights:
        return dmft.Weights.of_arrays(*self["W"], self.about["P"])

    @property
    def model(self) -> dmft.SelfAttention:
        return dmft.self_attention_limit(self.weights, self.about["L"])

    @property
    def prompt(self) -> np.ndarray:
        """Overlaps of the semantic bits of the first token."""
        return self.weights.prompt(self["x0"][: self.weights.neurons])

    @property
    def parameters(self) -> dmft.Parameters:
        return dmft.Parameters(*(self.about[name] for name in ("beta", "gamma", "epsilon")))


def cases(kind: str) -> list[Case]:
    return [Case(kind, about) for about in MANIFEST[kind]]
