"""Generated handwriting-like characters, in any number of classes, for one-shot learning without downloads.

A character is a few smooth strokes. Every drawing of it moves the strokes a little, warps the whole character, and
changes the pen. The ink is black on white paper, as in Omniglot.
"""

from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, UInt8

from theorykit._jit import usual_settings
from theorykit.checks import checked_instance, checked_key, checked_number, checked_sequence, checked_whole_number

from .images import ImageSet, image_set

_AT_ONCE = 4  # characters drawn in parallel


@dataclass(frozen=True)
class Pen:
    """How characters look, and how much drawings of one character differ. Lengths are in units of the image's side.

    - `strokes`: smallest and largest number of strokes per character. Each is a cubic Bezier curve with random control
      points.
    - `jitter`: standard deviation of the control points, from drawing to drawing.
    - `warp`: standard deviation of the entries of the linear map of the whole character, about the identity.
    - `shift`: standard deviation of its position.
    - `thickness`: half the thickness of a line; `thickness_spread` is the standard deviation of its logarithm.
    """

    strokes: tuple[int, int] = (2, 4)
    jitter: float = 0.02
    warp: float = 0.1
    shift: float = 0.03
    thickness: float = 0.03
    thickness_spread: float = 0.15

    def __post_init__(self):
        pair = checked_sequence("strokes", self.strokes, "whole numbers, the fewest and the most", 2)
        fewest, most = (checked_whole_number(f"strokes[{i}]", number) for i, number in enumerate(pair))
        if not 1 <= fewest <= most:
            raise ValueError(f"strokes must be the fewest, at least 1, and the most of a character, got {self.strokes}")
        for name in ("jitter", "warp", "shift", "thickness_spread"):
            checked_number(name, getattr(self, name), least=0.0)
        checked_number("thickness", self.thickness, above=0.0, below=1.0)


@usual_settings()
def stroke_characters(
    classes: int, drawings: int, *, key: PRNGKeyArray, size: int = 32, pen: Pen | None = None
) -> ImageSet:
    """Draw `drawings` images (size, size) of each of `classes` random characters."""
    for name, number in (("classes", classes), ("drawings", drawings), ("size", size)):
        checked_whole_number(name, number, least=1)
    checked_key("key", key)
    pen = Pen() if pen is None else checked_instance("pen", pen, Pen)

    pixels = np.asarray(_characters(jax.random.split(key, classes), pen, drawings, size))
    names = [f"character {number}" for number in range(1, classes + 1)]
    return image_set(pixels.reshape(-1, size, size), np.repeat(np.arange(classes), drawings), names)


@partial(jax.jit, static_argnums=(1, 2, 3))
def _characters(keys: Key[Array, " classes"], pen: Pen, drawings: int, size: int):
    return jax.lax.map(lambda key: _drawings(pen, drawings, size, key), keys, batch_size=_AT_ONCE)


def _drawings(pen: Pen, drawings: int, size: int, key: PRNGKeyArray) -> UInt8[Array, "drawings size size"]:
    """Draw one random character several times."""
    count_key, shape_key, drawing_key = jax.random.split(key, 3)
    fewest, most = pen.strokes
    is_drawn = jnp.arange(most) < jax.random.randint(count_key, (), fewest, most + 1)
    controls = jax.random.uniform(shape_key, (most, 4, 2), minval=0.12, maxval=0.88)
    return jax.vmap(lambda key: _drawing(pen, is_drawn, controls, size, key))(jax.random.split(drawing_key, drawings))


def _drawing(
    pen: Pen, is_drawn: Bool[Array, " strokes"], controls: Float[Array, "strokes 4 2"], size: int, key: PRNGKeyArray
) -> UInt8[Array, "size size"]:
    # One call of the generator instead of four, because each is slow to compile.
    noise = jax.random.normal(key, (controls.size + 7,))
    moved = controls + pen.jitter * noise[7:].reshape(controls.shape)
    warp = jnp.eye(2) + pen.warp * noise[:4].reshape(2, 2)
    controls = (moved - 0.5) @ warp.T + 0.5 + pen.shift * noise[4:6]
    thickness = pen.thickness * jnp.exp(pen.thickness_spread * noise[6])
    distances = jnp.where(is_drawn[:, None, None], jax.vmap(lambda stroke: _distance(stroke, size))(controls), jnp.inf)
    # The edge of a line is one pixel wide.
    ink = jnp.clip((thickness - distances.min(axis=0)) * size + 0.5, 0, 1)
    return jnp.round(255 * (1 - ink)).astype(jnp.uint8)


def _distance(controls: Float[Array, "4 2"], size: int, segments: int = 11) -> Float[Array, "size size"]:
    """Compute distances from pixel centres to a Bezier curve, approximated by straight segments."""
    t = jnp.linspace(0, 1, segments + 1)[:, None]
    bernstein = jnp.concatenate([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3], axis=1)
    points = bernstein @ controls
    start, along = points[:-1], points[1:] - points[:-1]
    middles = (jnp.arange(size) + 0.5) / size
    down, right = middles[:, None, None] - start[:, 0], middles[None, :, None] - start[:, 1]
    length = jnp.maximum(jnp.sum(along**2, axis=-1), jnp.finfo(along.dtype).tiny)
    nearest = jnp.clip((down * along[:, 0] + right * along[:, 1]) / length, 0, 1)
    squares = (down - nearest * along[:, 0]) ** 2 + (right - nearest * along[:, 1]) ** 2
    return jnp.sqrt(jnp.min(squares, axis=-1))
