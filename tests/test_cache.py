"""What is kept for later: the user's cache and pickles return what was computed, or are not used."""

import copy
import os
import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

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
from theorykit import bpkr, cli, dmft
from theorykit.bpkr.specification.activations import UNIT, Activation, stable_name
from theorykit.symbolic import numeric_function

JAX_SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
_DRAW = np.random.default_rng(0)
FEATURES, LABELS = _DRAW.normal(size=(9, 2, 3)), np.resize([1.0, -1.0], 9)


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch, tmp_path):
    """Set up a user who has set nothing, with a temporary home, and restore all settings afterwards."""
    for name in ("THEORYKIT_CACHE", "THEORYKIT_CACHE_SIZE", *map(str.upper, JAX_SETTINGS)):
        # monkeypatch restores the value, whatever the test does with it.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "home")
    before = {name: getattr(jax.config, name) for name in JAX_SETTINGS}
    for name, value in zip(JAX_SETTINGS, (None, 1.0, 0), strict=True):
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


# ---- from one process to the next


def architectures() -> list[bpkr.Architecture]:
    return [
        bpkr.Architecture((2,), 3.0, temperature=0.3),
        bpkr.Architecture((2, 2), 3.0, temperature=0.3),
    ]


def results() -> list[str | float]:
    """Derive two actions and solve for one."""
    theorykit.enable_float64()
    problem = bpkr.Problem(architectures()[0], bpkr.Data(FEATURES, LABELS))
    found = bpkr.solve(problem)
    energies = [str(bpkr.derive(architecture).total) for architecture in architectures()]
    return [*energies, float(found.action), float(bpkr.predict(problem, found, FEATURES).mean[0])]


def results_with(cache: str, version: str = theorykit.__version__, home: str = "") -> list[str | float]:
    """Return the results in a new process of this version with this cache, or with the default one in `home`."""
    os.environ.update({"THEORYKIT_CACHE": cache, "XDG_CACHE_HOME": home})
    for module in [theorykit, *(each for name, each in sys.modules.items() if name.startswith("theorykit."))]:
        if hasattr(module, "__version__"):
            module.__version__ = version
    return results()


def entries(folder: Path) -> dict[Path, tuple[int, int]]:
    """Return the files of a cache, and when they were made."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path: (path.stat().st_ino, path.stat().st_size) for path in files}


@pytest.fixture(scope="module")
def filled(tmp_path_factory) -> tuple[Path, list[str | float]]:
    """Return a cache that one process has filled, and that process's results."""
    folder = tmp_path_factory.mktemp("cache")
    return folder, call(results_with, str(folder))


def test_the_next_process_reuses_what_is_cached(filled):
    folder, first = filled
    before = entries(folder)
    assert len(before) >= 2
    assert call(results_with, str(folder)) == first
    assert entries(folder) == before, "nothing is derived or compiled again"


def test_cached_results_are_those_without_a_cache(filled, monkeypatch):
    monkeypatch.setenv("THEORYKIT_CACHE", "off")
    *energies, value, mean = results()
    assert filled[1][:2] == energies and energies[0] != energies[1]
    # Processes may compile with other options, and so end at another point within the tolerance of the solver.
    assert filled[1][2:] == pytest.approx([value, mean], rel=1e-6)


def names_of_forms() -> list[str | None]:
    return [stable_name(architecture.form) for architecture in architectures()]


def test_programs_are_named_by_the_expressions_of_the_network():
    first, second = names_of_forms()
    assert first != second and call(names_of_forms) == [first, second]
    renamed = replace(architectures()[0].form, has_richness=True)
    assert stable_name(renamed) not in (first, second)


def test_programs_with_python_code_have_no_name():
    code = numeric_function("mine", jnp.tanh)
    activations = (Activation("mine", code(UNIT)), Activation("other", Function("g")(UNIT)), Activation("h", UNIT**2))
    assert [stable_name(each) is None for each in activations] == [True, True, False]


@pytest.mark.slow
def test_another_version_does_not_read_the_cache(filled):
    folder, first = filled
    before = entries(folder)
    assert call(results_with, str(folder), "0.0.0") == first
    # At least the solver is compiled again.
    assert len(entries(folder)) > len(before)
    assert {path: entries(folder)[path] for path in before} == before


def flipped(contents: list[bytes]) -> list[bytes]:
    middles = [len(content) // 2 for content in contents]
    return [
        content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]
        for content, middle in zip(contents, middles, strict=True)
    ]


def cut(contents: list[bytes]) -> list[bytes]:
    return [content[: len(content) // 2] for content in contents]


def swapped(contents: list[bytes]) -> list[bytes]:
    """Under the names of other entries."""
    return contents[1:] + contents[:1]


@pytest.mark.parametrize("damage", [flipped, *slow([cut, swapped])])
def test_damaged_entries_are_not_used(damage, filled, tmp_path):
    folder, first = filled
    for path in entries(folder):
        (tmp_path / path.relative_to(folder)).parent.mkdir(parents=True, exist_ok=True)
    for kind in {path.parent for path in entries(folder)}:
        paths = sorted(path for path in entries(folder) if path.parent == kind)
        for path, content in zip(paths, damage([path.read_bytes() for path in paths]), strict=True):
            (tmp_path / path.relative_to(folder)).write_bytes(content)
    assert call(results_with, str(tmp_path)) == first


@pytest.mark.slow
def test_a_home_that_cannot_be_written_is_no_error(filled, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert call(results_with, str(tmp_path / "file" / "cache")) == filled[1]


@pytest.mark.slow
def test_the_default_cache_is_in_the_home_of_the_user_unless_it_is_off(filled, tmp_path):
    for cache in ("off", ""):
        assert call(results_with, cache, theorykit.__version__, str(tmp_path)) == filled[1]
        assert bool(entries(tmp_path)) == (cache == "")


# ---- settings of the cache


def test_disabling_works(tmp_path, monkeypatch, capsys):
    for word in ("off", "OFF", "0"):
        monkeypatch.setenv("THEORYKIT_CACHE", word)
        assert theorykit.enable_cache() is None and theorykit.enable_cache(tmp_path / "mine") is None
    monkeypatch.delenv("THEORYKIT_CACHE")
    monkeypatch.setattr(sys, "argv", ["theorykit", "--no-cache", "derive", "--layers", "2"])
    cli.main()
    assert "S" in capsys.readouterr().out
    monkeypatch.delenv("THEORYKIT_CACHE", raising=False)
    theorykit.disable_cache()
    assert theorykit.enable_cache() is None
    assert jax.config.jax_compilation_cache_dir is None and list(tmp_path.iterdir()) == []


def test_the_folder_is_the_named_one_or_that_of_the_user(tmp_path, monkeypatch):
    assert theorykit.enable_cache() == tmp_path / "home"
    monkeypatch.setenv("THEORYKIT_CACHE", str(tmp_path / "variable"))
    assert theorykit.enable_cache() == tmp_path / "variable"
    assert theorykit.enable_cache(tmp_path / "named") == tmp_path / "named"


def test_jax_keeps_its_functions_there_unless_it_has_a_folder(tmp_path):
    theorykit.enable_cache(tmp_path / "a")
    jax.jit(lambda x: 3 * x + 17)(jnp.arange(5.0)).block_until_ready()
    kept = entries(tmp_path / "a")
    assert kept and all(path.parent == Path(jax.config.jax_compilation_cache_dir) for path in kept)
    # The code in this folder is run.
    assert all(path.parent.stat().st_mode & 0o077 == 0 for path in kept)
    jax.config.update("jax_compilation_cache_dir", str(tmp_path / "of JAX"))
    theorykit.enable_cache(tmp_path / "b")
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "of JAX")


def test_the_cache_is_limited(tmp_path, monkeypatch):
    (tmp_path / "jax" / "one").mkdir(parents=True)
    for number in range(4):
        path = tmp_path / "jax" / "one" / f"{number}"
        path.write_bytes(bytes(1000))
        os.utime(path, (number, number))
    # A third of the limit is for compiled functions.
    monkeypatch.setenv("THEORYKIT_CACHE_SIZE", "7500")
    assert theorykit.enable_cache(tmp_path) == tmp_path
    assert sorted(path.name for path in entries(tmp_path)) == ["2", "3"]
    with pytest.raises(ValueError, match="size_limit"):
        theorykit.enable_cache(tmp_path, size_limit=-1)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="folder must be a folder"):
        theorykit.enable_cache(tmp_path / "file")


def test_compiled_functions_are_the_same_within_transformations():
    def square(x):
        return jnp.sum(x**2)

    compiled, points = theorykit.jit(square), jnp.arange(6.0).reshape(3, 2)
    np.testing.assert_array_equal(jax.jit(jax.vmap(compiled))(points), jnp.sum(points**2, axis=1))
    np.testing.assert_array_equal(jax.grad(compiled)(points), 2 * points)
    few = theorykit.jit(square, of_numbers=lambda x: x.size < 3)
    assert few(points[0]) == square(points[0]) and few(points) == square(points)


# ---- pickles and copies


MODEL = bpkr.Architecture((bpkr.Attention(2), bpkr.Dense()), 3, temperature=0.3, outputs=2)
DATA = bpkr.Data(FEATURES, np.stack([LABELS, -LABELS], axis=1))
OBJECTS: dict[str, Callable[[], object]] = {
    "architecture": lambda: MODEL,
    "layers": lambda: (bpkr.Attention(2), bpkr.Skip(bpkr.Attention(1), 0.5)),
    "data": lambda: DATA,
    "order parameters": lambda: bpkr.gp_limit(MODEL),
    "saddle": lambda: bpkr.solve(bpkr.Architecture((2,), 3.0, temperature=0.3), bpkr.Data(FEATURES, LABELS)),
    "prediction": lambda: bpkr.Prediction(jnp.arange(3.0), jnp.ones(3)),
    "heads": lambda: bpkr.Heads(key_query=[np.ones((2, 3, 3))]),
    "network": lambda: dmft.self_attention_limit(dmft.published_weights(), 4),
    "weights": dmft.published_weights,
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
