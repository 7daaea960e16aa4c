"""Programs compiled with options of the compiler: the same function, alone or within another that is traced."""

import jax
import jax.numpy as jnp
import pytest

from tests.devices import process_of_devices
from theorykit import compilation
from theorykit.compilation import jit

# the option that every version of the compiler has
OF_NUMBERS = "xla_backend_optimization_level"


def square(x):
    return jnp.sum(x**2)


def test_a_whole_program_is_compiled_with_the_options():
    # that of jax 0.12 has one way to emit a fusion, and refuses to be asked for the other
    known = [compilation._OPTIONS] if jax.__version_info__ < (0, 11) else [compilation._OPTIONS, None]
    assert compilation._options() in known
    assert jit(square)(jnp.arange(3.0)) == 5.0


@pytest.mark.parametrize(
    "around",
    [jax.jit, jax.vmap, lambda f: jax.jit(jax.vmap(f)), lambda f: jax.vmap(jax.jit(f))],
    ids=["jit", "vmap", "jit of vmap", "vmap of jit"],
)
def test_within_other_transformations_it_is_the_same_function(around):
    points = jnp.arange(6.0).reshape(3, 2)
    over = points if around is not jax.jit else points[0]
    expected = jnp.sum(over**2, axis=-1)
    assert jnp.array_equal(around(lambda x: jit(square)(x))(over), expected)
    # nothing of the argument traced, but what is around it
    assert jnp.array_equal(around(lambda x: jit(square)(points[0]) + 0 * x[0])(over), 0 * expected + 1.0)


def test_functions_of_a_few_numbers_are_compiled_with_other_options(monkeypatch):
    asked, options = [], compilation._options
    monkeypatch.setattr(compilation, "_options", lambda few: asked.append(options(few)) or asked[-1])
    cube = jit(lambda x, times: times * jnp.sum(x**3), of_numbers=lambda x, times: x.size < 3)
    for points in (jnp.ones(2), jnp.arange(4.0), jnp.ones(2)):
        assert jnp.array_equal(cube(points, 2.0), 2.0 * jnp.sum(points**3))
    assert [OF_NUMBERS in (each or {}) for each in asked] == [True, False]


@pytest.mark.parametrize("derivative", [jax.grad, jax.jacfwd, lambda f: lambda x: jax.hessian(f)(x) @ x])
def test_it_is_differentiable_alone_and_traced(derivative):
    x = jnp.arange(1.0, 4.0)
    of = derivative(lambda x: jit(square)(x))
    assert jnp.array_equal(of(x), 2 * x)
    assert jnp.array_equal(jax.jit(of)(x), 2 * x)


def test_options_unknown_to_the_compiler_are_left_out(monkeypatch):
    monkeypatch.setattr(compilation, "_OPTIONS", {"xla_cpu_no_such_option": False})
    compilation._options.cache_clear()
    try:
        assert compilation._options() is None
        assert compilation._options(True) == compilation._OF_NUMBERS
        assert jit(square)(jnp.arange(3.0)) == 5.0
    finally:
        compilation._options.cache_clear()


def twice(x):
    return 2 * x


def devices_of_results():
    kept = compilation.jit_and_keep(twice)
    _, two = jax.devices()
    found = [kept(x).devices() for x in (jnp.arange(3.0), jax.device_put(jnp.arange(3.0), two))]
    with jax.default_device(two):
        found.append(kept(jnp.arange(3.0)).devices())
    return [{device.id for device in devices} for devices in found], len(kept.programs.programs)


def test_kept_programs_run_where_their_arguments_are():
    with process_of_devices(2) as call:
        assert call(devices_of_results) == ([{0}, {1}, {1}], 2)
