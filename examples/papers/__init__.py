"""The papers' experiments. Each turns settings into one labelled result, its table and its figures.

    python examples/papers/fig2_hidden_markov.py
    python examples/papers one-shot
    python examples/papers/self_attention_figures.py

`tasks` makes the data, each experiment has a separate module, and `plots` draws the results. They need the packages of
the extra `papers`.
"""
