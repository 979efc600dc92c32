"""How a clip moves: optical flow of its thumbnails, and what of it is the camera's."""

from __future__ import annotations

import math

import cv2
import numpy as np

from curator_video.measures.bars import find_bars
from curator_video.measures.steps import find_cuts
from curator_video.measures.views import BLACK_THUMB, Thumbs

LEAST_SIDE = 16      # pixels of a thumbnail that optical flow needs
GRADIENT = 3.0       # levels a pixel under which nothing tells where a place has moved
EDGE = 2             # pixels at the sides that are not asked for the camera's motion: what they show leaves the picture
EVERY = 2            # rows and columns are asked
LEAST_PLACES = 8
TEXTURED = 0.02      # of the pixels that must be above, so that a camera's motion can be told
SCALES = np.geomspace(4.0, 0.25, 8)  # pixels of a thumbnail, for each round of the fit: so far off a place has a quarter of its weight
MOVES = 0.03         # diagonals a second: a place that is faster against the camera's motion moves by itself
STATIC = 0.008       # diagonals a second: grain of 5 levels looks like 0.004
PAN, ZOOM, ROLL = 0.02, 0.03, 3.0  # diagonals, scale, degrees a second from which a camera's motion has a name
STEADY = 0.6         # of all its motion, that a camera does which pans
SHAKES = 0.004       # diagonals off the line: from here on a camera is held in the hand

NUMBERS = ("motion_mean", "motion_max", "camera_x", "camera_y", "zoom", "roll", "camera_motion", "shake", "local_motion", "moving_area")

Values = dict[str, float | bool | str | None]


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
    pairs = [k for k in range(len(chosen) - 1) if shots[k] == shots[k + 1] and steps[k] > 0]
    if not pairs or min(pictures.shape[1:]) < LEAST_SIDE:
        return values
    finder = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
    finder.setFinestScale(0)
    y, x = np.mgrid[: pictures.shape[1], : pictures.shape[2]]
    places = ((x - x.mean()) * scale[0] + 1j * (y - y.mean()) * scale[1]).astype(np.complex64)
    found = [_pair(finder, pictures[k], pictures[k + 1], places, float(steps[k])) for k in pairs]
    return values | _summed(np.array(found), np.array(pairs), steps[pairs])


def _chosen(times: np.ndarray, fps: float) -> np.ndarray:
    """The numbers of frames, about so many a second, evenly spaced where they are so in the film."""
    usual = float(np.median(np.diff(times)))
    step = max(1, round(1 / fps / usual)) if usual > 0 else 1
    return np.arange(0, len(times), step)


def _inside(clip: Thumbs, chosen: np.ndarray) -> np.ndarray:
    """The chosen thumbnails without black bars, if enough is left."""
    found = find_bars(clip.thumbs, BLACK_THUMB)
    pictures = clip.thumbs[chosen]
    if found is None or found[1] - found[0] < LEAST_SIDE or found[3] - found[2] < LEAST_SIDE:
        return pictures
    return np.ascontiguousarray(pictures[:, found[0]:found[1], found[2]:found[3]])


def _pair(finder: cv2.DISOpticalFlow, first: np.ndarray, second: np.ndarray, places: np.ndarray, seconds: float) -> list[float]:
    """Of one step: mean motion; shift of the camera to the right and up, growth, turn in degrees; motion that is the camera's,
    what is left, and the share of the picture that moves by itself. In diagonals, a second but for the shift and the turn.

    `places`: where the pixels are, in diagonals from the middle, x + y i.
    """
    moved = finder.calc(first, second, None)
    pixel = np.float32([places[0, 1].real - places[0, 0].real, places[1, 0].imag - places[0, 0].imag])
    flow = (moved * pixel).view(np.complex64)[..., 0]
    whole = float(np.abs(flow).mean()) / seconds
    across, down = cv2.Sobel(first, cv2.CV_32F, 1, 0, scale=1 / 8), cv2.Sobel(first, cv2.CV_32F, 0, 1, scale=1 / 8)
    textured = cv2.blur(across * across + down * down, (5, 5)) > GRADIENT**2
    if textured.mean() < TEXTURED:
        return [whole, *[math.nan] * 7]
    asked = np.zeros_like(textured)
    asked[EDGE:-EDGE:EVERY, EDGE:-EDGE:EVERY] = textured[EDGE:-EDGE:EVERY, EDGE:-EDGE:EVERY]
    if np.count_nonzero(asked) < LEAST_PLACES:
        return [whole, *[math.nan] * 7]
    shift, change = fitted(places[asked], flow[asked], float(pixel.mean()))
    model = shift + change * places
    left = np.abs(flow - model) / seconds
    return [whole, -shift.real, shift.imag, math.log1p(max(change.real, -0.9)), math.degrees(change.imag),
            float(np.abs(model).mean()) / seconds, float(left.mean()), float((left > MOVES).mean())]


def fitted(places: np.ndarray, flow: np.ndarray, pixel: float) -> tuple[complex, complex]:
    """The shift that most of the places have in common, and the change: growth, and i times the turn (radians, clockwise as y
    goes down). Complex: x + y i.

    Least squares in rounds, in each of which places that do not fit weigh less (Geman and McClure). `pixel`: the unit of SCALES.
    """
    shift, change = complex(np.median(flow.real), np.median(flow.imag)), 0j
    for scale in pixel * SCALES:
        left = flow - (shift + change * places)
        weights = 1 / (1 + (left.real**2 + left.imag**2) / scale**2) ** 2
        total = weights.sum()
        middle, mean = weights @ places / total, weights @ flow / total
        around = places - middle
        weighted = weights * around.conj()
        change = complex(weighted @ (flow - mean) / ((weighted @ around).real + 1e-12))
        shift = complex(mean - change * middle)
    return shift, change


def _summed(steps: np.ndarray, numbers: np.ndarray, seconds: np.ndarray) -> Values:
    """The columns of steps as `_pair` gives them; those that follow each other have following numbers."""
    whole, x, y, grow, turn, camera, left, area = steps.T
    values: Values = {"motion_mean": float(np.average(whole, weights=seconds)), "motion_max": float(whole.max())}
    known = np.isfinite(steps).all(axis=1)
    if known.any():
        total = float(seconds[known].sum())
        for name, column in (("camera_x", x), ("camera_y", y), ("zoom", grow), ("roll", turn)):
            values[name] = float(column[known].sum()) / total
        for name, column in (("camera_motion", camera), ("local_motion", left), ("moving_area", area)):
            values[name] = float(np.average(column[known], weights=seconds[known]))
        follows = known[1:] & known[:-1] & (np.diff(numbers) == 1)
        values["shake"] = float(np.hypot(np.diff(x), np.diff(y))[follows].mean() / 2) if follows.any() else None
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
