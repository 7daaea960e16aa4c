"""Which perturbations double precision resolves: a running error bound beside products of Jacobians and QR.

Householder QR is backward stable: Q R = J Q_old + E, column j of E at most n^2 u times that of J Q_old (n the size, u
the unit of rounding; Higham, Accuracy and Stability of Numerical Algorithms, Theorem 19.4). Computing J Q_old adds n u
times the terms that its entries are sums of. Of the vector j that a token s makes, relative to the one before, hence

    |J_last ... J_(s+1)| (n^2 u |J_s| + n u |terms of J_s|)

is error at a later token, where the vector itself has R_jj of s times ... times R_jj of the last token. `Resolution`
bounds the first from the norms of the Jacobians' blocks along the orbit. Where, with the errors of all tokens of a
context, it is more than half of the second, the perturbation cannot be told from one that is annihilated. Of all others
R_jj is right to a factor of 2 over a context, and exponents to log 2 a context.

Older errors are in attentions that have left the window, or have grown as the perturbation has. The tokens of a long
context are taken a few together, as one token that is their product.
"""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

_UNIT = float(jnp.finfo(jnp.float64).eps) / 2
# so many groups of tokens in a context, or every token of a shorter one by itself
_GROUPS = 4
# beyond which a bound is as good as infinite
_LARGEST = 1e150


class Sizes(NamedTuple):
    """Norms of the Jacobian of one token.

    - `blocks` `(context, *batch)`: of each block, its Frobenius norm. `terms`: of all terms that these are sums of.
    - `newest`: one in the slot of the attention that the token leads to, zero in others.
    """

    blocks: Float[Array, "context *batch"]
    terms: Float[Array, "*batch"]
    newest: Float[Array, "context *_"]


class Resolution(eqx.Module):
    """Bounds of the rounding errors in perturbations, by the group of tokens where they arose.

    - `vector` `(context, *batch)`: bounds by slot of a perturbation of length one when the latest group began.
    - `errors` `(groups, context, *batch)`: the same of errors that arose in each group, propagated until now.
    - `growth` `(groups, exponents, *batch)`: logarithms of how perturbations have grown since each group began.
    - `lost` `(exponents, *batch)`: perturbations that errors of a group have exceeded. `floor` `(exponents, *batch)`:
      the logarithm of a growth over a context that could not have been told there; minus infinity for others.
      `latest`: the number of the latest group. `rounds`: orthonormalisations in a group.
    """

    vector: Float[Array, "context *batch"]
    errors: Float[Array, "groups context *batch"]
    growth: Float[Array, "groups exponents *batch"]
    lost: Bool[Array, "exponents *batch"]
    floor: Float[Array, "exponents *batch"]
    latest: Int[Array, ""]
    rounds: int = eqx.field(static=True)

    @classmethod
    def begin(cls, context: int, exponents: int, batch: tuple[int, ...], every: int) -> "Resolution":
        """At the start of an orbit whose perturbations are made orthonormal `every` so many tokens."""
        rounds = -(-context // (_GROUPS * every))
        groups = -(-context // (rounds * every)) + (rounds * every > 1)  # a context may begin within a group
        return cls(
            jnp.ones((context, *batch)),
            jnp.zeros((groups, context, *batch)),
            jnp.zeros((groups, exponents, *batch)),
            jnp.zeros((exponents, *batch), dtype=bool),
            jnp.full((exponents, *batch), -jnp.inf),
            jnp.asarray(0),
            rounds,
        )

    def enter(self, number: Int[Array, ""]) -> "Resolution":
        """Before a round: a group that begins replaces the oldest."""
        begins = number % self.rounds == 0
        latest = number // self.rounds % len(self.errors)
        fresh = begins & self._is(latest)
        return Resolution(
            jnp.where(begins, 1.0, self.vector),
            jnp.where(fresh, 0.0, self.errors),
            jnp.where(fresh, 0.0, self.growth),
            self.lost,
            self.floor,
            latest,
            self.rounds,
        )

    def token(self, sizes: Sizes, size: int) -> "Resolution":
        """After a token: bounds propagated through its Jacobian, its rounding added; vectors have `size` numbers."""
        newest = sizes.newest > 0
        made = size * _UNIT * sizes.terms * jnp.max(self.vector, axis=0)
        vector = jnp.where(newest, jnp.minimum(jnp.sum(sizes.blocks * self.vector, axis=0), _LARGEST), self.vector)
        made = jnp.where(newest, made, 0.0) + size**2 * _UNIT * jnp.sqrt(jnp.sum(vector**2, axis=0))
        passed = jnp.minimum(jnp.sum(sizes.blocks * self.errors, axis=1, keepdims=True), _LARGEST)
        errors = jnp.where(newest, passed, self.errors) + jnp.where(self._is(self.latest), made, 0.0)
        return Resolution(vector, errors, self.growth, self.lost, self.floor, self.latest, self.rounds)

    def grow(self, growth: Float[Array, "exponents *batch"]) -> "Resolution":
        """After an orthonormalisation, with the logarithms of R_jj."""
        return Resolution(
            self.vector, self.errors, self.growth + growth, self.lost, self.floor, self.latest, self.rounds
        )

    def _is(self, group: Int[Array, ""]) -> Bool[Array, "groups *_"]:
        """True for one group, with axes for slots and the batch."""
        return (jnp.arange(len(self.errors)) == group).reshape(-1, *(1 for _ in self.errors.shape[1:]))

    def losing(self, lost: Bool[Array, "exponents *batch"]) -> "Resolution":
        """With these perturbations lost."""
        told = jnp.max(jnp.stack([self._least(errors) for errors in self.errors]), axis=0)
        floor = jnp.where(lost & ~self.lost, told, self.floor)
        return Resolution(self.vector, self.errors, self.growth, lost, floor, self.latest, self.rounds)

    def unresolved(self, growth: Float[Array, "exponents *batch"]) -> Bool[Array, "exponents *batch"]:
        """Whether, after an orthonormalisation with the logarithms of R_jj, errors of a group exceed half of each."""
        groups = zip(self.errors, self.growth + growth, strict=True)
        return jnp.any(jnp.stack([self._exceed(*group) for group in groups]), axis=0)

    def _exceed(self, errors, growth) -> Bool[Array, "exponents *batch"]:
        """Whether the errors of all groups, were they like these, are more than half of the perturbations."""
        return growth < self._least(errors)

    def _least(self, errors: Float[Array, "context *batch"]) -> Float[Array, "*batch"]:
        """The logarithm of the least growth that can be told beside errors like these of all groups."""
        return jnp.log(2 * len(self.errors) * jnp.sqrt(jnp.sum(errors**2, axis=0)))
