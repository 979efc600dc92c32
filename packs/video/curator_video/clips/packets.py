"""Coded pictures and sound of a span, as they lie in the file."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from av.error import FFmpegError

from curator_video.read.film import Film
from curator_video.read.sampling import EPSILON_S

_BACK_S = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)  # how much earlier it is looked for a keyframe, if one comes too late
_PRIMING_S = 0.1  # of sound before the span that a decoder wants to have heard


@dataclass
class Coded:
    """Packets in the order of decoding, the first a keyframe.

    `first`, `stop`: of what is shown, in ticks of the stream: the first picture and the end of the last one. `leading`: pictures
    that stand behind the keyframe and are shown before it; they need what is before. `whole`: no packet is damaged or without times,
    and the keyframe needs none before it.
    """

    packets: list[Any] = field(default_factory=list)
    first: int = 0
    stop: int = 0
    shown: int = 0
    leading: bool = False
    whole: bool = True

    @property
    def hidden(self) -> int:
        """Ticks from the keyframe to the first picture that is shown."""
        return self.first - self.packets[0].pts


def pictures_of(film: Film, start_s: float, end_s: float, hidden_s: float = math.inf) -> Coded | None:
    """Packets of the pictures with start_s <= time < end_s, and of those that they need; None where no keyframe is before. Of those
    before the span only the keyframe is kept, if it lies more than `hidden_s` before it."""
    base, number = film.stream.time_base, film.stream.index
    start = math.ceil((film.first_s + start_s - EPSILON_S) / base)
    end = math.ceil((film.first_s + end_s - EPSILON_S) / base)
    for back in _BACK_S:
        early = film.first_s + start_s - back
        made = _from(film, number, start, end, math.floor(early / base) if early > film.first_s else None, hidden_s / base)
        if made is not None or early <= film.first_s:
            return made
    return _from(film, number, start, end, None, hidden_s / base)


def _from(film: Film, number: int, start: int, end: int, wanted: int | None, most: float) -> Coded | None:
    """None where the first keyframe after the jump is shown after `start`. `most`: ticks from the keyframe to `start`."""
    made = Coded()
    for packet in _read(film, number, wanted):
        if packet.pts is None or packet.is_corrupt:
            made.whole = False
            continue
        if packet.is_keyframe and packet.pts <= start:
            made = Coded(packets=[packet], whole=_stands_alone(film, packet))
        elif not made.packets:
            if packet.is_keyframe:
                return None
        elif packet.dts is not None and packet.dts >= end:
            break
        else:
            if packet.pts < start and packet.pts - made.packets[0].pts > most:  # they could be all of a long film
                made.packets[1:] = [one for one in made.packets[1:] if one.pts >= start]
            made.packets.append(packet)
    if not made.packets:
        return None
    _dated(made.packets, max(1, round(1 / (film.stream.average_rate or 25) / film.stream.time_base)))
    while made.packets and made.packets[-1].pts >= end:
        behind = made.packets.pop()
        made.stop = behind.pts if not made.stop else min(made.stop, behind.pts)
    shown = [packet for packet in made.packets if start <= packet.pts < end]
    if not shown:
        return Coded()
    last = max(shown, key=lambda packet: packet.pts)
    later = [packet.pts for packet in made.packets if packet.pts >= end]
    made.first, made.shown = min(packet.pts for packet in shown), len(shown)
    at = [k for k, packet in enumerate(made.packets) if packet.is_keyframe and packet.pts == made.first]
    made.packets = made.packets[at[0]:] if at else made.packets
    made.stop = min([last.pts + (last.duration or 1), end, *later])
    made.leading = any(packet.pts < made.packets[0].pts for packet in made.packets)
    return made


def _stands_alone(film: Film, packet: Any) -> bool:
    """Whether what a file marks as a keyframe is one. H.264 that is refreshed little by little has marks where a round of that begins:
    the picture there refers to others, as the type of its first slice says (P or B; ITU-T H.264, 7.3.3 and table 7-6)."""
    context = film.stream.codec_context
    header = context.extradata or b""
    if context.codec.canonical_name != "h264" or len(header) < 5 or header[0] != 1 or header[4] & 3 != 3:
        return True  # of other streams of H.264 than those whose units have their length, in four bytes, before them
    data, at = memoryview(packet), 0
    while at + 9 <= len(data):
        if data[at + 4] & 31 in (1, 5):  # a slice
            bits = f"{int.from_bytes(data[at + 5:at + 9]):032b}"[1:]  # without the number of its first block, 0
            zeros = len(bits) - len(bits.lstrip("0"))
            return (int(bits[zeros:2 * zeros + 1] or "0", 2) - 1) % 5 not in (0, 1)
        at += 4 + int.from_bytes(data[at:at + 4])
    return True


def _dated(packets: list[Any], step: int) -> None:
    """Matroska does not say when its first pictures are decoded: before those that follow, and not after they are shown."""
    later = packets[-1].pts + step
    for packet in reversed(packets):
        if packet.dts is None:
            packet.dts = min(packet.pts, later - step)
        later = packet.dts


def sound_of(film: Film, number: int, start_s: float, end_s: float) -> list[Any]:
    """Packets of the stream `number`, of sound, from start_s to end_s and some before, in order; those that go back are left out."""
    base = film.container.streams[number].time_base
    start, end = ((film.first_s + seconds) / base for seconds in (start_s, end_s))
    early = start - (_PRIMING_S + 0.5) / base
    heard = start - _PRIMING_S / float(base)
    made: list[Any] = []
    for packet in _read(film, number, math.floor(early) if early > 0 else None):
        pts = packet.pts
        if pts is None:
            continue
        if pts >= end:
            break
        if pts + (packet.duration or 0) > heard and (not made or pts > made[-1].pts):
            made.append(packet)
    return made


def _read(film: Film, number: int, wanted: int | None) -> Iterator[Any]:
    """Packets of one stream from the keyframe before `wanted`, in ticks, or from the beginning, as far as they can be read."""
    try:
        if wanted is None:
            film.rewind(number)
        else:
            film.container.seek(wanted, stream=film.container.streams[number])
    except (FFmpegError, OSError):
        film.rewind(number)
    stream = film.container.streams[number]
    film.only([stream])
    try:
        for packet in film.container.demux(stream):
            if packet.size:
                yield packet
    except (FFmpegError, OSError, IndexError):
        return
