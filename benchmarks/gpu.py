"""Time the same computations on the GPU and on the CPU, in double precision.

    python benchmarks/gpu.py [--parts NAME ...] [--platforms cuda cpu] [--limit 60]

- `solves`: saddle points of 4, 16 or 27 paths, from the kernel of the examples.
- `orbits`: the map of self-attention and its leading 3 Lyapunov exponents.
- `diagrams`: an orbit diagram as users call it, in blocks of orbits.
- `factorisations`: `cholesky` and `eigh`.

Each part has a separate process, on the GPU if there is one (`pip install '.[cuda]'`)
and then on the CPU. A run time is the median of three runs, or one run of 5 s or more.
Memory is planned by XLA. A size is left out if the previous one suggests that it takes
longer than --limit. Writes results/gpu.json.
"""

import json
import os
import statistics
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import self_attention
from problems import in_process, parser_of, random_features, timed

from theorykit import bpkr, dmft, dynamics

EXAMPLES = (600, 2000, 5000, 10_000, 20_000)
ORBITS = (256, 1024, 4096, 16_384, 65_536)

# Each part yields (name, size, order, program, arguments, number): the work grows as
# `size` to the power `order`, `arguments()` makes the arguments on the device, and
# `number(result)` should agree between devices.


def solves():
    cases = [("4 paths", (2, 2), 100, 10.0, 0.01), ("27 paths", (3, 3, 3), 600, 100.0, 0.1)]
    cases += [("16 paths", (4, 4), examples, 100.0, 0.1) for examples in EXAMPLES]
    for name, heads, examples, width, temperature in cases:

        def arguments(heads=heads, examples=examples, width=width, temperature=temperature):
            architecture = bpkr.Architecture(heads, width, temperature=temperature)
            # With fewer features than examples, the solve would use their space.
            features = max(192, -(-examples // architecture.paths))
            data = random_features(examples, architecture.paths, features)
            return jax.tree.map(jnp.asarray, architecture), bpkr.Data(*data)

        solve = partial(bpkr.solve, tolerance=1e-8)
        yield name, examples, 3, eqx.filter_jit(solve), arguments, lambda found: found.action


def positive(size: int) -> tuple:
    """Return a random matrix of eigenvalues between 1 and 3, by the semicircle law."""
    draw = jax.random.normal(jax.random.key(0), (size, size))
    return ((draw + draw.T) / jnp.sqrt(8.0 * size) + 2 * jnp.eye(size),)


def factorisations():
    programs = {
        "cholesky": (jnp.linalg.cholesky, lambda found: 2 * jnp.log(jnp.diag(found)).sum()),
        "eigh": (jnp.linalg.eigh, lambda found: jnp.log(found.eigenvalues).sum()),
    }
    for name, (program, number) in programs.items():
        for size in (378, *EXAMPLES):  # 378: the pairs of 27 paths, as in a solve
            yield name, size, 3, eqx.filter_jit(program), partial(positive, size), number


def networks(count: int) -> tuple:
    weights, model = self_attention.WEIGHTS, self_attention.MODEL
    betas = jnp.linspace(*self_attention.BETAS, count)
    at = dmft.Parameters(betas, self_attention.GAMMA, self_attention.EPSILON)
    return model, at, jax.vmap(lambda at: model.start(at, weights.prompt(), "window"))(at)


def advance(model, parameters, start):
    return jax.vmap(lambda start, at: dynamics.advance(model, start, at, 1000))(start, parameters)


def leading(model, parameters, start):
    def exponents(start, at):
        settled = dynamics.advance(model, start, at, 4)
        return dynamics.lyapunov_spectrum(model, settled, at, steps=1000, exponents=3).exponents

    return jax.vmap(exponents)(start, parameters)


def orbits():
    for name, program in {"map": advance, "leading 3": leading}.items():
        for count in ORBITS:
            yield name, count, 1, program, partial(networks, count), None


def diagram(model, parameters, _):
    prompt = self_attention.WEIGHTS.prompt()
    return dynamics.orbits(
        model,
        parameters,
        lambda at: model.start(at, prompt, "window"),
        observe=lambda state, _: state.attention[0],
        transient=2000,
        recorded=1000,
        exponents=3,
        levels=np.linspace(-1, 1, 2001),
        progress=False,
    )


def diagrams():
    for count in (1024, 16_384):
        yield "orbit diagram", count, 1, diagram, partial(networks, count), None


def times(program, arguments, number) -> dict:
    """Return seconds to compile and to run, planned memory, and the number."""
    given, planned = jax.block_until_ready(arguments()), None
    if number is not None:  # the whole program is compiled at once
        program, (first, _) = timed(lambda: program.lower(*given).compile())
        memory = program.compiled.memory_analysis()
        planned = memory and memory.temp_size_in_bytes + memory.argument_size_in_bytes
    else:
        _, (first, _) = timed(lambda: program(*given))
    runs = []
    while len(runs) < 3 and (not runs or runs[0] < 5):
        found, (taken, _) = timed(lambda: program(*given))
        runs.append(taken)
    run = statistics.median(runs)
    row = {"run_s": run, "compile_s": first if number else max(first - run, 0.0)}
    return row | {"planned_bytes": planned, "number": number and float(number(found))}


PARTS = {each.__name__: each for each in (solves, orbits, diagrams, factorisations)}


def measure(part: str, name: str | None, limit: float) -> tuple[dict, list[dict]]:
    """Measure a part in this process."""
    if name:
        jax.config.update("jax_platforms", name)
    jax.config.update("jax_enable_compilation_cache", False)
    about = {"device": jax.devices()[0].device_kind, "jax": jax.__version__}
    about["cores"] = len(os.sched_getaffinity(0))
    latest, rows = {}, []
    for case, size, order, program, arguments, number in PARTS[part]():
        row = {"part": part, "name": case, "size": size, "platform": jax.default_backend()}
        before, taken = latest.get(case, (size, 0.0))
        expected = taken * (size / before) ** order
        if expected > limit:
            row["left_out"] = f"about {expected:.0f} s expected"
        else:
            try:
                row |= times(program, arguments, number)
            except Exception as error:  # of many kinds, for lack of memory
                row["error"] = f"{type(error).__name__}: {error}"[:2000]
            latest[case] = size, row.get("run_s", float("inf"))
        rows.append(row)
        print(row, flush=True)
    return about, rows


def main() -> None:
    parser = parser_of(__doc__, "gpu")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--platforms", nargs="*", default=[None, "cpu"])
    parser.add_argument("--limit", type=float, default=60.0, help="seconds of a run")
    options = parser.parse_args()
    found = {"about": {}, "rows": []}
    for name in options.platforms:
        for part in options.parts:
            about, rows = in_process(measure, part, name, options.limit)
            found["about"] = found["about"] or about
            found["rows"] += rows
            options.json.write_text(json.dumps(found, indent=1) + "\n")
        if name is None and rows[0]["platform"] == "cpu":
            break


if __name__ == "__main__":
    main()
