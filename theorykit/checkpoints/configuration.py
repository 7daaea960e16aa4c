"""What the config.json beside a checkpoint says of it, as transformers writes it: much of it is in no array."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..checks import checked_flag, checked_number, checked_whole_number, shown
from .json_objects import read_object

FILE = "config.json"
# what every configuration of a transformer has one of
_HEADS = {"num_attention_heads", "n_head", "model_type"}


@dataclass(frozen=True)
class Configuration:
    """The `values` of the file at `path`; none where there is no such file."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> "Configuration":
        """What it says of the model that the array `name` is of, where it is of several, such as encoder and decoder.

        Raises `ValueError` where it does not say which of them that is.
        """
        models = {
            key: value for key, value in self.values.items() if isinstance(value, Mapping) and _HEADS & set(value)
        }
        if not models:
            return self
        for part in name.split("."):
            for key, value in models.items():
                if part.partition("_")[0] == key.partition("_")[0]:  # such as vision_tower and vision_config
                    return Configuration(self.path, value).of(name)
        if self.heads is not None:  # a model of its own, and others in it
            return self
        raise ValueError(
            f"{self.path} is of several models ({', '.join(models)}), and {shown(name)} does not say of which it is: "
            "give the arrays of one model, with the options that its configuration has"
        )

    @property
    def heads(self) -> int | None:
        """Heads of a layer."""
        value = self._first("num_attention_heads", "n_head")
        return None if value is None else checked_whole_number(f"the number of heads in {self.path}", value, least=1)

    @property
    def epsilon(self) -> float | None:
        """What the layer norms add to the variance."""
        value = self._first("layer_norm_eps", "layer_norm_epsilon")
        return None if value is None else float(checked_number(f"layer_norm_eps in {self.path}", value, above=0.0))

    @property
    def model_type(self) -> str | None:
        """The name that transformers has for the kind of model."""
        value = self.values.get("model_type")
        return value if isinstance(value, str) else None

    def is_set(self, name: str, default: bool = False) -> bool:
        """A switch of the model."""
        value = self.values.get(name)
        return default if value is None else checked_flag(f"{name} in {self.path}", value)

    def _first(self, *names: str) -> Any:
        return next((self.values[name] for name in names if self.values.get(name) is not None), None)


def configuration_beside(checkpoint: Path) -> Configuration:
    """What the config.json in the folder of `checkpoint` says, which there need not be; `ValueError` if damaged."""
    path = checkpoint.parent / FILE
    return Configuration(path, read_object(path, "a configuration")) if path.is_file() else Configuration()
