"""The network of TransNet V2, and films under it. Imported in workers only.

Source: Soucek and Lokoc 2020 (https://arxiv.org/abs/2008.04838), figure 1 and section 3; the weights have the names of
https://github.com/soCzech/TransNetV2, whose PyTorch version gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from curator.api.errors import CuratorError
from curator.models.heads import read_weights
from curator.models.loading import fetch

WIDTH, HEIGHT = 48, 27
WINDOW, STEP = 100, 50  # pictures that it sees at once; of the answers the middle ones count
_EDGE = (WINDOW - STEP) // 2
_FILTERS, _STAGES, _BLOCKS = 16, 3, 2
_LOOK = 101  # pictures around one, with which it is compared
_COMPARED = 128
_DENSE = 1024
_DILATIONS = (1, 2, 4, 8)


class TransNet(nn.Module):
    """uint8 [N, T, 27, 48, 3], RGB, to the probability that a picture is the last one before a new shot, or amid a transition [N, T]."""

    def __init__(self) -> None:
        super().__init__()
        widths = [_FILTERS * 2**k for k in range(_STAGES)]
        befores = [3, *(4 * width for width in widths[:-1])]
        self.SDDCNN = nn.ModuleList(_Stack(before, width) for before, width in zip(befores, widths, strict=True))
        self.frame_sim_layer = _Similarity(4 * sum(widths))
        self.color_hist_layer = _Histograms()
        self.fc1 = nn.Linear(4 * widths[-1] * (HEIGHT >> _STAGES) * (WIDTH >> _STAGES) + 2 * _COMPARED, _DENSE)
        self.cls_layer1 = nn.Linear(_DENSE, 1)
        self.cls_layer2 = nn.Linear(_DENSE, 1)  # all pictures of a transition: trained with it, and not asked

    def forward(self, pictures: Tensor) -> Tensor:
        seen = pictures.permute(0, 4, 1, 2, 3).float() / 255
        levels = []
        for stack in self.SDDCNN:
            seen = stack(seen)
            levels.append(seen)
        flat = seen.permute(0, 2, 3, 4, 1).flatten(2)
        together = torch.cat([self.color_hist_layer(pictures), self.frame_sim_layer(levels), flat], dim=2)
        return torch.sigmoid(self.cls_layer1(functional.relu(self.fc1(together))))[..., 0]


class _Stack(nn.Module):
    """Blocks of dilated convolutions with a way around all but the first; then half as high and wide."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        self.DDCNN = nn.ModuleList(_Dilated(before if not k else 4 * width, width) for k in range(_BLOCKS))

    def forward(self, seen: Tensor) -> Tensor:
        first = functional.relu(self.DDCNN[0](seen))
        seen = first
        for block in self.DDCNN[1:-1]:
            seen = functional.relu(block(seen))
        return functional.avg_pool3d(functional.relu(self.DDCNN[-1](seen)) + first, (1, 2, 2))


class _Dilated(nn.Module):
    """Four convolutions that look 1, 2, 4 and 8 pictures far."""

    def __init__(self, before: int, width: int) -> None:
        super().__init__()
        for dilation in _DILATIONS:
            setattr(self, f"Conv3D_{dilation}", _Separable(before, width, dilation))
        self.bn = nn.BatchNorm3d(4 * width, eps=1e-3)

    def forward(self, seen: Tensor) -> Tensor:
        return self.bn(torch.cat([getattr(self, f"Conv3D_{dilation}")(seen) for dilation in _DILATIONS], dim=1))


class _Separable(nn.Module):
    """First over height and width, then over time."""

    def __init__(self, before: int, width: int, dilation: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([
            nn.Conv3d(before, 2 * width, (1, 3, 3), padding=(0, 1, 1), bias=False),
            nn.Conv3d(2 * width, width, (3, 1, 1), dilation=(dilation, 1, 1), padding=(dilation, 0, 0), bias=False)])

    def forward(self, seen: Tensor) -> Tensor:
        return self.layers[1](self.layers[0](seen))


class _Similarity(nn.Module):
    """How much each picture is like those around it, by what the blocks see in it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(width, _COMPARED)
        self.fc = nn.Linear(_LOOK, _COMPARED)

    def forward(self, levels: list[Tensor]) -> Tensor:
        mean = torch.cat([level.mean(dim=(3, 4)) for level in levels], dim=1).transpose(1, 2)
        return functional.relu(self.fc(_around(functional.normalize(self.projection(mean), dim=2))))


class _Histograms(nn.Module):
    """The same by its colours, 8 levels of each."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(_LOOK, _COMPARED)

    def forward(self, pictures: Tensor) -> Tensor:
        levels = (pictures >> 5).long()
        colours = (levels[..., 0] << 6 | levels[..., 1] << 3 | levels[..., 2]).flatten(2)
        counts = torch.zeros(*colours.shape[:2], 512, device=pictures.device)
        counts.scatter_add_(2, colours, torch.ones_like(colours, dtype=torch.float32))
        return functional.relu(self.fc(_around(functional.normalize(counts, dim=2))))


def _around(vectors: Tensor) -> Tensor:
    """Products of each vector with the 101 around it, 0 beyond the ends: [N, T, D] to [N, T, 101]."""
    alike = functional.pad(vectors @ vectors.transpose(1, 2), (_LOOK // 2, _LOOK // 2))
    at = torch.arange(vectors.shape[1], device=vectors.device)[:, None] + torch.arange(_LOOK, device=vectors.device)
    return alike.gather(2, at.expand(len(vectors), -1, -1))


def loaded(reference: str) -> TransNet:
    """The network with the weights of a file; see `curator.models.loading.fetch` for how it is named.

    Raises:
        CuratorError: there is no such file, or it has not the weights of this network.
    """
    net = TransNet().eval().requires_grad_(False)
    weights = {name: torch.from_numpy(np.array(values)) for name, values in read_weights(fetch(reference)).items()}
    own = net.state_dict()
    strange = sorted(own.keys() ^ weights.keys()) or sorted(name for name in own if own[name].shape != weights[name].shape)
    if strange:
        raise CuratorError(f"{reference!r} has not the weights of TransNet V2: {strange[0]} and {len(strange) - 1} others are missing, too "
                           "many, or of another shape. Wanted is the state dict of the PyTorch version of github.com/soCzech/TransNetV2")
    net.load_state_dict(weights)
    return net


def predicted(net: TransNet, pictures: Iterable[np.ndarray], device: torch.device, windows: int) -> Iterator[np.ndarray]:
    """Probabilities of pictures, uint8 [27, 48, 3] RGB, in order, in pieces. `windows`: at once."""
    waiting: list[np.ndarray] = []  # the first is _EDGE before the first one that has no answer yet
    owed = 0
    for picture in pictures:
        if not waiting:
            waiting = [picture] * _EDGE
        waiting.append(picture)
        owed += 1
        if len(waiting) == WINDOW + STEP * (windows - 1):
            yield _asked(net, waiting, windows, device)
            waiting, owed = waiting[STEP * windows:], owed - STEP * windows
    while owed > 0:
        count = min(windows, -(-owed // STEP))
        some = waiting[:WINDOW + STEP * (count - 1)]
        some += [waiting[-1]] * (WINDOW + STEP * (count - 1) - len(some))
        yield _asked(net, some, count, device)[:owed]
        waiting, owed = waiting[STEP * count:] or waiting[-1:], owed - STEP * count


@torch.inference_mode()
def _asked(net: TransNet, pictures: list[np.ndarray], windows: int, device: torch.device) -> np.ndarray:
    whole = torch.from_numpy(np.stack(pictures)).to(device)
    batch = torch.stack([whole[STEP * k:STEP * k + WINDOW] for k in range(windows)])
    return net(batch)[:, _EDGE:_EDGE + STEP].flatten().cpu().numpy()
