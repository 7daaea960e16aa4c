"""Tests that published images are downloaded once, checked, and split reproducibly, with clear errors."""

import gzip
import hashlib
import http.server
import io
import re
import socket
import threading
from pathlib import Path

import numpy as np
import pooch
import pytest

from papers.tasks import published_images as published
from papers.tasks.image_files import read_omniglot

from .image_writers import DIGIT_LABELS, DIGITS, idx, images_of, one_line, png, write_alphabets, write_zip, written

SOURCES = (published.OMNIGLOT, published.MNIST, published.FASHION_MNIST)


@pytest.fixture
def alphabets(tmp_path) -> list[Path]:
    return write_alphabets(tmp_path)


def test_a_split_is_disjoint_complete_and_keeps_the_images_of_a_class(alphabets):
    images = read_omniglot(alphabets, size=6)
    split = published.split_by_name(images, training=3, validation=2)
    parts = (split.training, split.validation, split.test)
    assert [len(part.class_names) for part in parts] == [3, 2, 1]
    assert sorted(name for part in parts for name in part.class_names) == sorted(images.class_names)
    for part in parts:
        for name in part.class_names:
            np.testing.assert_array_equal(images_of(part, name), images_of(images, name))


def test_a_split_follows_the_sums_of_the_names_and_nothing_else(alphabets):
    images = read_omniglot(alphabets, size=6)
    split = published.split_by_name(images, training=3, validation=2)
    ordered = sorted(images.class_names, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    assert (split.training.class_names, split.validation.class_names, split.test.class_names) == (
        *(tuple(ordered[:3]), tuple(ordered[3:5]), tuple(ordered[5:])),
    )
    shuffled = published.split_by_name(images.of_classes([4, 1, 5, 0, 3, 2]), training=3, validation=2)
    np.testing.assert_array_equal(shuffled.training.pixels, split.training.pixels)
    assert shuffled.test.class_names == split.test.class_names


def test_the_published_numbers_of_characters_do_not_add_up_but_ours_do():
    assert published.OMNIGLOT_CHARACTERS == 964 + 659 == 1623
    tested = published.OMNIGLOT_CHARACTERS - published.TRAINING_CHARACTERS - published.VALIDATION_CHARACTERS
    assert (published.TRAINING_CHARACTERS, published.VALIDATION_CHARACTERS, tested) == (1028, 172, 423)
    assert published.OMNIGLOT_CHARACTERS != 1028 + 172 + 432


class Server:
    """Serves `files`, by name, on this computer, and records requests."""

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                name = self.path.removeprefix("/data/")
                server.asked.append(name)
                content = server.files.get(name)
                self.send_response(404 if content is None else 200)
                self.send_header("Content-Length", str(len(content or b"")))
                self.end_headers()
                # A connection breaks off before the announced length of the file.
                self.wfile.write((content or b"").removesuffix(b"BROKEN OFF"))

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/data"

    def source(self, folder: Path, **sums: str) -> pooch.Pooch:
        """Make a source of the served files, kept in `folder`; `sums` replace the sums of files by wrong ones."""
        correct = {name: md5(content) for name, content in self.files.items()}
        return pooch.create(path=folder, base_url=f"{self.url}/", registry=correct | sums)


def md5(content: bytes) -> str:
    return f"md5:{hashlib.md5(content).hexdigest()}"


@pytest.fixture
def server(monkeypatch):
    # A user's proxy does not reach this computer.
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    running = Server()
    thread = threading.Thread(target=running.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield running
    running.http.shutdown()
    thread.join()
    running.http.server_close()


def files_under(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_file_is_downloaded_once(server, tmp_path):
    server.files["images"] = b"some bytes"
    source = server.source(Path("set"))
    for _ in range(2):
        path = published.fetch(source, "images", cache=tmp_path)
        assert path == tmp_path / "set" / "images" and path.read_bytes() == b"some bytes"
    assert server.asked == ["images"]


def test_the_default_cache_is_the_users(server, tmp_path):
    for source, folder in zip(SOURCES, ("omniglot", "mnist", "fashion-mnist"), strict=True):
        assert source.path == pooch.os_cache("theorykit") / folder
    server.files["images"] = b"some bytes"
    assert published.fetch(server.source(tmp_path / "set"), "images") == tmp_path / "set" / "images"


def test_a_changed_file_is_refused_and_not_kept(server, tmp_path):
    server.files["images"] = b"other bytes"
    expected, found = "0" * 32, hashlib.md5(b"other bytes").hexdigest()
    source = server.source(Path("set"), images=f"md5:{expected}")
    with pytest.raises(ValueError, match="nothing of it was kept") as error:
        published.fetch(source, "images", cache=tmp_path)
    for text in (f"{server.url}/images", expected, found):
        assert text in str(error.value)
    assert one_line(error) and files_under(tmp_path) == []


def test_a_damaged_file_in_the_cache_is_downloaded_again(server, tmp_path):
    server.files["images"] = b"some bytes"
    source = server.source(Path("set"))
    path = published.fetch(source, "images", cache=tmp_path)
    path.write_bytes(b"some byt")
    assert published.fetch(source, "images", cache=tmp_path).read_bytes() == b"some bytes"
    assert server.asked == ["images", "images"]


def unreachable() -> str:
    """Return an address without a server."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/data/"


def test_without_a_network_the_error_says_what_to_do(server, tmp_path):
    source = pooch.create(path="set", base_url=unreachable(), registry={"images": "md5:" + "0" * 32})
    with pytest.raises(ConnectionError) as error:
        published.fetch(source, "images", cache=tmp_path)
    for text in (f"{source.base_url}images", str(tmp_path / "set" / "images"), "0" * 32, "needs no network"):
        assert text in str(error.value)
    assert one_line(error) and files_under(tmp_path) == []


def test_a_file_put_by_hand_needs_no_network(tmp_path):
    (tmp_path / "set").mkdir()
    by_hand = written(tmp_path / "set" / "images", b"some bytes")
    source = pooch.create(path="set", base_url=unreachable(), registry={"images": md5(b"some bytes")})
    assert published.fetch(source, "images", cache=tmp_path) == by_hand


@pytest.mark.parametrize("content, complaint", [(None, "404"), (b"some bytesBROKEN OFF", "broke")])
def test_a_missing_file_and_a_broken_connection_are_connection_errors(server, tmp_path, content, complaint):
    if content is not None:
        server.files["images"] = content
    source = server.source(Path("set"), images=md5(b"some bytes"))
    with pytest.raises(ConnectionError, match=complaint) as error:
        published.fetch(source, "images", cache=tmp_path)
    assert f"{server.url}/images" in str(error.value) and one_line(error) and files_under(tmp_path) == []


@pytest.mark.parametrize("load, name", [(published.mnist, "MNIST"), (published.fashion_mnist, "FASHION_MNIST")])
def test_digits_and_clothes_from_the_server_to_the_images(server, tmp_path, monkeypatch, load, name):
    for prefix, count in (("train", 12), ("t10k", 10)):
        server.files[f"{prefix}-images-idx3-ubyte.gz"] = gzip.compress(idx(DIGITS[:count]))
        server.files[f"{prefix}-labels-idx1-ubyte.gz"] = gzip.compress(idx(DIGIT_LABELS[:count]))
    monkeypatch.setattr(published, name, server.source(Path("set")))
    test = load(size=6, cache=tmp_path)
    assert all(file.startswith("t10k") for file in server.asked) and len(server.asked) == 2
    np.testing.assert_array_equal(test.pixels, DIGITS[:10][np.argsort(DIGIT_LABELS[:10])])
    assert test.class_names[9] == {"MNIST": "9", "FASHION_MNIST": "Ankle boot"}[name]
    assert load("training", cache=tmp_path).pixels.shape == (12, 32, 32)


def serve_omniglot(server: Server, evaluation: int):
    dot = png(np.zeros((2, 2), dtype=np.uint8))
    for part, count in (("background", 964), ("evaluation", evaluation)):
        members = {f"{part}/character{i:03d}/1.png": dot for i in range(count)}
        file = io.BytesIO()
        write_zip(file, members, top=f"images_{part}/")
        server.files[f"images_{part}.zip"] = file.getvalue()


@pytest.mark.slow
def test_omniglot_from_the_server_to_the_split(server, tmp_path, monkeypatch):
    serve_omniglot(server, 659)
    monkeypatch.setattr(published, "OMNIGLOT", server.source(Path("omniglot")))
    split = published.omniglot(size=2, cache=tmp_path)
    assert [len(part.class_names) for part in (split.training, split.validation, split.test)] == [1028, 172, 423]
    published.omniglot(size=2, cache=tmp_path)
    assert sorted(server.asked) == ["images_background.zip", "images_evaluation.zip"]


def test_omniglot_with_characters_missing_is_refused(server, tmp_path, monkeypatch):
    serve_omniglot(server, 658)
    monkeypatch.setattr(published, "OMNIGLOT", server.source(Path("omniglot")))
    with pytest.raises(ValueError, match=r"found 1622 characters in .*images_evaluation\.zip, expected the 1623"):
        published.omniglot(size=2, cache=tmp_path)


@pytest.mark.parametrize("source", SOURCES)
def test_the_published_sums_are_md5_sums_of_different_files(source):
    assert all(re.fullmatch("md5:[0-9a-f]{32}", known) for known in source.registry.values())
    assert len(set(source.registry.values())) == len(source.registry)
