"""What a film's header and its packets say, without decoding more than the first picture."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from curator_video.read.film import Film

VFR_SPREAD, VFR_GAP = 0.05, 1.5  # deviation of intervals / mean; longest interval / median
_NOTHING = ("und", "unk", "mis", "mul", "zxx", "")
# ITU-T H.273, table 2
_PRIMARIES = {1: "bt709", 4: "bt470m", 5: "bt470bg", 6: "smpte170m", 7: "smpte240m", 8: "film", 9: "bt2020", 10: "smpte428",
              11: "smpte431", 12: "smpte432", 22: "ebu3213"}
_NAMES = {"matroska": "mkv", "mpegts": "ts", "asf": "wmv", "mov": "mp4"}
_LONGEST_S = 10  # a last picture that says it is shown for longer is not believed
_SHORT_S = 0.5  # a film may lack so much of what its header says


def from_header(film: Film) -> dict[str, Any]:
    """Columns that need no scan. Where only packets tell they are what the header declares."""
    stream, container = film.stream, film.container
    first = film.first
    context = stream.codec_context
    declared = film.declared_s
    audio = container.streams.audio[0] if container.streams.audio else None
    rate = stream.average_rate or stream.guessed_rate
    width, height = film.coded
    bits = first.format.components[0].bits if first.format.components else None
    return {
        "container": _container(film), "video_codec": context.codec.canonical_name, "profile": context.profile,
        "width": film.width, "height": film.height, "coded_width": width, "coded_height": height, "sar": float(film.sar),
        "aspect": film.width / film.height, "rotation": film.rotation, "mirrored": film.mirrored,
        "fps": float(rate) if rate else None, "fps_nominal": float(rate) if rate else None, "duration": declared,
        "declared_duration": declared, "start_time": film.first_s, "declared_frames": stream.frames or None,
        "pix_fmt": first.format.name, "bit_depth": bits, "hdr": film.hdr,
        "color_primaries": _PRIMARIES.get(int(first.color_primaries)),
        "full_range": int(first.color_range) == 2 or first.format.name.startswith("yuvj"),
        "interlaced": bool(first.interlaced_frame), "has_audio": audio is not None,
        **_sound(audio), "subtitle_tracks": len(container.streams.subtitles), "languages": _languages(container),
        "n_video": sum(not one.disposition & _attached(one) for one in container.streams.video),
        "attached_pic": any(one.disposition & _attached(one) for one in container.streams.video),
        "creation_time": container.metadata.get("creation_time"),
    }


@dataclass
class Scan:
    """Packets of the pictures and of the sound, as they lie in the file."""

    pts: list[int] = field(default_factory=list)
    keys: list[bool] = field(default_factory=list)
    bits: int = 0
    shown: int = 0
    all: int = 0
    latest: tuple[int, int] | None = None  # pts and duration of the last picture that is shown
    sound: tuple[int, int] | None = None  # begin and end, in its time base

    def add(self, packet: Any) -> None:
        self.all += 1
        self.bits += 8 * packet.size
        if packet.is_discard:  # before the beginning of an edit list
            return
        self.shown += 1
        if packet.pts is not None:
            if self.latest is None or packet.pts >= self.latest[0]:
                self.latest = packet.pts, packet.duration or 0
            self.pts.append(packet.pts)
            self.keys.append(packet.is_keyframe)

    def add_sound(self, packet: Any, per_sample: float) -> None:
        """`per_sample`: of its time base."""
        if packet.pts is None or packet.is_discard:
            return
        first = packet.pts
        if self.sound is None and packet.has_sidedata("skip_samples"):  # what the encoder put before the sound
            first += round(int.from_bytes(bytes(packet.get_sidedata("skip_samples"))[:4], "little") * per_sample)
        begin, end = self.sound or (first, first)
        self.sound = min(begin, first), max(end, packet.pts + (packet.duration or 0))


def scanned(film: Film) -> dict[str, Any]:
    """Columns that the packets decide; they replace what `from_header` took from the header."""
    scan = Scan()
    sound = film.container.streams.audio[0] if film.container.streams.audio else None
    base = None if sound is None else sound.time_base
    per_sample = 0.0
    if sound is not None and base is not None and sound.codec_context:
        per_sample = float(1 / ((sound.codec_context.sample_rate or 1) * base))
    number = film.stream.index
    for packet in film.packets(None if sound is None else sound.index):
        if packet.stream_index == number:
            scan.add(packet)
        else:
            scan.add_sound(packet, per_sample)
    tick = 1 / film.rate if film.by_count else film.stream.time_base
    ticks = np.arange(scan.shown) if film.by_count else np.asarray(scan.pts, np.int64) - film.origin
    shown = np.sort(ticks[ticks >= 0])
    intervals = np.diff(shown)
    duration = _duration(scan, shown, tick)
    found = {
        "fps": float(len(intervals) / (shown[-1] * tick)) if len(intervals) and shown[-1] else None, "duration": duration,
        "frame_count": scan.shown, "vfr": _is_vfr(intervals) if len(intervals) else None,
        "max_gap": float(intervals.max() * tick) if len(intervals) else None,
        "bit_rate": round(scan.bits / duration) if duration else None,
        "bpp": scan.bits / (film.coded[0] * film.coded[1] * scan.all) if scan.all else None,
        **_order(film, scan, ticks * float(tick), duration),
    }
    reached = duration
    if scan.sound is not None and base is not None:
        begin, end = (float(one * base) - film.first_s for one in scan.sound)
        found |= {"audio_duration": end - begin, "audio_offset": begin}
        reached = max(duration or 0.0, end)
    declared = film.declared_s
    lacks = film.truncated or (declared is not None and reached is not None and reached < declared - max(_SHORT_S, 0.02 * declared))
    notes = ["truncated"] * lacks + ["damaged"] * (film.corrupt > 0 and not lacks) + ["no_times"] * film.by_count
    return {**found, "missing_ratio": _missing(film, scan, reached, declared), "probe_note": ", ".join(notes) or None}


def _duration(scan: Scan, shown: np.ndarray, tick: Fraction) -> float | None:
    """Until the end of the last picture, which is as long as it says, else as most are."""
    if not len(shown):
        return None
    last = scan.latest[1] if scan.latest is not None else 0
    if not 0 < last * tick < _LONGEST_S:
        last = int(np.median(np.diff(shown))) if len(shown) > 1 else round(Fraction(1, 25) / tick)
    return float((int(shown[-1]) + last) * tick)


def _is_vfr(intervals: np.ndarray) -> bool:
    return bool(intervals.std() > VFR_SPREAD * intervals.mean() or intervals.max() > VFR_GAP * np.median(intervals))


def _missing(film: Film, scan: Scan, reached: float | None, declared: float | None) -> float | None:
    """The share of what the header declares that is not there: of pictures, else of seconds."""
    if film.stream.frames:
        return max(0.0, 1 - scan.all / film.stream.frames)
    return None if not declared or reached is None else max(0.0, 1 - reached / declared)


def _order(film: Film, scan: Scan, times: np.ndarray, duration: float | None) -> dict[str, Any]:
    """What the order of packets tells: the distance of keyframes, whether GOPs are open, whether there are B frames."""
    if film.by_count or not len(times) or duration is None:
        return {"keyframe_interval": None, "open_gop": None, "b_frames": bool(film.stream.has_b_frames)}
    keys = np.asarray(scan.keys)
    begins = np.where(keys, times, -np.inf)
    latest = np.maximum.accumulate(begins)
    at = np.append(times[keys], duration)
    return {"keyframe_interval": float(np.diff(np.sort(at)).max()) if len(at) > 1 else None,
            "open_gop": bool(np.any(times < latest - 1e-9)), "b_frames": bool(np.any(np.diff(times) < 0))}


def _container(film: Film) -> str:
    if film.format == "matroska":
        return "webm" if film.container.format.name == "webm" or film.is_webm else "mkv"
    brand = film.container.metadata.get("major_brand", "").strip()
    return "mov" if film.format == "mov" and brand == "qt" else _NAMES.get(film.format, film.format)


def _sound(audio: Any) -> dict[str, Any]:
    if audio is None:
        return {}
    context = audio.codec_context
    seconds = None if audio.duration is None else float(audio.duration * audio.time_base)
    return {"audio_codec": None if context is None else context.codec.canonical_name,
            "audio_rate": None if context is None else context.sample_rate or None,
            "audio_channels": None if context is None else context.channels or None, "audio_duration": seconds}


def _languages(container: Any) -> list[str]:
    streams = [*container.streams.audio, *container.streams.subtitles]
    return sorted({one.language for one in streams if one.language and one.language not in _NOTHING})


def _attached(stream: Any) -> Any:
    return type(stream.disposition).attached_pic


def length_of(film: Film) -> float | None:
    """Seconds until the end of the last picture, by the packets."""
    return scanned(film)["duration"]
