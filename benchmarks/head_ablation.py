"""Compare rankings of the heads of trained encoders, from the theory and from the weights, with measured ablations.

    pip install torch safetensors
    python benchmarks/head_ablation.py [--output FOLDER]

Five small `torch.nn.TransformerEncoder`s are trained on a synthetic task and saved as safetensors. Each head is ablated
in turn: its columns of the output projection are set to zero, and the drop in accuracy on test sequences is measured.
`checkpoints.read_heads` reads the heads from the file and computes their attention on the hidden states that enter each
layer. The theory's network has the encoder's residual connections, its widths, one output and these attention maps, but
not its values, output projections and MLPs. Spearman's rank correlation over the heads of a layer compares the drops
with:

- the published score, `bpkr.head_scores`;
- lost log evidence and lost expected accuracy, `bpkr.head_costs`;
- magnitude: the Frobenius norm of the head's output projection times its values.

The task was chosen by its drops in accuracy alone, because on hidden Markov chains an encoder needs few of its heads.
The theory's widths and temperature were fixed before its first result. Takes five minutes on a free core. Writes
head_ablation.json into FOLDER (benchmarks/results by default).
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from scipy.stats import spearmanr

import theorykit
from theorykit import bpkr, checkpoints

ENCODERS, LAYERS, HEADS, FEATURES = 5, 2, 4, 32
TOKENS, NOISE = 16, 0.3
# A channel repeats itself after its lag with probability (1 + strength)/2 in class 1 and (1 - strength)/2 in class 0.
LAGS, STRENGTHS = (1, 2, 3, 4), (0.6, 0.5, 0.4, 0.3)
TRAINING, TESTED, STEPS, BATCH, RATE = 8000, 4000, 1500, 100, 3e-3
# Sizes and temperature for the theory.
EXAMPLES, TEST_EXAMPLES, TEMPERATURE = 300, 1000, 0.1
SCORES = ("published score", "lost log evidence", "lost expected accuracy", "magnitude")


def sequences(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy spins per channel with one-hot positions (sequences, tokens, features), and classes 0 and 1."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, size=count)
    spins = rng.choice([-1.0, 1.0], size=(count, TOKENS, len(LAGS)))
    for channel, (lag, strength) in enumerate(zip(LAGS, STRENGTHS, strict=True)):
        for token in range(lag, TOKENS):
            repeats = rng.random(count) < (1 + (2 * labels - 1) * strength) / 2
            spins[:, token, channel] = np.where(repeats, 1, -1) * spins[:, token - lag, channel]
    spins += NOISE * rng.normal(size=spins.shape)
    positions = np.broadcast_to(np.eye(TOKENS), (count, TOKENS, TOKENS))
    inputs = np.concatenate([spins, positions], axis=2)
    return torch.tensor(inputs, dtype=torch.float32), torch.tensor(labels, dtype=torch.float32)


class Classifier(torch.nn.Module):
    """A linear embedding, an encoder, and a linear readout of the mean over tokens."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Linear(len(LAGS) + TOKENS, FEATURES)
        layer = torch.nn.TransformerEncoderLayer(FEATURES, HEADS, FEATURES, dropout=0.0, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.readout = torch.nn.Linear(FEATURES, 1)

    def forward(self, inputs):
        return self.readout(self.encoder(self.embedding(inputs)).mean(dim=1))[:, 0]

    def hidden(self, inputs: torch.Tensor) -> list[np.ndarray]:
        """Return the hidden states that enter each layer."""
        states = [self.embedding(inputs)]
        for layer in self.encoder.layers[:-1]:
            states.append(layer(states[-1]))
        return [state.detach().double().numpy() for state in states]


def trained(seed: int) -> Classifier:
    torch.manual_seed(seed)
    model, (inputs, labels) = Classifier(), sequences(TRAINING, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=STEPS)
    for _ in range(STEPS):
        batch = torch.randint(TRAINING, (BATCH,))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(inputs[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return model.eval()


def measure(model: Classifier) -> tuple[float, list[list[float]], list[list[float]]]:
    """Return the accuracy, and the accuracy lost without each head, by layer, with its standard error."""
    inputs, labels = sequences(TESTED, seed=1000)

    @torch.no_grad()
    def right() -> np.ndarray:
        return ((model(inputs) > 0) == (labels > 0.5)).double().numpy()

    whole, drops, errors = right(), [], []
    for layer in model.encoder.layers:
        projection, lost = layer.self_attn.out_proj.weight.data, []
        kept = projection.clone()
        for head in range(HEADS):
            projection.view(FEATURES, HEADS, -1)[:, head] = 0.0
            lost.append(whole - right())
            projection.copy_(kept)
        drops.append([float(np.mean(each)) for each in lost])
        errors.append([float(np.std(each) / np.sqrt(TESTED)) for each in lost])
    return float(np.mean(whole)), drops, errors


def magnitudes(model: Classifier) -> list[list[float]]:
    """Return the norm of each head's output projection times its values, by layer."""
    found = []
    for layer in model.encoder.layers:
        attention = layer.self_attn
        values = attention.in_proj_weight[2 * FEATURES :].view(HEADS, -1, FEATURES)
        outputs = attention.out_proj.weight.view(FEATURES, HEADS, -1)
        found.append(torch.linalg.matrix_norm(torch.einsum("fhd,hdg->hfg", outputs, values)).tolist())
    return found


def theory(model: Classifier, path: Path, seed: int) -> tuple[dict, dict]:
    """Return scores and costs by layer, and the accuracy of the theory's network with all heads."""
    inputs, labels = sequences(EXAMPLES + TEST_EXAMPLES, seed=2000 + seed)
    hidden = model.hidden(inputs)
    read = {"layout": "torch_encoder", "prefix": "encoder.", "heads": HEADS, "norm_first": False}
    maps = [checkpoints.read_heads(path, layer=layer, **read).attention(states) for layer, states in enumerate(hidden)]
    layers = [bpkr.Skip(HEADS)] * LAYERS
    architecture = bpkr.Architecture(layers, FEATURES, temperature=TEMPERATURE)
    features = bpkr.path_features(hidden[0], maps, architecture, readout="mean")
    signs = 2.0 * labels.numpy() - 1
    data = bpkr.Data(features[:EXAMPLES], signs[:EXAMPLES], features[EXAMPLES:], signs[EXAMPLES:])
    problem = bpkr.Problem(architecture, data)
    saddle = bpkr.solve(problem)
    costs = bpkr.head_costs(problem, saddle, progress=False)
    accuracy = float(bpkr.sign_accuracy(bpkr.predict(problem, saddle).mean, signs[EXAMPLES:]))
    scores = {
        "published score": costs.scores,
        "lost log evidence": costs.log_evidence,
        "lost expected accuracy": costs.prediction,
        "error of lost expected accuracy": costs.prediction_error,
    }
    by_layer = {name: [np.asarray(layer).tolist() for layer in each] for name, each in scores.items()}
    return by_layer, {"converged": bool(saddle.converged), "accuracy": accuracy}


def encoder(seed: int) -> dict:
    """Return all results for one encoder."""
    began, model = time.perf_counter(), trained(seed)
    accuracy, drops, errors = measure(model)
    middle = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        save_file(model.state_dict(), path)
        scores, solved = theory(model, path, seed)
    scores["magnitude"] = magnitudes(model)
    return {
        "accuracy": accuracy,
        "drop of accuracy": drops,
        "error of the drop": errors,
        **scores,
        "theory": solved,
        "correlations": {
            name: [float(spearmanr(drops[layer], scores[name][layer])[0]) for layer in range(LAYERS)] for name in SCORES
        },
        "seconds": {"training": middle - began, "theory": time.perf_counter() - middle},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results")
    output = parser.parse_args().output
    theorykit.enable_float64()
    torch.set_num_threads(1)
    found = []
    for seed in range(ENCODERS):
        found.append(encoder(seed))
        print(json.dumps(found[-1], indent=1))
    output.mkdir(parents=True, exist_ok=True)
    (output / "head_ablation.json").write_text(json.dumps({"encoders": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
