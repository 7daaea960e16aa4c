"""Programs kept on disk return what was computed, or are not used; pickles and copies equal the original."""

import copy
import os
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import platformdirs
import pytest
from jax.experimental.compilation_cache import compilation_cache
from sympy import Function

import theorykit
from tests.derivation.architectures import action
from tests.marks import slow
from tests.processes import call
from tests.saddle.textbook import CURIE_WEISS
from theorykit import _jit, bpkr, dmft
from theorykit.bpkr.specification.activations import UNIT, Activation
from theorykit.symbolic import numeric_function

SETTINGS = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
_DRAW = np.random.default_rng(0)
FEATURES, LABELS = _DRAW.normal(size=(9, 2, 3)), np.resize([1.0, -1.0], 9)
MODEL = bpkr.Architecture((2,), 3.0, temperature=0.3)


@pytest.fixture
def nothing_is_set(monkeypatch, tmp_path):
    """Set up a user who has set nothing, with a temporary home, and restore all settings afterwards."""
    monkeypatch.delenv("THEORYKIT_CACHE", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "home")
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()
    _jit._folder.cache_clear()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    _jit._folder.cache_clear()


# ---- from one process to the next


def solved(cache: str) -> list[float]:
    """Solve and predict in a new process."""
    os.environ["THEORYKIT_CACHE"] = cache
    del os.environ["JAX_COMPILATION_CACHE_DIR"]
    jax.config.update("jax_compilation_cache_dir", None)
    theorykit.enable_float64()
    problem = bpkr.Problem(MODEL, bpkr.Data(FEATURES, LABELS))
    found = bpkr.solve(problem)
    return [float(found.action), float(bpkr.predict(problem, found, FEATURES).mean[0])]


def entries(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the files of a cache, and when they were made."""
    return {path: (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.iterdir()}


def programs(folder: Path) -> list[Path]:
    """Return theorykit's entries, without JAX's."""
    return sorted(path for path in folder.iterdir() if not path.name.endswith("-cache"))


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> tuple[Path, list[float]]:
    """Return a cache that one process has filled, and that process's results."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, call(solved, str(folder))


def test_the_next_process_reuses_what_is_cached(filled):
    folder, first = filled
    before = entries(folder)
    assert len(programs(folder)) >= 2 and len(before) > len(programs(folder))
    assert call(solved, str(folder)) == first
    assert entries(folder) == before, "nothing is traced or compiled again"


def test_cached_results_are_those_without_a_cache(filled):
    # Processes may compile with other options, and so end at another point within the tolerance of the solver.
    assert filled[1] == pytest.approx(call(solved, "off"), rel=1e-6)


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


@pytest.mark.parametrize("damage", [flipped, *slow([cut])])
def test_damaged_entries_are_computed_again(damage, filled, tmp_path):
    folder, first = filled
    for path in entries(folder):
        (tmp_path / path.name).write_bytes(damage(path.read_bytes()))
    damaged = {path.name: path.read_bytes() for path in programs(tmp_path)}
    assert call(solved, str(tmp_path)) == first
    assert all(path.read_bytes() != damaged[path.name] for path in programs(tmp_path))


@pytest.mark.slow
def test_two_processes_fill_one_folder(filled, tmp_path):
    with ThreadPoolExecutor() as pool:
        both = pool.map(lambda _: call(solved, str(tmp_path)), range(2))
    assert list(both) == [filled[1]] * 2
    before = entries(tmp_path)
    assert call(solved, str(tmp_path)) == filled[1] and entries(tmp_path) == before


# ---- names of programs


def names() -> list[str]:
    deep = bpkr.Architecture((2, 2), 3.0, temperature=0.3)
    actions = [bpkr.derive(each) for each in (MODEL, deep, replace(MODEL, temperature=0.5))]
    return [_jit.digest(action, kept=True) for action in actions]


def test_programs_are_named_by_the_expressions_of_the_network():
    first, second, colder = names()
    assert first != second and first == colder and call(names) == [first, second, colder]


class Louder(Activation):
    pass


def test_programs_with_code_of_users_have_no_name():
    code = numeric_function("mine", lambda x: jnp.tanh(x))
    for value in (
        Activation("mine", code(UNIT)),
        Activation("other", Function("g")(UNIT)),
        Louder("mine", UNIT**2),
        {"layers": (Louder,)},
        lambda x: x,
        programs,
        jax.jit(programs),
        SimpleNamespace(),
    ):
        with pytest.raises(pickle.PicklingError):
            _jit.digest(value, kept=True)
    assert _jit.digest(Activation("h", UNIT**2), kept=True) != _jit.digest(Activation("h", UNIT**3), kept=True)


def test_names_depend_on_versions(monkeypatch):
    first = _jit._versions()
    monkeypatch.setattr("optimistix.__version__", "0.0.0")
    _jit._versions.cache_clear()
    assert _jit._versions() != first
    _jit._versions.cache_clear()


# ---- the folder


def test_jax_keeps_its_functions_there_unless_it_has_a_folder(nothing_is_set, tmp_path, monkeypatch):
    home = tmp_path / "home"
    assert _jit._folder() == home and home.stat().st_mode & 0o077 == 0, "the code in this folder is run"
    jax.jit(lambda x: 3 * x + 17)(jnp.arange(5.0)).block_until_ready()
    assert entries(home)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "of JAX"))
    monkeypatch.setenv("THEORYKIT_CACHE", str(tmp_path / "named"))
    _jit._folder.cache_clear()
    assert _jit._folder() == tmp_path / "named"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "of JAX")


@pytest.mark.parametrize("named", ["off", "OFF", "file", "file/folder"])
def test_without_a_folder_nothing_is_kept(named, nothing_is_set, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("THEORYKIT_CACHE", named)
    assert _jit._folder() is None
    assert jax.config.jax_compilation_cache_dir is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_least_recently_used_files_are_removed(tmp_path):
    for number in range(4):
        path = tmp_path / f"{number}"
        path.write_bytes(bytes(1000))
        os.utime(path, (number, number))
    _jit.remove_beyond(tmp_path, 2500)
    assert sorted(path.name for path in entries(tmp_path)) == ["2", "3"]


# ---- compiled functions


def test_compiled_functions_are_the_same_within_transformations():
    def square(x):
        return jnp.sum(x**2)

    points = jnp.arange(6.0).reshape(3, 2)
    for compiled in (theorykit.jit(square), _jit.jit_and_keep(square)):
        np.testing.assert_array_equal(jax.jit(jax.vmap(compiled))(points), jnp.sum(points**2, axis=1))
        np.testing.assert_array_equal(jax.grad(compiled)(points), 2 * points)
    few = theorykit.jit(square, of_numbers=lambda x: x.size < 3)
    assert few(points[0]) == square(points[0]) and few(points) == square(points)


@pytest.mark.parametrize(
    "strict",
    [
        lambda: jax.numpy_rank_promotion("raise"),
        lambda: jax.numpy_dtype_promotion("strict"),
        lambda: jax.debug_nans(True),
        lambda: jax.debug_infs(True),
        jax.checking_leaks,
        jax.disable_jit,
    ],
    ids=["rank", "dtype", "nan", "inf", "leak", "no jit"],
)
@pytest.mark.parametrize("compile_", [theorykit.jit, _jit.jit_and_keep])
def test_compiled_functions_ignore_strict_settings(strict, compile_):
    function = compile_(lambda x, n: (x + jnp.ones((2, 1)) * n, jnp.log(x - x), jnp.zeros(2) / 0))
    with strict():
        found = function(jnp.ones(3), jnp.array(2))
    np.testing.assert_array_equal(found[0], np.full((2, 3), 3.0))
    assert np.all(np.isneginf(found[1])) and np.all(np.isnan(found[2]))


def test_kept_functions_follow_the_precision():
    double = _jit.jit_and_keep(lambda x: x + jnp.ones(3))
    values = np.ones(3, dtype=np.float32)
    with jax.enable_x64(False):
        assert double(values).dtype == np.float32
    assert double(values).dtype == np.float64


# ---- pickles and copies


WIDE = bpkr.Architecture((bpkr.Attention(2), bpkr.Dense()), 3, temperature=0.3, outputs=2)
DATA = bpkr.Data(FEATURES, np.stack([LABELS, -LABELS], axis=1))
OBJECTS: dict[str, Callable[[], object]] = {
    "architecture": lambda: WIDE,
    "layers": lambda: (bpkr.Attention(2), bpkr.Skip(bpkr.Attention(1), 0.5)),
    "data": lambda: DATA,
    "order parameters": lambda: bpkr.gp_limit(WIDE),
    "saddle": lambda: bpkr.solve(MODEL, bpkr.Data(FEATURES, LABELS)),
    "prediction": lambda: bpkr.Prediction(jnp.arange(3.0), jnp.ones(3)),
    "heads": lambda: bpkr.Heads(key_query=[np.ones((2, 3, 3))]),
    "network": lambda: dmft.SelfAttention.from_weights(dmft.Weights.published(), 4),
    "weights": dmft.Weights.published,
    "own action": lambda: CURIE_WEISS,
}
COPIES = {"pickle": lambda it: pickle.loads(pickle.dumps(it)), "deepcopy": copy.deepcopy}


@pytest.mark.parametrize("name", OBJECTS)
def test_pickles_and_copies_equal_the_original(name):
    it = OBJECTS[name]()
    for copied in (make(it) for make in COPIES.values()):
        assert type(copied) is type(it) and repr(copied) == repr(it)
        assert eqx.tree_equal(*(eqx.filter(each, eqx.is_array) for each in (copied, it)))


@pytest.mark.parametrize("derive", [lambda: action("one layer"), dmft.derive], ids=["action", "mean field"])
def test_pickles_of_derivations_equal_the_original(derive):
    it = derive()
    again = COPIES["pickle"](it)
    assert again.derivation.steps == it.derivation.steps
    for name in ("total", "kernel", "overlap", "attention", "saddle_point_equations"):
        assert getattr(again, name, None) == getattr(it, name, None)
