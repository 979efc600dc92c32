"""Small networks in numpy, made of whatever weights a file holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from curator.api.errors import CuratorError
from curator.models.loading import fetch, library

EPSILON = 1e-7  # the smallest deviation, as in Keras


@dataclass(frozen=True)
class Mlp:
    """Linear layers with an activation between them, behind an optional standardisation of the input.

    `layers`: (weight [out, in], bias [out]) each.
    """

    layers: list[tuple[np.ndarray, np.ndarray]]
    mean: np.ndarray | float = 0.0
    deviation: np.ndarray | float = 1.0
    activation: str = "none"
    output: str = "none"
    width: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "width", self.layers[0][0].shape[1])

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """float32 [n, width] -> float32 [n, outputs]."""
        values = (vectors - self.mean) / self.deviation
        for at, (weight, bias) in enumerate(self.layers):
            values = values @ weight.T + bias
            if at < len(self.layers) - 1:
                values = ACTIVATIONS[self.activation](values)
        return ACTIVATIONS[self.output](values).astype(np.float32)

    @staticmethod
    def read(reference: str, activation: str, output: str, *, outputs: int) -> Mlp:
        """The network of a file; see `curator.models.loading.fetch` for how it is named.

        Raises:
            CuratorError: there is no such file, or its weights are no chain of linear layers with so many
            outputs.
        """
        mean, deviation, layers = network_of(read_weights(fetch(reference)), reference)
        found = layers[-1][0].shape[0]
        if found != outputs:
            raise CuratorError(f"the network in {reference!r} has {found} outputs, and `into` names "
                               f"{outputs}")
        return Mlp(layers, mean, deviation, activation, output)


def read_weights(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a file by name, as float32.

    Raises:
        CuratorError: it is no such file. A pickle that holds more than weights is refused.
    """
    safe = path.suffix == ".safetensors"
    reader = library("safetensors.numpy" if safe else "torch")  # torch takes seconds to import
    try:
        if safe:
            return {name: values.astype(np.float32) for name, values in reader.load_file(path).items()}
        found = reader.load(path, map_location="cpu", weights_only=True)
        return {name: values.float().numpy() for name, values in found.items()}
    except Exception as error:
        raise CuratorError(f"{str(path)!r} cannot be read as weights: {type(error).__name__}: "
                           f"{str(error)[:300]}. Wanted is a "
                           "safetensors file or a state dict saved by torch.save") from error


def network_of(weights: Mapping[str, np.ndarray],
               reference: str) -> tuple[np.ndarray | float, np.ndarray | float, list]:
    """Mean and deviation of the input, and the layers, in the order of the numbers in their names.

    Raises:
        CuratorError: naming what is no part of such a network.
    """
    layers = sorted((name for name, values in weights.items() if values.ndim == 2), key=_natural)
    if not layers:
        raise CuratorError(f"{reference!r} holds no linear layer: its arrays are "
                           f"{', '.join(weights) or 'none'}")
    width = weights[layers[0]].shape[1]
    rest = {name: name.rpartition(".")[2] for name in weights
            if name not in {*layers, *map(_bias_of, layers)}}
    standard = {last: weights[name] for name, last in rest.items() if weights[name].size in (1, width)}
    if rest and (standard.keys() - {"count"} != {"mean", "variance"} or len(standard) < len(rest)):
        raise CuratorError(f"{reference!r} holds {', '.join(rest)}: a head has nothing beside linear layers "
                           "but one `mean` and one `variance` of its input")
    chain = []
    for name in layers:
        weight = weights[name]
        if weight.shape[1] != width:
            raise CuratorError(f"{reference!r}: layer {name} takes {weight.shape[1]} numbers, and the one "
                               f"before gives {width}")
        width = weight.shape[0]
        chain.append((weight, weights.get(_bias_of(name), np.zeros(width, np.float32))))
    return standard.get("mean", 0.0), np.maximum(np.sqrt(standard.get("variance", 1.0)), EPSILON), chain


def erf(x: np.ndarray) -> np.ndarray:
    """The error function to 1.5e-7. Source: Abramowitz and Stegun 1964, 7.1.26."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - series * np.exp(-x * x))


def softmax(logits: np.ndarray) -> np.ndarray:
    """Probabilities that add up to 1 in each row."""
    raised = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return raised / raised.sum(axis=1, keepdims=True)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Probabilities, each by itself."""
    return 0.5 * (1 + np.tanh(0.5 * logits))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "none": lambda x: x, "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "sigmoid": sigmoid, "softmax": softmax,
}


def _bias_of(layer: str) -> str:
    return f"{layer.rpartition('.')[0]}.bias".lstrip(".")


def _natural(name: str) -> list[tuple[int, int, str]]:
    """So that layers.10 comes after layers.9."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name)]
