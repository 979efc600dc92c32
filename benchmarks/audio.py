"""Recordings: measures beside the same calls without an engine, a whole recipe, a file of ten hours, Whisper fed by a pipeline, peers.

    python benchmarks/audio.py [--only measure,speech,long,whisper,snr,vad] [--tools ours,data-juicer,nemo-curator]
                               [--recordings FOLDER] [--hours 1] [--long-hours 10] [--windows 32] [--peer-hours 0.25]

Makes a virtual environment for each peer beside this file (once; delete it to get newer ones) with what the package index has.
Results are printed, and written to benchmarks/results/audio.json, which keeps what it has of other rows and tools. Linux; about
ten minutes on two cores. audio_data.py makes the files, from the recordings of --recordings where given, in turn as wav of 16 kHz,
flac and mp3 of 44.1 kHz and opus; all tools read the same ones, and have two workers.

- `measure`: decode to mono of 16 kHz, all measures of `audio.signals`, voice activity by webrtcvad. `bare` calls libsndfile, FFmpeg,
  soxr, the same numpy functions and webrtcvad in a loop; `ours` runs the engine with ledger, accounts and output. Both must find
  the same.
- `speech`: the recipe audio/speech, from files to FLAC in tars; each is decoded again, and each second must be accounted for.
- `long`: the same of one file of ten hours; `MB` is the peak of all processes together (PSS: what they share counts once).
- `whisper`: a Whisper of the size of `tiny` with random weights says 64 tokens of each 30 s. `bare` is the model alone on features in
  memory, with all cores; `ours` reads, decodes and transcribes files.
- `snr`: all that data-juicer has for sound: duration, size, and a signal to noise ratio; ours by another formula.
- `vad`: of NeMo Curator what needs no GPU and no download: one channel, voice activity by silero, bandwidth.

Two runs each but for `long`, of a quarter of the recordings and of all. `x real time` is seconds of audio a second, of all, start and
end of the process included; `more` is what the second run had more by what it took longer: the rate at which a long run goes;
`h/CPU-h` the same by the processor time of all processes: hours of audio an hour of one core.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import tempfile
from pathlib import Path
from typing import Any

import audio_data
import peers
from engine import REAP

HERE = Path(__file__).resolve().parent
ROWS = ("measure", "speech", "long", "whisper", "snr", "vad")
BESIDE = {"snr": "data-juicer", "vad": "nemo-curator"}
PACKAGES = {"data-juicer": ("py-data-juicer", "aiohttp", "soundfile", "librosa", "av", "samplerate>=0.2"),
            "nemo-curator": ("nemo-curator", "soundfile", "librosa", "pydub", "silero-vad", "torchaudio")}
LIMIT_S = 1800
WORKERS = 2
CLOSE = {"duration": 0.01, "loudness": 0.05, "snr_db": 0.5, "bandwidth": 70.0}  # ours and bare: decoders round differently


def call(tool: str, task: str, sounds: Path, *, memory: bool = False) -> dict[str, Any]:
    job = {"sounds": str(sounds), "workers": WORKERS}
    return peers.call("audio", tool, PACKAGES.get(tool, ()), task, job, LIMIT_S, memory=memory)


def rated(tool: str, task: str, quarter: Path, whole: Path) -> dict[str, Any]:
    """Rates of a task: of the larger run, and of what it had more than the smaller one; a first run warms the disk's cache."""
    _, small, large = (call(tool, task, sounds) for sounds in (quarter, quarter, whole))
    if "error" in small or "error" in large:
        return small if "error" in small else large
    more = large["audio_s"] - small["audio_s"]
    return large | {"real_time": large["audio_s"] / large["seconds"],
                    "more": more / max(1e-9, large["seconds"] - small["seconds"]),
                    "hours_a_cpu_hour": more / max(1e-9, large["cpu_s"] - small["cpu_s"])}


def measure(quarter: Path, whole: Path) -> dict[str, dict[str, Any]]:
    found = {"bare": rated("ours", "bare", quarter, whole), "ours": rated("ours", "measure", quarter, whole)}
    if not any("error" in told for told in found.values()):
        one, other = (found[name]["found"] for name in ("bare", "ours"))
        far = [f"{name}: {key} is {other[name][key]} and {one[name][key]}" for name in one for key, most in CLOSE.items()
               if abs(one[name][key] - other[name][key]) > most]
        spoken = [sum(told[name]["speech_seconds"] for name in told) for told in (one, other)]
        if far or one.keys() != other.keys() or not 0.8 < spoken[0] / spoken[1] < 1.25:  # the stage levels, gates and pads
            found["ours"] = {"error": f"finds something else: {far[:3]}, speech {spoken}"}
    return found


def speech(quarter: Path, whole: Path) -> dict[str, dict[str, Any]]:
    told = rated("ours", "speech", quarter, whole)
    return {"ours": told if "error" in told else told | accounted(told)}


def long(path: Path) -> dict[str, dict[str, Any]]:
    told = call("ours", "speech", path, memory=True)
    if "error" in told:
        return {"ours": told}
    rates = {"real_time": told["audio_s"] / told["seconds"], "more": told["audio_s"] / told["seconds"],
             "hours_a_cpu_hour": told["audio_s"] / told["cpu_s"]}
    return {"ours": told | rates | accounted(told)}


def accounted(told: dict[str, Any]) -> dict[str, Any]:
    """An error where a second of the recordings is nowhere, or what was written is not what its row says."""
    total = sum(told["told"]["segment"].values()) / 1000
    if abs(total - told["audio_s"]) > 0.01 * total or told["wrong"] or abs(told["written_s"] - told["told_s"]) > 0.01 * total:
        return {"error": f"of {told['audio_s']} s {total} are accounted for; {told['wrong']} files are not what their rows say"}
    return {}


def whisper(quarter: Path, whole: Path) -> dict[str, dict[str, Any]]:
    """The bare model, and ours beside it, by windows of 30 s."""
    alone, fed = rated("ours", "bare_model", quarter, whole), rated("ours", "whisper", quarter, whole)
    if "error" not in alone:
        alone |= {"more": alone["audio_s"] / alone["model_s"], "hours_a_cpu_hour": alone["audio_s"] / alone["model_cpu_s"]}
    if "error" not in fed:
        by = 30 * fed["windows"] / fed["audio_s"]  # the model hears windows of 30 s, whatever is in them
        fed |= {name: fed[name] * by for name in ("real_time", "more", "hours_a_cpu_hour")}
    return {"bare": alone, "ours": fed}


def show(name: str, told: dict[str, Any], first: dict[str, Any] | None = None) -> None:
    if "error" in told:
        print(f"  {name:14} {told['error']}", flush=True)
        return
    figures = "".join(f"{told[key]:14,.1f}" for key in ("seconds", "cpu_s", "real_time", "more", "hours_a_cpu_hour"))
    more = f"{told['peak_mb']:10,.0f} MB" if "peak_mb" in told else ""
    if first and "error" not in first:
        more = "".join(f"{told[key] / first[key]:10.2f}" for key in ("more", "hours_a_cpu_hour"))
    print(f"  {name:14}{figures}{more}", flush=True)


def rows(told: argparse.Namespace, place: Path) -> Any:
    """(row, tool), figures."""
    asked = told.only.split(",")
    seconds, minutes = told.hours * 3600, told.hours * 60 / 16
    heads = "".join(f"{head:>14}" for head in ("seconds", "CPU-s", "x real time", "more", "h/CPU-h"))
    for row in asked:
        print(f"{row}, {WORKERS} workers\n{'':16}{heads}  of the first", flush=True)
        if row == "long":
            found = long(audio_data.make_long(place / "long" / "long.wav", told.long_hours, told.recordings).parent)
            shutil.rmtree(place / "long")
        elif row == "whisper":
            counts = [told.windows // 4, told.windows]
            found = whisper(*(audio_data.make(place / f"windows-{n}/sounds", 28.0 * n, told.recordings, 28 / 60,
                                              formats=(("wav", 16_000),)) for n in counts))
        else:
            by = told.peer_hours / told.hours if row in BESIDE else 1
            sounds = [audio_data.make(place / f"hours-{by * part}", seconds * by * part, told.recordings, minutes * by)
                      for part in (0.25, 1)]
            if row in BESIDE:
                found = {tool: rated(tool, row, *sounds) for tool in ("ours", BESIDE[row]) if tool in told.tools.split(",")}
            else:
                found = {"measure": measure, "speech": speech}[row](*sounds)
        first = next(iter(found.values()))
        for tool, figures in found.items():
            show(tool, figures, None if figures is first else first)
            yield (row, tool), figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(ROWS), help="rows")
    parser.add_argument("--tools", default="ours,data-juicer,nemo-curator", help="of the rows snr and vad")
    parser.add_argument("--recordings", type=Path, help="a folder of recorded speech; by default it is made")
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--long-hours", type=float, default=10.0)
    parser.add_argument("--peer-hours", type=float, default=0.25, help="of the rows snr and vad")
    parser.add_argument("--windows", type=int, default=32)
    told = parser.parse_args()
    ctypes.CDLL(None).prctl(REAP, 1, 0, 0, 0)
    place = Path(tempfile.mkdtemp(prefix="audio"))
    try:
        peers.keep("audio", rows(told, place))
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
