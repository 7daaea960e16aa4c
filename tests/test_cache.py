"""The user's cache: what is in it is as good as new, what is wrong with it is no error, and nobody must have it."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import platformdirs
import pytest
from jax.experimental.compilation_cache import compilation_cache
from sympy import KroneckerProduct

import theorykit
from tests.bpkr.action.test_kept import DAMAGED, assert_is_the_same
from tests.marks import slow
from theorykit import bpkr, cache, cli, compilation
from theorykit.bpkr import Dense
from theorykit.bpkr.action import derivation, kept
from theorykit.bpkr.data import statistics
from theorykit.bpkr.evaluation import prediction
from theorykit.bpkr.evaluation.bound_action import bind
from theorykit.bpkr.saddle import saddle
from theorykit.symbolic.atoms import LogDet
from theorykit.symbolic.documents import table

SETTINGS = (
    "jax_compilation_cache_dir",
    "jax_persistent_cache_min_compile_time_secs",
    "jax_persistent_cache_min_entry_size_bytes",
)
ARCHITECTURE = bpkr.Architecture((2,), 3.0, temperature=0.3)


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch, tmp_path):
    """As in a process of a user who has set nothing, and whose cache folder is a temporary one; and back again."""
    for name in ("THEORYKIT_CACHE", "THEORYKIT_CACHE_SIZE", *map(str.upper, SETTINGS)):
        # known to monkeypatch, so that it is restored whatever the test makes of it
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda *_, **__: tmp_path / "of the user")
    before = {name: getattr(jax.config, name) for name in SETTINGS}
    jax.config.update(SETTINGS[0], None)
    jax.config.update(SETTINGS[1], 1.0)
    jax.config.update(SETTINGS[2], 0)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    derivation._derive.cache_clear()


@pytest.fixture
def derivations(monkeypatch):
    """The layers of every derivation that is made, not read."""
    made = []

    def derive_anew(form):
        made.append(form.layers)
        return original(form)

    original = derivation._derive_anew
    monkeypatch.setattr(derivation, "_derive_anew", derive_anew)
    return made


def derive(architecture: bpkr.Architecture = ARCHITECTURE) -> bpkr.Action:
    """As a new process does."""
    derivation._derive.cache_clear()
    return bpkr.derive(architecture)


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "actions").iterdir())


def test_by_default_what_was_derived_once_is_read(tmp_path, derivations):
    derived = derive()
    read = derive()
    assert len(derivations) == 1
    assert jax.config.jax_compilation_cache_dir is None
    assert theorykit.enable_cache() == tmp_path / "of the user"
    derive()
    assert len(derivations) == 1
    assert_is_the_same(read, derived)
    assert read.derivation.verify().holds
    (entry,) = entries(tmp_path / "of the user")
    assert bpkr.load_action(entry).energy == derived.energy


@pytest.mark.slow
def test_another_structure_is_another_entry(tmp_path, derivations):
    theorykit.enable_cache(tmp_path)
    others = [
        bpkr.Architecture((3,), 5.0, 1.3, temperature=0.1),
        bpkr.Architecture((2, 2), 3.0, temperature=0.3),
        bpkr.Architecture((Dense(),), 3.0, temperature=0.3),
        bpkr.Architecture((2,), 3.0, temperature=0.3, outputs=2),
    ]
    actions = [derive(each) for each in (ARCHITECTURE, *others)]
    # the first has the same layers with other numbers
    assert len(derivations) == len(entries(tmp_path)) == 4
    for architecture, action in zip(others, actions[1:], strict=True):
        assert_is_the_same(derive(architecture), action)
    assert len(derivations) == 4


@pytest.mark.parametrize(
    ("module", "name", "other"),
    [(kept, "__version__", "0.0.0"), (kept.sympy, "__version__", "1.99"), (kept, "_program", lambda: "another")],
    ids=["theorykit", "sympy", "source"],
)
def test_what_another_version_derived_is_not_read(module, name, other, tmp_path, derivations, monkeypatch):
    theorykit.enable_cache(tmp_path)
    derive()
    monkeypatch.setattr(module, name, other)
    derive()
    assert len(derivations) == len(entries(tmp_path)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_entry_is_derived_again(name, tmp_path, derivations):
    theorykit.enable_cache(tmp_path)
    derived = derive()
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    entry.write_bytes(DAMAGED[name][0])
    assert_is_the_same(derive(), derived)
    assert len(derivations) == 2 and entry.read_bytes() == whole
    derive()
    assert len(derivations) == 2


def test_the_entry_of_another_structure_is_not_taken(tmp_path, derivations):
    theorykit.enable_cache(tmp_path)
    derive()
    (entry,) = entries(tmp_path)
    entry.write_bytes(kept.action_text(derive(bpkr.Architecture((Dense(),), 3.0, temperature=0.3))))
    assert derive().forms == ARCHITECTURE.forms


@pytest.mark.parametrize("unknown", [LogDet, KroneckerProduct], ids=["in the action", "in the layers"])
def test_what_cannot_be_kept_is_derived(unknown, tmp_path, derivations, monkeypatch):
    monkeypatch.setattr(table, "_KNOWN", {name: kind for name, kind in table._KNOWN.items() if kind is not unknown})
    theorykit.enable_cache(tmp_path)
    derive()
    derive()
    assert len(derivations) == 2 and not (tmp_path / "actions").exists()


def full(*_, **__):
    raise OSError(28, "No space left on device")


def test_a_full_disk_and_a_folder_that_cannot_be_written_do_no_harm(tmp_path, derivations, monkeypatch):
    theorykit.enable_cache(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        derive()
        derive()
    assert len(derivations) == 2 and entries(tmp_path) == []
    derive()
    for name in ("mkdir", "touch", "unlink"):
        monkeypatch.setattr(Path, name, full)
    monkeypatch.setattr(os, "utime", full)
    # what is there is read
    derive()
    assert len(derivations) == 3
    derive(bpkr.Architecture((Dense(),), 3.0, temperature=0.3))
    assert len(derivations) == 4 and len(entries(tmp_path)) == 1
    jax.config.update(SETTINGS[0], None)
    theorykit.enable_cache(tmp_path / "another")
    assert jax.config.jax_compilation_cache_dir is None


def test_off_is_off(tmp_path, derivations, monkeypatch):
    for word in ("off", "OFF", "0"):
        monkeypatch.setenv("THEORYKIT_CACHE", word)
        assert theorykit.enable_cache() is None and theorykit.enable_cache(tmp_path / "mine") is None
        derive()
    assert len(derivations) == 3 and list(tmp_path.iterdir()) == []
    assert jax.config.jax_compilation_cache_dir is None


def test_the_cache_can_be_disabled(tmp_path, derivations):
    theorykit.disable_cache()
    assert theorykit.enable_cache() is None
    derive()
    derive()
    assert len(derivations) == 2 and list(tmp_path.iterdir()) == []


def test_the_variable_names_the_folder(tmp_path, derivations, monkeypatch):
    monkeypatch.setenv("THEORYKIT_CACHE", str(tmp_path / "mine"))
    derive()
    assert theorykit.enable_cache() == tmp_path / "mine"
    derive()
    assert len(derivations) == 1
    assert theorykit.enable_cache(tmp_path / "named") == tmp_path / "named"


def test_mistakes_are_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="folder must be a folder"):
        theorykit.enable_cache(tmp_path / "file")
    with pytest.raises(ValueError, match="size_limit"):
        theorykit.enable_cache(tmp_path, size_limit=-1)
    with pytest.raises(TypeError, match="folder"):
        theorykit.enable_cache(3)  # type: ignore[arg-type]
    monkeypatch.setenv("THEORYKIT_CACHE_SIZE", "1 GiB")
    with pytest.raises(ValueError, match="THEORYKIT_CACHE_SIZE"):
        theorykit.enable_cache(tmp_path)


def test_a_relative_folder_from_a_deleted_one_is_refused(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    monkeypatch.setenv("THEORYKIT_CACHE", "mine")
    with pytest.raises(FileNotFoundError, match="the cache folder mine is relative, but the working directory was del"):
        theorykit.enable_cache()


def test_what_has_not_been_used_for_longest_is_removed(tmp_path):
    theorykit.enable_cache(tmp_path, size_limit=3 * 3500)
    for number, name in enumerate(("a", "b", "c")):
        cache.write_entry("actions", name, bytes(900))
        os.utime(tmp_path / "actions" / name, (number, number))
    assert cache.read_entry("actions", "a") is not None
    cache.write_entry("actions", "d", bytes(900))
    assert [entry.name for entry in entries(tmp_path)] == ["a", "c", "d"]
    cache.write_entry("actions", "too large", bytes(4000))
    assert [entry.name for entry in entries(tmp_path)] == ["a", "c", "d"]
    old = tmp_path / "actions" / ".e.1"
    old.touch()
    os.utime(old, (0, 0))
    cache.write_entry("actions", "c", bytes(10))
    assert [entry.name for entry in entries(tmp_path)] == ["a", "c", "d"]


def test_only_regular_files_are_read(tmp_path):
    theorykit.enable_cache(tmp_path / "kept")
    cache.write_entry("kind", "name", b"content")
    entry = tmp_path / "kept" / "kind" / "name"
    assert cache.read_entry("kind", "name") == entry.read_bytes()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"content")
    os.utime(elsewhere, (0, 0))
    entry.unlink()
    entry.symlink_to(elsewhere)
    assert cache.read_entry("kind", "name") is None and elsewhere.stat().st_mtime == 0
    entry.unlink()
    os.mkfifo(entry)
    assert cache.read_entry("kind", "name") is None  # at once, though nobody writes
    entry.unlink()
    entry.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    assert cache.read_entry("kind", "name") is None and len(os.listdir("/proc/self/fd")) == before
    cache.write_entry("kind", "name", b"content")  # which is not possible
    assert entry.is_dir()


def test_compiled_functions_are_kept_beside(tmp_path):
    theorykit.enable_cache(tmp_path)
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 0
    assert jax.config.jax_persistent_cache_min_entry_size_bytes == -1
    jax.jit(lambda x: 3 * x + 17)(jnp.arange(5.0)).block_until_ready()
    kept_ones = [path for path in (tmp_path / "jax").rglob("*") if path.is_file()]
    assert kept_ones
    assert Path(jax.config.jax_compilation_cache_dir) in {path.parent for path in kept_ones}
    # JAX runs what is in it
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "jax").rglob("*") if path.is_dir())
    # another folder: JAX goes along
    theorykit.enable_cache(tmp_path / "other")
    jax.jit(lambda x: 5 * x + 19)(jnp.arange(5.0)).block_until_ready()
    assert any(path.is_file() for path in (tmp_path / "other" / "jax").rglob("*"))


def test_compiled_functions_beyond_the_limit_are_removed(tmp_path):
    folder = tmp_path / "jax" / "one"
    folder.mkdir(parents=True)
    for number in range(4):
        (folder / str(number)).write_bytes(bytes(1000))
        os.utime(folder / str(number), (number, number))
    theorykit.enable_cache(tmp_path, size_limit=3 * 2500)
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3"]


def test_what_the_user_told_jax_stays(tmp_path, monkeypatch):
    jax.config.update(SETTINGS[0], str(tmp_path / "of JAX"))
    theorykit.enable_cache(tmp_path)
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "of JAX")
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 1.0
    jax.config.update(SETTINGS[0], None)
    monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "1.0")
    theorykit.enable_cache(tmp_path)
    assert jax.config.jax_persistent_cache_min_compile_time_secs == 1.0
    assert jax.config.jax_persistent_cache_min_entry_size_bytes == -1


def problem(architecture: bpkr.Architecture = ARCHITECTURE) -> bpkr.Problem:
    features = np.random.default_rng(0).normal(size=(9, 2, 3))
    return bpkr.Problem(architecture, bpkr.Data(features, np.resize([1.0, -1.0], 9)))


def programs(folder: Path) -> list[Path]:
    return sorted((folder / "programs").iterdir())


def solved_in_a_process() -> tuple[float, float]:
    theorykit.enable_float64()
    of = problem()
    found = bpkr.solve(of)
    return float(found.action), float(bpkr.predict(of, found, of.data.features).mean[0])


KEPT_FUNCTIONS = (saddle._minimise, prediction.prediction_at, statistics.sum_examples)


@pytest.fixture
def compiled(monkeypatch):
    """Names of the programs that are compiled, not read."""
    made = []
    original = compilation._write

    def write(name, program, outputs):
        made.append(name)
        original(name, program, outputs)

    monkeypatch.setattr(compilation, "_write", write)
    for each in KEPT_FUNCTIONS:
        monkeypatch.setattr(each.programs, "programs", {})
    return made


def test_a_new_process_reads_its_programs(tmp_path, compiled):
    theorykit.enable_cache(tmp_path)
    here = solved_in_a_process()
    kept_ones = [(path, path.stat().st_ino) for path in programs(tmp_path)]
    assert len(kept_ones) == len(compiled) == 3
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(solved_in_a_process).result() == here
    assert [(path, path.stat().st_ino) for path in programs(tmp_path)] == kept_ones


def with_wrong_ends(contents):
    return [content[:-100] + bytes(100) for content in contents]


def under_the_names_of_others(contents):
    return contents[1:] + contents[:1]


@pytest.mark.parametrize("damaged", [with_wrong_ends, *slow([under_the_names_of_others])])
def test_damaged_programs_are_compiled_again(damaged, tmp_path, compiled):
    theorykit.enable_cache(tmp_path)
    here = solved_in_a_process()
    paths = programs(tmp_path)
    for path, content in zip(paths, damaged([path.read_bytes() for path in paths]), strict=True):
        path.write_bytes(content)
    for _ in range(2):
        for each in KEPT_FUNCTIONS:
            each.programs.programs.clear()
        assert solved_in_a_process() == here and len(compiled) == 6


@pytest.mark.slow
def test_code_of_a_user_is_not_kept(tmp_path, compiled):
    class Attention(bpkr.Attention):
        pass

    theorykit.enable_cache(tmp_path)
    assert compilation._name(jnp.sum, problem().bound) is not None
    own = problem(bpkr.Architecture((Attention(2),), 3.0, temperature=0.3))
    assert compilation._name(jnp.sum, own.bound) is None
    assert compilation._name(jnp.sum, lambda x: x) is compilation._name(lambda x: x, 1) is None
    assert float(bpkr.solve(own).action) == pytest.approx(float(bpkr.solve(problem()).action), rel=1e-12)
    assert len(compiled) == 2


@pytest.mark.slow
def test_names_of_programs_depend_on_everything_that_is_compiled():
    def name(layers=(2,), examples=9, function=jnp.sum, solver=None, **numbers):
        architecture = bpkr.Architecture(layers, 3.0, temperature=0.3, **numbers)
        return compilation._name(
            function, (bind(architecture.with_arrays()), jnp.zeros(examples), solver or bpkr.Newton())
        )

    others = [
        *({"layers": layers} for layers in ((3,), (2, 2), (Dense(),), (bpkr.Skip(bpkr.Attention(2)),))),
        {"examples": 10},
        {"function": jnp.mean},
        {"solver": bpkr.Newton(atol=1e-8)},
        {"solver": bpkr.AcceleratedSweeps()},
        {"outputs": 2},
    ]
    names = [name(**each) for each in others]
    assert None not in names and len({name(), *names}) == 1 + len(others)
    assert name() == name(prior_variances=2.0)


def _in_a_process(number: int) -> tuple[str | None, str]:
    return jax.config.jax_compilation_cache_dir, str(bpkr.derive(ARCHITECTURE).energy)


@pytest.mark.slow
def test_processes_share_it(tmp_path):
    theorykit.enable_cache(tmp_path)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        found = set(pool.map(_in_a_process, range(4)))
    assert found == {(jax.config.jax_compilation_cache_dir, str(bpkr.derive(ARCHITECTURE).energy))}
    assert len(entries(tmp_path)) == 1


def test_the_command_line_keeps_what_it_derives(tmp_path, derivations, monkeypatch, capsys):
    say = partial(monkeypatch.setattr, sys, "argv")
    say(["theorykit", "derive", "--layers", "2"])
    printed = []
    for _ in range(2):
        derivation._derive.cache_clear()
        cli.main()
        printed.append(capsys.readouterr().out)
    assert len(derivations) == 1 and printed[0] == printed[1]
    assert len(entries(tmp_path / "of the user")) == 1
    say(["theorykit", "--no-cache", "derive", "--layers", "2"])
    derivation._derive.cache_clear()
    cli.main()
    assert len(derivations) == 2 and capsys.readouterr().out == printed[0]
