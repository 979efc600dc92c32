"""How a clip moves: optical flow of its thumbnails, and what of it is the camera's."""

from __future__ import annotations

import math
from typing import Any

import cv2
import numpy as np

from curator_video.measures.steps import find_cuts
from curator_video.measures.views import Thumbs

LEAST_SIDE = 16      # pixels of a thumbnail that optical flow needs
GRADIENT = 3.0       # levels a pixel under which nothing tells where a place has moved
EDGE = 2             # pixels at the sides that are not asked for the camera's motion: what they show leaves the picture
EVERY = 2            # rows and columns are asked
LEAST_PLACES = 8
LOOKED, OF = 2, 4     # steps that follow each other, of so many, are looked at
FEW = 8              # steps that are looked at all
TOGETHER = 64        # steps that are fitted at once
TEXTURED = 0.02      # of the pixels that must be above, so that a camera's motion can be told
SCALES = np.geomspace(3.0, 0.25, 6)  # pixels of a thumbnail, for each round of the fit: so far off a place has a quarter of its weight
MOVES = 0.03         # diagonals a second: a place that is faster against the camera's motion moves by itself
STATIC = 0.008       # diagonals a second: grain of 5 levels looks like 0.002
PAN, ZOOM, ROLL = 0.02, 0.03, 3.0  # diagonals, scale, degrees a second from which a camera's motion has a name
STEADY = 0.6         # of all its motion, that a camera does which pans
SHAKES = 0.006       # diagonals off the line: from here on a camera is held in the hand

NUMBERS = ("motion_mean", "motion_max", "camera_x", "camera_y", "zoom", "roll", "camera_motion", "shake", "local_motion", "moving_area")

Values = dict[str, Any]  # numbers, the word for what the camera does, whether it is static; None where nothing tells


def motion(thumbs: np.ndarray | None, times: np.ndarray | None, width: int, height: int, fps: float) -> Values:
    """What moves and how, as the table of `video.motion` says. `width`, `height`: of the picture, whose shape counts."""
    values: Values = dict.fromkeys((*NUMBERS, "camera", "static"))
    if thumbs is None or times is None or len(thumbs) < 2:
        return values
    clip = Thumbs(thumbs, times)
    chosen = _chosen(times, fps)
    shots = np.append(0, np.cumsum(clip.once(find_cuts)))[chosen]
    pictures = _inside(clip, chosen)
    scale = np.array([width / thumbs.shape[2], height / thumbs.shape[1]]) / math.hypot(width, height)
    steps = np.diff(times[chosen])
    pairs = [k for k in _looked(len(chosen) - 1) if shots[k] == shots[k + 1] and steps[k] > 0]
    if not pairs or min(pictures.shape[1:]) < LEAST_SIDE:
        return values
    finder: Any = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)  # `calc` makes the array that its stubs ask for
    finder.setFinestScale(0)
    across, down = ((np.arange(count) - (count - 1) / 2) * size for count, size in zip(pictures.shape[:0:-1], scale, strict=True))
    places = np.stack([one.ravel() for one in np.meshgrid(across, down)], dtype=np.float32)
    found = []
    for first in range(0, len(pairs), TOGETHER):
        part = pairs[first:first + TOGETHER]
        flow = np.stack([finder.calc(pictures[k], pictures[k + 1], None) for k in part]).reshape(len(part), -1, 2)
        moved = np.multiply(flow.transpose(2, 0, 1), scale.astype(np.float32)[:, None, None], order="C")
        textured = np.stack([_textured(pictures[k]) for k in part])
        found.append(_steps(moved, textured, places, float(scale.mean()), steps[part].astype(np.float32)))
    return values | _summed(np.concatenate(found), np.array(pairs), steps[pairs])


def _chosen(times: np.ndarray, fps: float) -> np.ndarray:
    """The numbers of frames, about so many a second, evenly spaced where they are so in the film."""
    usual = float(np.median(np.diff(times)))
    step = max(1, round(1 / fps / usual)) if usual > 0 else 1
    return np.arange(0, len(times), step)


def _looked(count: int) -> list[int]:
    """The numbers of the steps that are looked at, in pairs, as shake is of two; where in its four steps a pair lies changes, so that
    what comes again and again, as where somebody walks with the camera, is not always met at the same place."""
    if count <= FEW:
        return list(range(count))
    begins = (first + int(0.618 * first / OF % 1 * (OF - LOOKED + 1)) for first in range(0, count, OF))
    return [k for begin in begins for k in range(begin, min(begin + LOOKED, count))]


def _inside(clip: Thumbs, chosen: np.ndarray) -> np.ndarray:
    """The chosen thumbnails without black bars, if enough is left."""
    top, bottom, left, right = clip.bars
    if min(bottom - top, right - left) < LEAST_SIDE:
        return clip.thumbs[chosen]
    return np.ascontiguousarray(clip.thumbs[chosen, top:bottom, left:right])


def _textured(picture: np.ndarray) -> np.ndarray:
    """Where there is enough to tell where a place has moved, bool."""
    across, down = cv2.spatialGradient(picture)  # Sobel's, 8 for a level a pixel
    steepness = cv2.add(cv2.multiply(across, across, dtype=cv2.CV_32F), cv2.multiply(down, down, dtype=cv2.CV_32F))
    return cv2.blur(steepness, (5, 5)) > (8 * GRADIENT) ** 2


def _steps(moved: np.ndarray, textured: np.ndarray, places: np.ndarray, pixel: float, seconds: np.ndarray) -> np.ndarray:
    """Of each step: mean motion; shift of the camera to the right and up, growth, turn in degrees; motion that is the camera's,
    what is left, and the share of the picture that moves by itself. In diagonals, a second but for the shift and the turn.

    `moved`: float32 [2, steps, pixels], diagonals to the right and down. `textured`: bool [steps, height, width], where the first picture
    of a step is. `places`: where the pixels are, in diagonals right of the middle and below, float32 [2, pixels]. `pixel`: the side of one.
    """
    found = np.full((len(seconds), 8), np.nan)
    found[:, 0] = cv2.magnitude(*moved).mean(axis=1) / seconds
    at: np.ndarray = np.zeros(textured.shape[1:], bool)
    at[EDGE:-EDGE:EVERY, EDGE:-EDGE:EVERY] = True
    at, asked = at.ravel(), textured[:, at]
    tells = (textured.mean(axis=(1, 2)) >= TEXTURED) & (asked.sum(axis=1) >= LEAST_PLACES)
    if not tells.any():
        return found
    moved, seconds = moved[:, tells], seconds[tells, None]
    shift, change = fitted(places[:, at], moved[:, :, at], asked[tells], pixel)
    camera = _model(shift, change, _basis(places))
    left = cv2.magnitude(*(moved - camera)) / seconds
    found[tells, 1:] = np.column_stack([
        -shift.real, shift.imag, np.log1p(np.maximum(change.real, -0.9)), np.degrees(change.imag),
        cv2.magnitude(*camera).mean(axis=1) / seconds[:, 0], left.mean(axis=1), (left > MOVES).mean(axis=1)])
    return found


def _basis(places: np.ndarray) -> np.ndarray:
    """1, x and y of places."""
    return np.stack([np.ones_like(places[0]), *places])


def _model(shift: np.ndarray, change: np.ndarray, basis: np.ndarray) -> np.ndarray:
    """How far places move to the right and down by the camera's motion of each step, float32 [2, steps, places]."""
    known = np.array([[shift.real, change.real, -change.imag], [shift.imag, change.imag, change.real]], np.float32)
    return known.transpose(0, 2, 1) @ basis


def fitted(places: np.ndarray, moved: np.ndarray, asked: np.ndarray, pixel: float) -> tuple[np.ndarray, np.ndarray]:
    """Of each step the shift that most of the places asked have in common, and the change: growth, and i times the turn (radians,
    clockwise as y goes down). Complex: x + y i.

    `places`: float32 [2, places]. `moved`: how far they move, float32 [2, steps, places]. `asked`: bool, a place at least of each step.
    `pixel`: the unit of SCALES.

    Least squares in rounds, in each of which places that do not fit weigh less (Geman and McClure).
    """
    (x, y), (right, down) = places, moved
    basis, squared = _basis(places), x * x + y * y
    products = np.stack([right, down, x * right + y * down, x * down - y * right], axis=1)
    middles = _medians(moved, asked)
    shift = middles[0] + 1j * middles[1]
    change = np.zeros(len(right), np.complex128)
    asked = asked.astype(np.float32)
    for scale in pixel * SCALES:
        off = moved - _model(shift, change, basis)
        np.multiply(off, off, out=off)
        fit = (off[0] + off[1]) * np.float32(1 / scale**2) + np.float32(1)
        weights = asked / (fit * fit)
        (total, ofx, ofy), squares = (basis @ weights.T).astype(np.float64), (weights @ squared).astype(np.float64)
        r, d, along, round_it = np.vecdot(products, weights[:, None]).astype(np.float64).T
        middle, mean = (ofx + 1j * ofy) / total, (r + 1j * d) / total
        common = along + 1j * round_it - total * middle.conj() * mean
        change = common / (squares - total * np.abs(middle) ** 2 + 1e-12)
        shift = mean - change * middle
    return shift, change


def _medians(values: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Of each row that of the values that are asked."""
    ordered, count = np.sort(np.where(asked, values, np.inf), axis=-1), asked.sum(axis=1)
    rows = np.arange(len(asked))
    return (ordered[..., rows, (count - 1) // 2] + ordered[..., rows, count // 2]).astype(np.float64) / 2


def _summed(steps: np.ndarray, numbers: np.ndarray, seconds: np.ndarray) -> Values:
    """The columns of steps as `_steps` gives them; those that follow each other have following numbers."""
    values: Values = {"motion_mean": float(seconds @ steps[:, 0] / seconds.sum()), "motion_max": float(steps[:, 0].max())}
    known = np.isfinite(steps).all(axis=1)
    if known.any():
        told, known_s = steps[known], seconds[known]
        path, speeds = told[:, 1:5].sum(axis=0) / known_s.sum(), known_s @ told[:, 5:] / known_s.sum()
        values |= dict(zip(("camera_x", "camera_y", "zoom", "roll"), path.tolist(), strict=True))
        values |= dict(zip(("camera_motion", "local_motion", "moving_area"), speeds.tolist(), strict=True))
        follows = known[1:] & known[:-1] & (np.diff(numbers) == 1)
        values["shake"] = float(np.hypot(*np.diff(steps[:, 1:3], axis=0)[follows].T).mean() / 2) if follows.any() else None
    values["static"] = values["motion_mean"] < STATIC and (values.get("moving_area") or 0) < 0.01
    values["camera"] = named(values) if known.any() else None
    return values


def named(values: Values) -> str:
    """What the camera does: static, pan, tilt, zoom_in, zoom_out, roll, handheld, mixed."""
    sizes = {"pan": abs(values["camera_x"]) / PAN, "tilt": abs(values["camera_y"]) / PAN, "zoom": abs(values["zoom"]) / ZOOM,
             "roll": abs(values["roll"]) / ROLL}
    if (values["shake"] or 0) > SHAKES:
        return "handheld"
    kind = max(sizes, key=sizes.__getitem__)
    if sizes[kind] < 1:
        return "static" if values["camera_motion"] < PAN else "mixed"
    if sorted(sizes.values())[-2] > max(1, STEADY * sizes[kind]):
        return "mixed"
    return kind if kind != "zoom" else "zoom_in" if values["zoom"] > 0 else "zoom_out"
