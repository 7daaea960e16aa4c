"""Messages about the outcome of a solve, or of a batch of them: whether it converged, and what to do if not."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx

# what a part of the action's uncertainty comes from, and what to do about it
_CAUSES = {
    "order_parameters": (
        "the order parameters are nearly singular: widths below the number of paths, variances or labels of extreme "
        "magnitude"
    ),
    "kernel": "the kernel is nearly singular: a temperature tiny beside it, and examples that depend on each other",
    "labels": "the labels are large beside what the kernel and the temperature explain of them",
}
# a gradient norm that is small by any measure but that of the tolerance
_USUAL_TOLERANCE = 1e-9
# of a batch, how many failures are told
_TOLD = 3


class ConvergenceWarning(UserWarning):
    """A solve ended at a point that is not stationary to its tolerance, or is not a minimum."""


def warn_of_failures(saddle: Any, stacklevel: int) -> None:
    """A `ConvergenceWarning` if any solve of `saddle` did not converge."""
    if np.all(saddle.converged):
        return
    what = "the solve did not converge" if np.ndim(saddle.converged) == 0 else "solves did not converge"
    warnings.warn(f"{what}: {saddle.diagnosis}", ConvergenceWarning, stacklevel=stacklevel)


def diagnosis_of(saddle: Any) -> str:
    """The outcome of the solve or solves of `saddle` as text, and what to do about those that did not converge."""
    converged = np.asarray(saddle.converged)
    if converged.ndim == 0:
        return _diagnosis_of_one(saddle)
    failed = np.argwhere(~converged)
    if not len(failed):
        return f"all {converged.size} solves converged"
    indices = [tuple(map(int, at)) for at in failed[:_TOLD]]
    told = [f"{list(index)}: {_diagnosis_of_one(_one(saddle, index))}" for index in indices]
    more = [f"and {len(failed) - _TOLD} more"] if len(failed) > _TOLD else []
    return f"{len(failed)} of {converged.size} solves did not converge; " + "; ".join([*told, *more])


def _one(saddle: Any, index: tuple[int, ...]) -> Any:
    """The solve at `index` of a batch; fields without batch axes as they are."""
    axes = len(index)
    return jax.tree.map(lambda leaf: leaf[index] if jnp.ndim(leaf) >= axes else leaf, saddle)


def _diagnosis_of_one(saddle: Any) -> str:
    norm, tolerance = float(saddle.gradient_norm), float(saddle.stats["tolerance"])
    steps, curvature = int(saddle.stats["steps"]), float(saddle.min_hessian_eigenvalue)
    if saddle.converged:
        least = f"smallest eigenvalue of the Hessian {curvature:.3g} per width"
        return f"converged: gradient norm {norm:.3g}, {least}, after {steps} steps"
    if norm <= tolerance:
        return (
            f"stationary (gradient norm {norm:.3g}) but not a minimum: the smallest eigenvalue of the Hessian is "
            f"{curvature:.3g} per width. Start from elsewhere (initial=...)"
        )
    reached = f"gradient norm {norm:.3g} exceeds the tolerance {tolerance:.3g} after {steps} steps"
    if saddle.result == optx.RESULTS.nonlinear_max_steps_reached:
        # where S is not known to 1, exp(-S/2) is not resolved, however many steps there are
        hopeless = float(saddle.action_error) > 1
        more = "Raise it, or start from a neighbouring solution (initial=...)"
        return f"{reached}, all that max_steps allows. {_rounding_of(saddle) if hopeless else more}"
    if saddle.stats["content"]:
        return f"{reached}: the solver stopped at its own tolerance (rtol, atol). Tighten that, or loosen this"
    return f"{reached}, and no step lowers the action beyond rounding. {_rounding_of(saddle)}"


def _rounding_of(saddle: Any) -> str:
    parts = {name: float(saddle.stats[f"error_of_{name}"]) for name in _CAUSES}
    remaining = float(saddle.stats["remaining"])
    left = f", and a Newton step would lower it by {remaining:.1g}" if np.isfinite(remaining) else ""
    known = f"The action, {float(saddle.action):.6g}, is known to about {float(saddle.action_error):.1g}{left}"
    if float(saddle.gradient_norm) <= _USUAL_TOLERANCE:
        return f"{known}. Likely cause: the tolerance, which is less than rounding leaves of a gradient. Loosen it"
    cause = _CAUSES[max(parts, key=lambda name: parts[name])]
    return f"{known}. Likely cause: {cause}. Rescale them, or loosen the tolerance"
