"""What the config.json beside a checkpoint says of it, as transformers writes it: much of it is in no array."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..checks import checked_flag, checked_number, checked_whole_number, first_line, shown

# an index or a configuration is not longer than the longest header of a safetensors file
_MOST_BYTES = 100_000_000


def read_object(path: Path, what: str) -> dict[str, Any]:
    """The JSON object in the file at `path`, which errors call `what`; keys that are there twice are refused."""
    if path.stat().st_size > _MOST_BYTES:
        raise ValueError(f"{path} has {path.stat().st_size} bytes, too many for {what}")
    try:
        found = json.loads(path.read_bytes().decode("utf-8"), object_pairs_hook=_without_repetition)
    except RecursionError:
        raise ValueError(f"{path} is damaged: {what} is nested too deeply") from None
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged, or another file: {what} is not JSON ({first_line(error)[:120]})"
        ) from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} is damaged, or another file: {what} is no JSON object, but {shown(found)}")
    return found


def _without_repetition(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        ((repeated, _),) = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {shown(repeated)} is there twice")
    return found


@dataclass(frozen=True)
class Configuration:
    """The `values` of the file at `path`; none where there is no such file."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)

    def of(self, name: str) -> "Configuration":
        """The part about the model of the array `name`, if there are several models, such as encoder and decoder.

        Raises:
            ValueError: the name does not tell the model.
        """
        models = {
            key: value
            for key, value in self.values.items()
            if isinstance(value, Mapping) and {"num_attention_heads", "n_head", "model_type"} & set(value)
        }
        for part in name.split("."):
            for key, value in models.items():
                if part.partition("_")[0] == key.partition("_")[0]:  # such as vision_tower and vision_config
                    return Configuration(self.path, value).of(name)
        if not models or self.heads is not None:  # one model, or a model of its own with others in it
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
    """The config.json in the folder of `checkpoint`, which may be missing; `ValueError` if it is damaged."""
    path = checkpoint.parent / "config.json"
    return Configuration(path, read_object(path, "a configuration")) if path.is_file() else Configuration()
