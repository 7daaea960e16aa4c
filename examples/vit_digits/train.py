"""Train a small vision transformer on scikit-learn's handwritten digits, and record a forward pass.

    pip install torch transformers scikit-learn
    python train.py

Takes half a minute on one core, and writes recorded.npz to its own folder:

- hidden states that enter each layer (digits, layers, tokens, features), in float16, of 200 digits from the training
  set ("training") and 200 unseen ones ("test"), with `labels` and the transformer's `predictions`;
- the attention maps of the first test digits (digits, layers, heads, queries, keys), in float16;
- queries, keys and their biases, (layers, heads, G, features) and (layers, heads, G), and the layer norms before them.
"""

import math
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from transformers import ViTConfig, ViTForImageClassification

HERE = Path(__file__).parent
TEST, RECORDED, MAPS = 400, 200, 4
EPOCHS, BATCH, LEARNING_RATE = 60, 50, 3e-3


def digits() -> tuple[torch.Tensor, ...]:
    """Load images (digits, channel, 8, 8) from -1 to 1 and labels, for training and for the test."""
    published = load_digits()
    images = torch.tensor(published.images, dtype=torch.float32)[:, None] / 8 - 1
    parts = train_test_split(images, torch.tensor(published.target), test_size=TEST, random_state=0, shuffle=True)
    return parts[0], parts[2], parts[1], parts[3]


def new_model() -> ViTForImageClassification:
    """Make the untrained model: 16 patches of 2 x 2 pixels and a class token, two layers of four heads, 24 features."""
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    config = ViTConfig(image_size=8, patch_size=2, num_channels=1, num_labels=10, **sizes)
    config._attn_implementation = "eager"  # this implementation returns its attention
    return ViTForImageClassification(config)


def train(model: ViTForImageClassification, images: torch.Tensor, labels: torch.Tensor) -> None:
    """Run gradient descent on the cross-entropy of all ten classes."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=0.05)
    steps = EPOCHS * math.ceil(len(images) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LEARNING_RATE, total_steps=steps)
    model.train()
    for epoch in range(EPOCHS):
        losses = []
        for batch in torch.randperm(len(images)).split(BATCH):
            loss = model(images[batch], labels=labels[batch]).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {np.mean(losses):.4f}")


@torch.no_grad()
def record(model: ViTForImageClassification, images: torch.Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return hidden states that enter the layers, attention maps, and predicted classes, from a forward pass."""
    model.eval()
    output = model(images, output_hidden_states=True, output_attentions=True)
    hidden = torch.stack(output.hidden_states[:-1], dim=1)
    maps = torch.stack(output.attentions, dim=1)
    return hidden.numpy(), maps.numpy(), output.logits.argmax(dim=1).numpy()


def heads(model: ViTForImageClassification) -> dict[str, np.ndarray]:
    """Return the queries, keys and layer norms of all layers."""
    arrays = {name: array.numpy() for name, array in model.state_dict().items()}
    count, found = model.config.num_attention_heads, {}
    for name in ("query", "key"):
        weights, biases = (stacked(arrays, f".{name[0]}_proj.{kind}") for kind in ("weight", "bias"))
        found[name] = weights.reshape(len(weights), count, -1, weights.shape[2])
        found[f"{name}_bias"] = biases.reshape(len(biases), count, -1)
    return found | {f"norm_{kind}": stacked(arrays, f"layernorm_before.{kind}") for kind in ("weight", "bias")}


def stacked(arrays: dict[str, np.ndarray], ending: str) -> np.ndarray:
    return np.stack([array for name, array in arrays.items() if name.endswith(ending)])


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    images, labels, test_images, test_labels = digits()
    model = new_model()
    train(model, images, labels)
    recorded = {}
    for name, pictures, classes in (("training", images, labels), ("test", test_images, test_labels)):
        hidden, maps, predictions = record(model, pictures)
        print(f"{name}: accuracy {np.mean(predictions == classes.numpy()):.3f} of {len(classes)} digits")
        recorded[f"{name}_hidden"] = hidden[:RECORDED].astype(np.float16)
        recorded[f"{name}_labels"] = classes[:RECORDED].numpy().astype(np.int8)
        recorded[f"{name}_predictions"] = predictions[:RECORDED].astype(np.int8)
    recorded["test_maps"] = maps[:MAPS].astype(np.float16)
    np.savez_compressed(HERE / "recorded.npz", **recorded, **heads(model))


if __name__ == "__main__":
    main()
