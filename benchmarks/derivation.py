"""Time to derive an action, check every step of both routes, and compile, by depth.

    python benchmarks/derivation.py [largest depth]

Prints seconds for networks of attention layers with two heads, in one process, and the number of operations in the
generated code.
"""

import sys
import time

import jax
import jax.numpy as jnp

import theorykit
from theorykit import bpkr
from theorykit.bpkr.evaluation.action_terms import action_terms
from theorykit.bpkr.evaluation.bound_action import bind


def seconds(work) -> float:
    """Return the wall-clock time of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def compiled(architecture: bpkr.Architecture) -> None:
    """Compile the action and its gradient for a small data set."""
    point = bpkr.gp_limit(architecture)
    features, labels = jnp.ones((4, architecture.paths, 3)), jnp.ones(4)
    slope = jax.jit(jax.grad(lambda at: action_terms(bind(architecture), at, features, labels).total))
    jax.block_until_ready(slope(point))


def verified(architecture: bpkr.Architecture) -> None:
    """Check every step, and exit if one does not hold."""
    for derivation in bpkr.derive(architecture).derivations.values():
        verification = derivation.verify()
        if not verification.holds:
            raise SystemExit(f"a step does not hold:\n{verification}")


def main(largest: int) -> None:
    theorykit.enable_float64()
    print(f"{'depth':>5} {'derive':>8} {'verify':>8} {'compile':>8} {'sum':>8}   steps  operations")
    for depth in range(1, largest + 1):
        architecture = bpkr.Architecture((2,) * depth, widths=10, temperature=0.1)
        times = [seconds(lambda: work(architecture)) for work in (bpkr.derive, verified, compiled)]  # noqa: B023
        action = bpkr.derive(architecture)
        operations = sum(bpkr.compile_action(action).terms.program.operation_counts().values())
        columns = " ".join(f"{value:8.2f}" for value in (*times, sum(times)))
        print(f"{depth:5} {columns}   {len(action.derivation.steps):5}  {operations:10}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 6)
