"""The tasks of Tiberi et al., arXiv 2405.15926: hidden Markov chains, and one-shot images.

A call of a task draws `Examples`: sequences of tokens with labels +1 or -1.
"""

import gzip
import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pooch
from jax.scipy.linalg import block_diag
from jaxtyping import Array, Float
from PIL import Image


class Examples(NamedTuple):
    """Sequences and their labels, +1 or -1."""

    inputs: Float[Array, "examples tokens features"]
    labels: Float[Array, " examples"]


# ---- Hidden Markov chains, Sec. 4.1 and App. G


@dataclass(frozen=True)
class HiddenMarkovTask:
    """Chains over two hidden states that tend to stay (+1) or to switch (-1).

    Tokens are noisy vectors of the hidden state. A zero token begins the sequence,
    and every token has a one-hot position.
    """

    length: int = 30  # hidden states in a chain
    dimension: int = 200  # features, even, and squared norm of a state's vector
    stay: float = 0.7  # probability, of class -1 to switch
    # Standard deviation in the plane of the two vectors, and orthogonal to it
    parallel_noise: float = 1.0
    orthogonal_noise: float = 1.0
    hardness: float = 10.0  # factor of all attention scores

    @partial(jax.jit, static_argnums=(0, 1))
    def __call__(self, examples: int, *, key) -> Examples:
        """Draw half of each class, in random order."""
        order_key, chain_key, noise_key = jax.random.split(key, 3)
        signs = jnp.where(jnp.arange(examples) < (examples + 1) // 2, 1.0, -1.0)
        labels = jax.random.permutation(order_key, signs)
        stay = jnp.where(labels > 0, self.stay, 1 - self.stay)[:, None]
        uniform = jax.random.uniform(chain_key, (examples, self.length))
        begins = jnp.arange(self.length) == 0
        switches = jnp.where(begins, uniform < 0.5, uniform >= stay)
        states = jnp.cumsum(switches, axis=1) % 2 == 0
        first, second = self._vectors()
        plane = jnp.stack([first, second]) / jnp.sqrt(self.dimension)
        noise = jax.random.normal(noise_key, (*states.shape, self.dimension))
        parallel = noise @ plane.T @ plane
        tokens = jnp.where(states[..., None], first, second)
        tokens += self.parallel_noise * parallel
        tokens += self.orthogonal_noise * (noise - parallel)
        tokens = jnp.pad(tokens, ((0, 0), (1, 0), (0, 0)))
        positions = jnp.tile(jnp.eye(self.length + 1), (examples, 1, 1))
        return Examples(jnp.concatenate([tokens, positions], axis=2), labels)

    def _vectors(self):
        is_first = jnp.arange(self.dimension) < self.dimension // 2
        return jnp.sqrt(2.0) * is_first, jnp.sqrt(2.0) * ~is_first

    def good_head(self) -> Array:
        """Attend to the preceding token if it has the same state, else to the first.

        Like all heads, this is a key-query product with the key index left.
        """
        first, second = self._vectors()
        difference = first - second
        detector = 2 * difference / jnp.sum(difference**2)
        to_beginning = jnp.full(self.length + 1, 1.5).at[0].set(0.0)
        preceding = jnp.eye(self.length + 1, k=1).at[0].set(to_beginning)
        both = block_diag(jnp.outer(detector, detector), preceding)
        return self.hardness * both

    def uniform_head(self) -> Array:
        """Attend to all tokens equally."""
        is_position = jnp.arange(self.dimension + self.length + 1) >= self.dimension
        return self.hardness * jnp.outer(is_position, is_position)

    def random_head(self, key) -> Array:
        """Draw normal entries, scaled by block like the tokens."""
        features = jnp.full(self.dimension, self.dimension**-0.5)
        scale = jnp.append(features, jnp.ones(self.length + 1))
        entries = jax.random.normal(key, (len(scale), len(scale)))
        return self.hardness * jnp.outer(scale, scale) * entries

    @partial(jax.jit, static_argnums=0)
    def heads(self, *, key) -> tuple[Array, Array]:
        """Return the paper's heads (2, 2): in each layer a good and a random one.

        Path 11 is good, path 21 averages noise away; 12 and 22 are harmful.
        """
        first, second = map(self.random_head, jax.random.split(key))
        lower = jnp.stack([self.good_head(), first])
        return lower, jnp.stack([self.uniform_head(), second])


# ---- Images in classes

SIZE, PATCH = 32, 8  # side lengths in pixels, App. H


class Images(eqx.Module):
    """Grey images, sorted by class, with the first and the number of each class."""

    pixels: Array
    starts: Array
    counts: Array

    def classes(self, first: int, end: int) -> "Images":
        """Select the classes `first` to `end` - 1."""
        starts, counts = self.starts[first:end], self.counts[first:end]
        rows = slice(int(starts[0]), int(starts[-1] + counts[-1]))
        return Images(self.pixels[rows], starts - starts[0], counts)


def images_of(pixels: np.ndarray, classes: np.ndarray) -> Images:
    """Sort images by `classes`, numbers from 0, and resize them."""
    images = map(Image.fromarray, pixels[np.argsort(classes, kind="stable")])
    # Lanczos filters leave a faint ghost of the ink on blank paper, and the layer
    # normalisation of a patch makes it as strong as the ink.
    bicubic = Image.Resampling.BICUBIC
    sized = np.stack([np.asarray(each.resize((SIZE, SIZE), bicubic)) for each in images])
    counts = np.bincount(classes)
    starts = np.cumsum(counts) - counts
    return Images(*map(jnp.asarray, (sized, starts, counts)))


def cut_into_patches(images: Array, size: int) -> Array:
    """Cut images (..., height, width) into (..., patches, pixels), row by row."""
    *leading, height, width = images.shape
    shape = (*leading, height // size, size, width // size, size)
    cut = jnp.moveaxis(images.reshape(shape), -3, -2)
    return cut.reshape(*leading, -1, size**2)


class OneShotTask(eqx.Module):
    """Three images: two of different classes, labelled + and -, and one in question.

    Is the third of the class labelled + or -? A token is the sum of a patch,
    layer-normalised, its position as sinusoids, and a fixed random vector of its
    image's label. A patch has its pixels once per colour. Sec. 4.2 and App. H.
    """

    images: Images
    channels: int = eqx.field(static=True, default=1)

    @property
    def features(self) -> int:
        """Number of features of a token."""
        return self.channels * PATCH**2

    @partial(jax.jit, static_argnums=1)
    def __call__(self, examples: int, *, key) -> Examples:
        """Draw random sequences."""
        keys = jax.random.split(key, examples)
        shown, labels, answers = jax.vmap(self._draw)(keys)
        return Examples(self.tokens(self.images.pixels[shown], labels), answers)

    def _draw(self, key):
        """Draw images, labels 0, 1, 2 for +, -, ?, and the answer."""
        class_key, image_key, answer_key, label_key = jax.random.split(key, 4)
        classes = _two_of(len(self.images.counts), class_key)
        # Of each class, one image is shown and the other may be in question.
        counts, keys = self.images.counts[classes], jax.random.split(image_key)
        pairs = self.images.starts[classes][:, None] + jax.vmap(_two_of)(counts, keys)
        asked = jax.random.bernoulli(answer_key).astype(int)
        plus = jax.random.bernoulli(label_key).astype(int)
        shown = jnp.array([pairs[0, 0], pairs[1, 0], pairs[asked, 1]])
        labels = jnp.where(jnp.arange(2) == plus, 0, 1)
        answer = jnp.where(asked == plus, 1.0, -1.0)
        return shown, jnp.append(labels, 2), answer

    def tokens(self, pixels: Array, labels: Array) -> Array:
        """Make tokens of `pixels` (examples, 3, height, width) and their labels."""
        normalised = (pixels.astype(float) / 255 - 0.922) / 0.084
        patches = cut_into_patches(normalised, PATCH)
        centred = patches - patches.mean(-1, keepdims=True)
        variance = jnp.mean(centred**2, -1, keepdims=True)
        patches = jnp.tile(centred / jnp.sqrt(variance + 1e-5), self.channels)
        vectors = jax.random.normal(jax.random.key(0), (3, self.features))
        labelled = patches + vectors[labels][:, :, None]
        tokens = labelled.reshape(len(labels), -1, self.features)
        powers = 2 * jnp.arange(self.features // 2) / self.features
        angles = jnp.arange(tokens.shape[1])[:, None] / 10_000**powers
        waves = jnp.stack([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        return tokens + jnp.sqrt(2.0) * waves.reshape(tokens.shape[1:])


def _two_of(count, key) -> Array:
    """Draw two different whole numbers below `count`."""
    first_key, step_key = jax.random.split(key)
    first = jax.random.randint(first_key, (), 0, count)
    step = jax.random.randint(step_key, (), 1, count)
    return jnp.stack([first, (first + step) % count])


# ---- Generated characters: a few smooth strokes, black on white, as in Omniglot


@partial(jax.jit, static_argnums=(0, 1))
def characters(classes: int, drawings: int, *, key) -> Images:
    """Draw `drawings` images of each of `classes` random characters."""

    def drawn(key):
        count_key, shape_key, drawing_key = jax.random.split(key, 3)
        is_drawn = jnp.arange(4) < jax.random.randint(count_key, (), 2, 5)
        shape = (4, 4, 2)  # strokes, control points, coordinates
        controls = jax.random.uniform(shape_key, shape, minval=0.12, maxval=0.88)
        keys = jax.random.split(drawing_key, drawings)
        return jax.vmap(partial(_drawing, is_drawn, controls))(keys)

    pixels = jax.lax.map(drawn, jax.random.split(key, classes), batch_size=4)
    starts = drawings * jnp.arange(classes)
    counts = jnp.full(classes, drawings)
    return Images(pixels.reshape(-1, SIZE, SIZE), starts, counts)


def _drawing(is_drawn, controls, key) -> Array:
    """Move the strokes a little, warp the character, and change the pen."""
    noise = jax.random.normal(key, (controls.size + 7,))
    moved = controls + 0.02 * noise[7:].reshape(controls.shape)
    warp = jnp.eye(2) + 0.1 * noise[:4].reshape(2, 2)
    moved = (moved - 0.5) @ warp.T + 0.5 + 0.03 * noise[4:6]
    thickness = 0.03 * jnp.exp(0.15 * noise[6])
    distances = jax.vmap(_distances)(moved)
    distance = jnp.where(is_drawn[:, None, None], distances, jnp.inf).min(axis=0)
    # The edge of a line is one pixel wide.
    ink = jnp.clip((thickness - distance) * SIZE + 0.5, 0, 1)
    return jnp.round(255 * (1 - ink)).astype(jnp.uint8)


def _distances(controls: Float[Array, "4 2"]) -> Array:
    """Return distances of pixels from a cubic Bezier curve, cut into 11 segments."""
    t = jnp.linspace(0, 1, 12)[:, None]
    bernstein = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
    points = jnp.concatenate(bernstein, axis=1) @ controls
    start, along = points[:-1], points[1:] - points[:-1]
    middles = (jnp.arange(SIZE) + 0.5) / SIZE
    down = middles[:, None, None] - start[:, 0]
    right = middles[None, :, None] - start[:, 1]
    length = jnp.maximum(jnp.sum(along**2, axis=-1), jnp.finfo(along.dtype).tiny)
    place = (down * along[:, 0] + right * along[:, 1]) / length
    place = jnp.clip(place, 0, 1)
    below, beside = down - place * along[:, 0], right - place * along[:, 1]
    return jnp.sqrt(jnp.min(below**2 + beside**2, axis=-1))


# ---- Published images, downloaded once and checked against their md5 sums

# Lake et al., Science 350, 1332 (2015)
OMNIGLOT = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
OMNIGLOT_FILES = {
    "images_background.zip": "68d2efa1b9178cc56df9314c21c6e718",
    "images_evaluation.zip": "6b91aef0f799c5bb55b94e3f2daec811",
}
# Test sets of LeCun et al. (1998) and of Xiao et al., arXiv 1708.07747
MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
FASHION_MNIST = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"
CACHE = pooch.os_cache("theorykit")
IMAGES, LABELS = "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"
TEST_FILES = {
    (MNIST, IMAGES): "9fb629c4189551a2d022fa330f9573f3",
    (MNIST, LABELS): "ec29112dd5afa0611ce80d1b7f02629c",
    (FASHION_MNIST, IMAGES): "bef4ecab320f06d8554ea6380940ec79",
    (FASHION_MNIST, LABELS): "bb300cfdad3c16e7a12a480ee83cd310",
}


def fetch(source: str, file: str, md5: str) -> Path:
    """Return the path of a file in the user's cache, downloaded if it is not there."""
    return Path(pooch.retrieve(source + file, f"md5:{md5}", f"{md5}-{file}", CACHE))


def omniglot() -> tuple[Images, Images, Images]:
    """Return 1028 characters of Omniglot for training, 172 for validation, 423 for tests.

    The paper has 1028, 172 and 432, but 1623 characters. They are sorted by the
    SHA-256 sum of "Alphabet/characterNN".
    """
    images = read_omniglot([fetch(OMNIGLOT, *each) for each in OMNIGLOT_FILES.items()])
    ends = (0, 1028, 1200, 1623)
    return tuple(map(images.classes, ends[:-1], ends[1:]))


def read_omniglot(archives: list[Path]) -> Images:
    """Read zip archives of Alphabet/characterNN/*.png."""
    found = {}
    for path in archives:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                place = PurePosixPath(name)
                if place.suffix == ".png":
                    image = Image.open(io.BytesIO(archive.read(name))).convert("L")
                    found["/".join(place.parts[-3:-1]), place.name] = np.asarray(image)
    names = sorted(found)
    kinds = {character for character, _ in names}
    order = sorted(kinds, key=lambda each: hashlib.sha256(each.encode()).digest())
    classes = np.array([order.index(character) for character, _ in names])
    return images_of(np.stack([found[name] for name in names]), classes)


def mnist(source: str = MNIST) -> Images:
    """Return the 10,000 test images of MNIST, or of `FASHION_MNIST`."""
    files = [fetch(source, file, TEST_FILES[source, file]) for file in (IMAGES, LABELS)]
    images, labels = (gzip.decompress(path.read_bytes()) for path in files)
    pixels = np.frombuffer(images, np.uint8, offset=16).reshape(-1, 28, 28)
    return images_of(pixels, np.frombuffer(labels, np.uint8, offset=8))


def digits() -> Images:
    """Return 1797 digits, black on white, that come with scikit-learn."""
    from sklearn.datasets import load_digits

    published = load_digits()
    grey = np.rint(255 - published.images * (255 / 16)).astype(np.uint8)
    return images_of(grey, published.target)
