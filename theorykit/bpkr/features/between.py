"""Features of networks with nonlinear layers between attention layers, by an ansatz.

The units phi(z_s) of token s are replaced by b_s z_s + noise, with b_s = E[phi'(z_s)]. The
linear part continues along the paths to the input. The noise has the covariance
X = kappa(C) - b C b and ends there: the order parameter above reads it,

    K = sum U_1^{pi pi'} phi^pi . phi^pi' + sum_l sum U_{l+1}^{pi pi'} q^pi X_l q^pi'.

C is the covariance of z at infinite width. There the sum is the exact kernel of the
network, with attention and dense layers in any order (Hron et al., arXiv 2006.10540).
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._compat import check_fits
from ..._jit import jit
from ..specification.activations import Activation
from ..specification.architecture import Architecture
from ..specification.layers import prior_means
from .implicit import HELD, ImplicitFeatures, Units, choose_rule, joint, kernel_after, slopes_of, units_of
from .pair_averages import Rule


class Stage(eqx.Module):
    """One layer for some examples.

    - `mixing`: of tokens by the branches of the layer.
    - `units`, `slopes`: of a nonlinear layer, the units z and b.
    - `reading`: how partial paths from a nonlinear layer read its tokens.
    - `activation`, `rule`: its function phi, and how to compute the kernel.
    """

    mixing: Float[Array, "examples tokens branches tokens"]
    units: Units | None = None
    slopes: Float[Array, "examples tokens"] | None = None
    reading: Float[Array, "examples tokens paths"] | None = None
    activation: Activation | None = eqx.field(static=True, default=None)
    rule: Rule | None = eqx.field(static=True, default=None)

    def beside(self, other: "Stage") -> "Stage":
        """Return the stage with units of a rule that serves `other`, too."""
        rule = joint(self.rule, other.rule)
        if rule == self.rule:
            return self
        units = jax.vmap(partial(units_of, self.activation, rule))(self.units.variance)
        return replace(self, units=units, rule=rule)


class BranchFeatures(ImplicitFeatures):
    """Kernels of the linear part and of the noise of each nonlinear layer.

    - `tokens`: as in `TokenFeatures`.
    - `paths`: path features of the linear part.
    - `stages`, `covariances`: of all layers, and the prior covariances of their branches.
    - `readout`: how tokens are read after the last layer.
    """

    tokens: Float[Array, "examples tokens features"]
    paths: Float[Array, "examples paths features"]
    stages: tuple[Stage, ...]
    covariances: tuple[Float[Array, "_ _"], ...]
    readout: Float[Array, "examples tokens read"]

    @property
    def activations(self) -> tuple[Activation, ...]:
        return tuple(stage.activation for stage in self.stages if stage.activation)

    @property
    def of_examples(self) -> tuple:
        return self.tokens, self.paths, self.stages, self.readout

    def with_examples(self, arrays: tuple) -> "BranchFeatures":
        return BranchFeatures(*arrays[:3], self.covariances, arrays[3])

    @property
    def shape(self) -> tuple[int, int, int]:
        read = sum(stage.reading.shape[2] for stage in self.stages if stage.reading is not None)
        return len(self.tokens), self.paths.shape[1] + read, self.tokens.shape[2]

    def by_example(self, other, reduce):
        most = max(stage.mixing.shape[2] for stage in self.stages)
        numbers = len(other) * self.tokens.shape[1] ** 2 * most
        here = replace(self, stages=tuple(map(Stage.beside, self.stages, other.stages)))
        there = replace(other, stages=tuple(map(Stage.beside, other.stages, self.stages)))

        def of_example(example):
            return reduce(_kernels(here[example[None]], there)[0])

        return jax.lax.map(of_example, jnp.arange(len(self)), batch_size=max(1, HELD // numbers))


def _kernels(one: BranchFeatures, other: BranchFeatures) -> Float[Array, "some rows columns others"]:
    """Return kernels between paths, and between readings of noise, in blocks."""
    examples, tokens = one.tokens.shape[:2]
    blocks = [jnp.einsum("epi,fqi->epqf", one.paths, other.paths)]
    between = jnp.einsum("esi,fti->esft", one.tokens, other.tokens)
    for here, there, covariance in zip(one.stages, other.stages, one.covariances, strict=True):
        between = jnp.einsum("esau,esft->eauft", here.mixing, between)
        between = jnp.einsum("ab,eauft,ftbv->eufv", covariance, between, there.mixing)
        if here.units is None:
            continue
        flat = between.reshape(examples * tokens, -1)
        units = (jax.tree.map(lambda each: each.reshape(-1, *each.shape[2:]), stage.units) for stage in (here, there))
        kernel = kernel_after(here.activation, here.rule, *units, flat).reshape(between.shape)
        noise = kernel - here.slopes[:, :, None, None] * between * there.slopes
        blocks.append(jnp.einsum("esp,esft,ftq->epqf", here.reading, noise, there.reading))
        between = kernel
    sizes = [block.shape[1] for block in blocks]
    starts = np.cumsum([0, *sizes])
    found = jnp.zeros((examples, starts[-1], starts[-1], len(other)))
    for start, size, block in zip(starts, sizes, blocks, strict=False):
        found = found.at[:, start : start + size, start : start + size].set(block)
    return found


def branch_features(
    inputs: Array, mixings: Sequence[Array], architecture: Architecture, readout: Array
) -> BranchFeatures:
    examples, tokens, width = inputs.shape
    branches = max(architecture.branches)
    check_fits(f"the kernel between {examples * tokens:,} tokens", 8 * branches * (examples * tokens) ** 2)
    numbers, unit = architecture.layer_numbers(), np.eye(1)
    covariances = tuple(jnp.asarray(prior_means([form], numbers, unit)[0]) for form in architecture.forms)
    embedded = jnp.sqrt(architecture.prior_variances[0] / width) * inputs
    own = jnp.einsum("esi,eti->est", embedded, embedded)
    stages = []
    for layer, (mixing, covariance) in enumerate(zip(mixings, covariances, strict=True), 1):
        own = _mixed(own, mixing, covariance)
        stage = Stage(mixing)
        if layer in architecture.between:
            activation = architecture.layers[layer - 1].activation
            variances = jnp.diagonal(own, axis1=1, axis2=2)
            rule = choose_rule(activation, variances)
            units, slopes, own = _after(activation, rule, own, variances)
            stage = Stage(mixing, units, slopes, None, activation, rule)
        stages.append(stage)
    paths, stages = _read(embedded, tuple(stages), readout)
    return BranchFeatures(embedded, paths, stages, covariances, readout)


@jit
def _mixed(own, mixing, covariance):
    return jnp.einsum("esau,est,ab,etbv->euv", mixing, own, covariance, mixing)


@jit
def _after(activation, rule, own, variances):
    """Return the units of a nonlinear layer, their slopes and kernels within examples."""
    units = jax.vmap(partial(units_of, activation, rule))(variances)
    slopes = jax.vmap(partial(slopes_of, activation, rule))(units)
    return units, slopes, jax.vmap(partial(kernel_after, activation, rule))(units, units, own)


@jit
def _read(embedded, stages, reading):
    """Return path features, and stages with the readings of nonlinear layers."""
    read = []
    for stage in reversed(stages):
        if stage.units is not None:
            stage = replace(stage, reading=reading)
            reading = stage.slopes[..., None] * reading
        read.insert(0, stage)
        reading = jnp.einsum("esau,eup->esap", stage.mixing, reading)
        reading = reading.reshape(*reading.shape[:2], -1)
    return jnp.einsum("esp,esi->epi", reading, embedded), tuple(read)
