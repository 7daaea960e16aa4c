"""The papers' experiments, run whole: settings in, one labelled result, its table and its figures out.

    python examples/papers hidden-markov
    python examples/papers one-shot
    python examples/papers self-attention-dynamics

`tasks` makes the data, each experiment is a module of its own, and `plots` draws what they found. They need the
packages of the extra `papers`.
"""
