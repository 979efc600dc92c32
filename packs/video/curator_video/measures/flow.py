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
TEXTURED = 0.02      # of the pixels that must be above, so that a camera's motion can be told
SCALES = np.geomspace(4.0, 0.25, 8)  # pixels of a thumbnail, for each round of the fit: so far off a place has a quarter of its weight
RIDGE = 1e-12 * np.eye(4)
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
    pairs = [k for k in range(len(chosen) - 1) if shots[k] == shots[k + 1]]
    if not pairs or min(pictures.shape[1:]) < LEAST_SIDE:
        return values
    finder = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
    finder.setFinestScale(0)
    found = [_pair(finder, pictures[k], pictures[k + 1], scale, times[chosen[k + 1]] - times[chosen[k]]) for k in pairs]
    return values | _summed(np.array(found), np.array(pairs), np.diff(times[chosen])[pairs])


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


def _pair(finder: cv2.DISOpticalFlow, first: np.ndarray, second: np.ndarray, scale: np.ndarray, seconds: float) -> np.ndarray:
    """Of one step: mean motion; shift of the camera to the right and up, growth, turn in degrees; motion that is the camera's,
    what is left, and the share of the picture that moves by itself. In diagonals, a second but for the shift and the turn."""
    flow = finder.calc(first, second, None) * scale
    height, width = first.shape
    y, x = np.mgrid[:height, :width]
    places = np.stack([(x - (width - 1) / 2) * scale[0], (y - (height - 1) / 2) * scale[1]], axis=-1)
    across, down = cv2.Sobel(first, cv2.CV_32F, 1, 0, scale=1 / 8), cv2.Sobel(first, cv2.CV_32F, 0, 1, scale=1 / 8)
    textured = cv2.blur(across**2 + down**2, (5, 5)) > GRADIENT**2
    size = np.hypot(flow[..., 0], flow[..., 1])
    whole = float(size.mean()) / seconds
    if textured.mean() < TEXTURED:
        return np.array([whole, *[np.nan] * 7])
    textured[:EDGE] = textured[-EDGE:] = textured[:, :EDGE] = textured[:, -EDGE:] = False
    textured[EVERY // 2::EVERY] = textured[:, EVERY // 2::EVERY] = False
    shift_x, shift_y, grow, turn = fitted(places[textured], flow[textured], float(scale.mean()))
    model = np.stack([shift_x + grow * places[..., 0] - turn * places[..., 1],
                      shift_y + turn * places[..., 0] + grow * places[..., 1]], axis=-1)
    left = np.linalg.norm(flow - model, axis=-1) / seconds
    return np.array([whole, -shift_x, shift_y, math.log1p(grow) if grow > -1 else np.nan, math.degrees(turn),
                     np.linalg.norm(model, axis=-1).mean() / seconds, left.mean(), (left > MOVES).mean()])


def fitted(places: np.ndarray, flow: np.ndarray, pixel: float) -> np.ndarray:
    """Shift along x and y, growth and turn (radians, clockwise as y goes down) that most of the places have in common.

    Least squares in rounds, in each of which places that do not fit weigh less (Geman and McClure). `pixel`: the unit of SCALES.
    """
    x, y = places.T
    count = len(x)
    rows = np.zeros((4, 2 * count))  # of each place first what it says of x, then all once more, of y
    rows[0, :count] = rows[1, count:] = 1
    rows[2, :count], rows[2, count:], rows[3, :count], rows[3, count:] = x, y, -y, x
    wanted = flow.T.astype(np.float64).ravel()
    found = np.array([*np.median(flow, axis=0), 0.0, 0.0])
    for scale in pixel * SCALES:
        left = (wanted - found @ rows) ** 2
        weights = 1 / (1 + (left[:count] + left[count:]) / scale**2) ** 2
        weighted = rows * np.concatenate([weights, weights])
        found = np.linalg.solve(weighted @ rows.T + RIDGE, weighted @ wanted)
    return found


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
