"""What the config.json beside a checkpoint says of it, as transformers writes it: much of it is in no array."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..arguments import checked_flag, checked_number, checked_whole_number
from .json_objects import read_object

FILE = "config.json"


@dataclass(frozen=True)
class Configuration:
    """The `values` of the file at `path`; none where there is no such file."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

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
