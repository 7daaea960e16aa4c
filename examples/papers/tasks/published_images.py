"""Published image sets, downloaded once: Omniglot, and for tests out of distribution MNIST and Fashion-MNIST.

Downloads are checked against their md5 sums and kept in a cache folder. A set that cannot be downloaded is an error; no
other set replaces it.
"""

import hashlib
from pathlib import Path
from typing import Literal

import equinox as eqx
import pooch
import requests

from theorykit.checks import checked_choice, checked_instance, checked_path, checked_whole_number

from .image_files import SIZE, read_idx, read_omniglot
from .images import ImageSet

OMNIGLOT_CHARACTERS = 964 + 659
"""Number of characters in Omniglot, in the background archive and the evaluation archive."""

TRAINING_CHARACTERS = 1028
VALIDATION_CHARACTERS = 172

DIGIT_NAMES = tuple("0123456789")
FASHION_NAMES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)

Part = Literal["training", "test"]
_PREFIX = {"training": "train", "test": "t10k"}


# Lake, Salakhutdinov and Tenenbaum, Science 350, 1332 (2015); https://github.com/brendenlake/omniglot.
# Sums: https://docs.pytorch.org/vision/stable/_modules/torchvision/datasets/omniglot.html
OMNIGLOT = pooch.create(
    path=pooch.os_cache("theorykit") / "omniglot",
    base_url="https://raw.githubusercontent.com/brendenlake/omniglot/master/python/",
    registry={
        "images_background.zip": "md5:68d2efa1b9178cc56df9314c21c6e718",
        "images_evaluation.zip": "md5:6b91aef0f799c5bb55b94e3f2daec811",
    },
)

# LeCun, Bottou, Bengio and Haffner, Proc. IEEE 86, 2278 (1998); https://yann.lecun.com/exdb/mnist.
# Mirror and sums: https://docs.pytorch.org/vision/stable/_modules/torchvision/datasets/mnist.html
MNIST = pooch.create(
    path=pooch.os_cache("theorykit") / "mnist",
    base_url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    registry={
        "train-images-idx3-ubyte.gz": "md5:f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "md5:d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "md5:9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "md5:ec29112dd5afa0611ce80d1b7f02629c",
    },
)

# Xiao, Rasul and Vollgraf, arXiv:1708.07747; place and sums: https://github.com/zalandoresearch/fashion-mnist
FASHION_MNIST = pooch.create(
    path=pooch.os_cache("theorykit") / "fashion-mnist",
    base_url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    registry={
        "train-images-idx3-ubyte.gz": "md5:8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "md5:25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "md5:bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "md5:bb300cfdad3c16e7a12a480ee83cd310",
    },
)


class OmniglotSplit(eqx.Module):
    """Images of disjoint classes, for training, for choosing settings, and for testing."""

    training: ImageSet
    validation: ImageSet
    test: ImageSet


def omniglot(*, size: int = SIZE, cache: Path | None = None) -> OmniglotSplit:
    """Load Omniglot, 1623 handwritten characters of 50 alphabets with 20 images each, black ink on white paper.

    Lake et al., Science 350, 1332 (2015). The images, 105 x 105 pixels in the files, are resized to `size` x `size`.
    `split_by_name` splits the classes into 1028 for training, 172 for validation and 423 for testing. Tiberi et al.,
    App. H, report 1028, 172 and 432, but these sum to 1632, not 964 + 659 = 1623; probably two digits are swapped.

    Files are kept in `cache`, by default the user's cache folder; see `fetch` for download errors. Raises `ValueError`
    if the archives cannot be read, or have another number of characters.
    """
    checked_whole_number("size", size, least=1)
    archives = [fetch(OMNIGLOT, file, cache=cache) for file in OMNIGLOT.registry]
    images = read_omniglot(archives, size=size)
    if len(images.class_names) != OMNIGLOT_CHARACTERS:
        raise ValueError(
            f"found {len(images.class_names)} characters in {' and '.join(map(str, archives))}, "
            f"expected the {OMNIGLOT_CHARACTERS} of Omniglot"
        )
    return split_by_name(images, training=TRAINING_CHARACTERS, validation=VALIDATION_CHARACTERS)


def split_by_name(images: ImageSet, *, training: int, validation: int) -> OmniglotSplit:
    """Split the classes by their names: given numbers for training and validation, the rest for testing.

    Classes are sorted by the SHA-256 sum of their name in UTF-8; the first ones are for training and the next
    for validation. The split depends neither on a random generator nor on the order of the classes.

    Raises `ValueError` if a part would have no class.
    """
    count = len(checked_instance("images", images, ImageSet).class_names)
    for name, number in (("training", training), ("validation", validation)):
        checked_whole_number(name, number)
    if training < 1 or validation < 1 or training + validation >= count:
        raise ValueError(
            f"{count} classes cannot be split into {training} for training, {validation} for validation and "
            f"{count - training - validation} for testing: each part needs one at least"
        )
    order = sorted(range(count), key=lambda i: hashlib.sha256(images.class_names[i].encode()).digest())
    return OmniglotSplit(
        images.of_classes(order[:training]),
        images.of_classes(order[training : training + validation]),
        images.of_classes(order[training + validation :]),
    )


def mnist(part: Part = "test", *, size: int = SIZE, cache: Path | None = None) -> ImageSet:
    """Load MNIST, handwritten digits: the 10000 test images, or the 60000 training images.

    LeCun et al., Proc. IEEE 86, 2278 (1998). The images, 28 x 28 pixels in the files, are resized to `size` x `size`.
    They are white on black, as in the files, but Omniglot is black on white. Exchanging black and white would only
    change the sign of a task's layer-normalised patches (Tiberi et al., App. H).

    Files are kept in `cache`, by default the user's cache folder; see `fetch` and `read_idx` for the errors.
    """
    return _idx_set(MNIST, part, DIGIT_NAMES, size, cache)


def fashion_mnist(part: Part = "test", *, size: int = SIZE, cache: Path | None = None) -> ImageSet:
    """Load Fashion-MNIST, pieces of clothing: the 10000 test images, or the 60000 training images.

    Xiao et al., arXiv:1708.07747. For `size`, `cache`, errors, and the exchange of black and white, see `mnist`.
    """
    return _idx_set(FASHION_MNIST, part, FASHION_NAMES, size, cache)


def fetch(source: pooch.Pooch, file: str, *, cache: Path | None = None) -> Path:
    """Return the path of a file in its own folder of `cache`, after a download unless it has its md5 sum already.

    Raises

    - `ConnectionError` if the server cannot be reached, breaks off, or does not have the file. You can then put the
      file by hand in the place that the message names.
    - `ValueError` if the download has another md5 sum; it is not kept.
    """
    checked_instance("source", source, pooch.Pooch)
    checked_choice("file", file, source.registry)
    folder = source.path if cache is None else checked_path("cache", cache) / source.path.name
    url, known_sum = source.get_url(file), source.registry[file]
    try:
        return Path(pooch.retrieve(url, known_sum, fname=file, path=folder))
    except requests.RequestException as error:
        raise ConnectionError(
            f"{url} could not be downloaded ({error}); without a network, put that file ({known_sum}) by hand at "
            f"{folder / file}, or use the default image set, which needs no network"
        ) from error
    except ValueError as error:
        raise ValueError(f"{url} came changed or damaged, and nothing of it was kept: {error}") from error


def _idx_set(source, part, class_names, size, cache):
    checked_choice("part", part, _PREFIX)
    checked_whole_number("size", size, least=1)
    images, labels = (
        fetch(source, f"{_PREFIX[part]}-{kind}-ubyte.gz", cache=cache) for kind in ("images-idx3", "labels-idx1")
    )
    return read_idx(images, labels, class_names, size=size)
