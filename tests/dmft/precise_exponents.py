"""Growth of perturbations along an orbit in many digits: Eq. (8) written out in mpmath, and QR after every token.

It shares the orbit with the package, window by window, and no formula.
"""

import mpmath
import numpy as np

from theorykit import dmft

VALUE, QUERY, KEY = 1, 2, 3


def windows_of(model, parameters, state, tokens):
    """The window and position before each token, as double precision has them."""
    trajectory = dmft.run(model, state, parameters, steps=tokens)
    latest = np.concatenate([state.attention[::-1][:-1], trajectory.attention])
    context, start = model.context, int(state.position)
    return [(latest[t : t + context][::-1], (start + t) % context) for t in range(tokens)]


def growth(model, parameters, windows, start, digits=80):
    """Logarithms of the diagonal of R, token by token, of the vectors `start`, `(vectors, context, patterns)`."""
    with mpmath.workdps(digits):
        vectors, found = [[mpmath.mpf(float(x)) for x in np.ravel(vector)] for vector in start], []
        vectors, _ = orthonormal(vectors)
        for window, position in windows:
            row = next_row(model, parameters, window, position)
            kept = len(vectors[0]) - model.patterns
            vectors = [[mpmath.fdot(each, vector) for each in row] + vector[:kept] for vector in vectors]
            vectors, lengths = orthonormal(vectors)
            found.append([float(mpmath.log(length)) if length else -np.inf for length in lengths])
    return np.array(found)


def orthonormal(vectors):
    """Orthonormalise by modified Gram-Schmidt; return the vectors and their lengths."""
    basis, lengths, rest = [], [], [list(vector) for vector in vectors]
    while rest:
        first, *rest = rest
        length = mpmath.sqrt(mpmath.fdot(first, first))
        unit = [x / length for x in first] if length else first
        for number, vector in enumerate(rest):
            along = mpmath.fdot(unit, vector)
            rest[number] = [x - along * y for x, y in zip(vector, unit, strict=True)]
        basis.append(unit)
        lengths.append(length)
    return basis, lengths


def next_row(model, parameters, window, position):
    """The new rows of the Jacobian of a window of attentions, newest first."""
    beta, gamma, epsilon = (
        mpmath.mpf(float(value)) for value in (parameters.beta, parameters.gamma, parameters.epsilon)
    )
    directions, moments, positional = (np.asarray(x) for x in (model.directions, model.moments, model.positional))
    exact = np.vectorize(lambda x: mpmath.mpf(float(x)), otypes=[object])
    directions, moments, positional, window = map(exact, (directions, moments, positional, window))
    tanh = [[mpmath.tanh(beta * field) for field in directions @ attention] for attention in window]
    places = [(position - age) % len(window) for age in range(len(window))]

    def overlap(family, age):
        return (1 - epsilon) * (np.array(tanh[age]) @ moments[family]) + epsilon * positional[places[age], family]

    def response(family, age):
        slope = np.array([1 - x * x for x in tanh[age]])
        return (1 - epsilon) * beta * (moments[family].T * slope) @ directions

    ages, query = range(len(window)), overlap(QUERY, 0)
    values, keys = ([overlap(family, age) for age in ages] for family in (VALUE, KEY))
    scores = [gamma * (query @ key) for key in keys]
    weights = [mpmath.exp(score - max(scores)) for score in scores]
    weights = [weight / mpmath.fsum(weights) for weight in weights]
    after = sum(weight * value for weight, value in zip(weights, values, strict=True))
    blocks = [
        weights[age] * (response(VALUE, age) + gamma * np.outer(values[age] - after, query @ response(KEY, age)))
        for age in ages
    ]
    asked = sum(weights[age] * np.outer(values[age] - after, keys[age] @ response(QUERY, 0)) for age in ages)
    blocks[0] = blocks[0] + gamma * asked
    return [list(row) for row in np.concatenate(blocks, axis=1)]
