# %% [markdown]
# # Does message passing reach the theory of learned attention?
#
# Learn how to check a theory for large dimension $D$ by simulations at finite $D$.
#
# The attention matrix is $S = W W^T / \sqrt{R D}$ with $W$ of shape $D \times R$, $R = \rho D$. A sequence of tokens
# $x_a$ has the scores $h_{ab} = (x_a^T S x_b - \delta_{ab} \operatorname{tr} S) / \sqrt{D}$. We see their softmax or,
# for two tokens, the largest score of each row. Approximate message passing estimates $S$ from $\alpha D^2$ sequences.
# Its error should approach the theory as $D$ grows.

# %%
import jax
import numpy as np
from sympy import symbols

import theorykit
from theorykit.codegen import compile_expressions
from theorykit.symbolic import gradient, log_bivariate_normal_cdf
from theorykit.theories import learned_attention

theorykit.enable_float64()

H, K, CORRELATION = symbols("h k r", real=True)
_LOG_ORTHANT = log_bivariate_normal_cdf(H, K, CORRELATION)
_COMPILED = compile_expressions(
    "slopes", {"h": gradient(_LOG_ORTHANT, H), "k": gradient(_LOG_ORTHANT, K)}, [H, K, CORRELATION]
)
_SLOPES = jax.jit(lambda h, k, r: _COMPILED(h=h, k=k, r=r))


def stieltjes(x, noise, rho):
    """Return the Stieltjes transform of the spectral law of S plus semicircular noise, for x above the real axis."""
    s = np.sqrt(rho)
    companion = np.zeros((len(x), 3, 3), complex)
    companion[:, 1, 0] = companion[:, 2, 1] = 1
    # x = 1/g + noise g + s / (1 - g / s), as a cubic equation for g
    companion[:, 0] = np.stack([s + x / noise, -(x + 1 / s - s) * s / noise, np.full(len(x), s / noise)], axis=1)
    roots = np.linalg.eigvals(companion)
    return np.take_along_axis(roots, np.argmin(roots.imag, axis=1)[:, None], axis=1)[:, 0]


def denoised(matrix, noise, rho):
    """Return the rotationally invariant estimate of S from S plus noise, and its mean derivative."""
    values, vectors = np.linalg.eigh(matrix)
    shrink = lambda at: at - 2 * noise * stieltjes(at + 1e-7j, noise, rho).real  # noqa: E731
    step, shrunk = np.sqrt(noise) / len(values), shrink(values)
    gaps = np.subtract.outer(values, values) + np.eye(len(values))
    ratios = np.subtract.outer(shrunk, shrunk) / gaps + np.diag(
        (shrink(values + step) - shrink(values - step)) / 2 / step
    )
    return (vectors * shrunk) @ vectors.T, np.mean(ratios[np.triu_indices(len(values))])


def scores(x, matrix):
    """Return the scores of all pairs of tokens a <= b, along the last axis."""
    D, tokens = x.shape[-1], x.shape[1]
    pairs = np.einsum("nad,nbd->nab", x @ matrix, x, optimize=True) - np.trace(matrix) * np.eye(tokens)
    return pairs[:, *np.triu_indices(tokens)] / np.sqrt(D)


def score_covariances(x):
    """Return 2 <Z, Z'> / D for the matrices Z of all scores <Z, S> of a sequence, which tends to 2 and 1 at large D."""
    D, tokens = x.shape[-1], x.shape[1]
    gram, (a, b) = x @ x.swapaxes(1, 2), np.triu_indices(tokens)
    cross = lambda i, j: gram[:, i[:, None], j]  # noqa: E731
    is_own, own = (a == b).astype(float), gram[:, a, b]
    product = (cross(a, a) * cross(b, b) + cross(a, b) * cross(b, a)) / 2
    product -= is_own[:, None] * own[:, None, :] + is_own * own[:, :, None] - D * np.outer(is_own, is_own)
    return 2 / D**2 * product


def output_slopes(difference, estimate, signs, V, covariances):
    """Return the derivatives of the log-probability of the outputs with respect to the estimated scores."""
    if signs is None:
        # The softmax shows the differences from the first score.
        contrast = np.eye(difference.shape[1])[1:] - np.eye(difference.shape[1])[0]
        seen = contrast @ covariances @ contrast.T
        unexplained = (difference @ contrast.T)[..., None]
        slopes = np.linalg.solve(seen, unexplained)
        # The measured variance replaces V, which would amplify fluctuations at small D.
        measured = np.sum(slopes * unexplained) / slopes.size
        return (slopes[..., 0] @ contrast) / measured
    contrast = np.array([[1.0, -1.0, 0.0], [0.0, -1.0, 1.0]])
    seen = V * contrast @ covariances @ contrast.T
    scales = signs.T / np.sqrt(seen[:, [0, 1], [0, 1]])
    h, k = (scales * (estimate @ contrast.T)).T
    found = _SLOPES(h=h, k=k, r=scales[:, 0] * scales[:, 1] * seen[:, 0, 1])
    return (scales * np.stack([found["h"], found["k"]], axis=1)) @ contrast


def attention_indexed_message_passing(D, rho, alpha, tokens, output, seed, steps=100, tolerance=1e-4):
    """Estimate S from simulated sequences, and return tr (estimate - S)^2 / D after each step.

    Args:
        D: Dimension of the tokens.
        rho: Rank of S divided by D.
        alpha: Number of sequences divided by D^2.
        tokens: Number of tokens per sequence.
        output: "softmax" or, for two tokens, "hardmax".
        seed: Seed of the simulation.
        steps: Largest number of steps.
        tolerance: Relative change of the predicted error at which to stop.
    """
    # Without noise and at small D, the iteration oscillates unless it keeps a share of the previous estimates.
    damping = 0.5 if output == "softmax" else 0.0
    rng = np.random.default_rng(seed)
    R, n = round(rho * D), round(alpha * D**2)
    W = rng.normal(size=(D, R))
    S = W @ W.T / np.sqrt(R * D)
    x = rng.normal(size=(n, tokens, D))
    true = scores(x, S)
    a, b = np.triu_indices(tokens)
    covariances = score_covariances(x)
    signs = None if output == "softmax" else np.sign([true[:, i] - true[:, 1] for i in (0, 2)])
    # The mean of S, and its variance: the trace is known.
    estimate, V, slopes, errors = np.sqrt(R / D) * np.eye(D), 1.0, np.zeros(true.shape), []
    for _ in range(steps):
        # Onsager's correction removes the effect of a sequence on its own estimated scores.
        estimated = scores(x, estimate) - V * (covariances @ slopes[..., None])[..., 0]
        slopes = (1 - damping) * output_slopes(true - estimated, estimated, signs, V, covariances) + damping * slopes
        qhat = 2 / D**2 * np.einsum("na,nab,nb->", slopes, covariances, slopes)
        pairs = np.zeros((n, tokens, tokens))
        pairs[:, a, b] = slopes / np.where(a == b, 1, 2)
        pairs[:, b, a] = pairs[:, a, b]
        field = np.einsum("nad,nae->de", x, pairs @ x, optimize=True)
        field -= np.sum(slopes[:, a == b]) * np.eye(D)
        field = estimate + 2 / (D * qhat) * field / np.sqrt(D)
        (found, derivative), before = denoised((field + field.T) / 2, 1 / qhat, R / D), V
        estimate = (1 - damping) * found + damping * estimate
        V = derivative / qhat
        errors.append(np.sum((estimate - S) ** 2) / D)
        if abs(V - before) < tolerance * V:
            break
    return np.array(errors)


# %% [markdown]
# The theory is `learned_attention.mmse`.

# %%
RHO, REPEATS = 0.5, 4
for output, alpha, theory in (
    ("softmax", 0.1, learned_attention.mmse(0.1, RHO)),
    ("hardmax", 0.3768, learned_attention.mmse(0.3768, RHO, output="hardmax")),
):
    for D in (30, 60):
        runs = [attention_indexed_message_passing(D, RHO, alpha, 2, output, seed) for seed in range(REPEATS)]
        errors = [np.mean(run[-3:]) for run in runs]
        print(
            f"{output}, alpha = {alpha}, D = {D}: error {np.mean(errors):.3f}"
            f" +- {np.std(errors, ddof=1) / np.sqrt(REPEATS):.3f}, theory {theory:.4f}"
        )
