"""Whether a recording is speech, music, noise or silence: a guess."""

from __future__ import annotations

from curator_audio.measures.levels import Values, silence
from curator_audio.measures.rhythm import crossings, envelope
from curator_audio.measures.spectrum import texture
from curator_audio.measures.views import Views

# What divides 147 pieces of recorded prompts from 108 of music, ten seconds each, and how wide the border is. Areas under the
# curve: .999, .986, .950, .830.
CUTS = {"zcr_std": (0.085, 0.03), "low_energy_ratio": (0.325, 0.1), "flux_std": (0.2115, 0.04), "modulation_4hz": (0.26, 0.1)}
SILENT_RATIO = 0.95
NOISY = 0.1              # flatness: of the music 0.03 in 19 of 20 pieces, of pink noise 0.2
DECIDED = 0.15           # how far the mean of the votes must be from one half
COMMON_RATE = 16_000     # speech has few crossings above what this rate holds: at higher ones they are fewer a sample


def kind(views: Views) -> Values:
    """Four features vote; None where they do not agree, and where the recording is too short for them."""
    if float(views.once(silence)["silence_ratio"] or 0) >= SILENT_RATIO:
        return {"kind_guess": "silence"}
    found = {name: value for made in (crossings, envelope, texture) for name, value in views.once(made).items()}
    if any(found[name] is None for name in (*CUTS, "flatness")):
        return {"kind_guess": None}
    found["zcr_std"] = float(found["zcr_std"] or 0) * max(1.0, views.rate / COMMON_RATE)
    votes = [min(1.0, max(0.0, 0.5 + (float(found[name] or 0) - cut) / width)) for name, (cut, width) in CUTS.items()]
    score = sum(votes) / len(votes)
    if abs(score - 0.5) < DECIDED:
        return {"kind_guess": None}
    if score > 0.5:
        return {"kind_guess": "speech"}
    return {"kind_guess": "noise" if float(found["flatness"] or 0) > NOISY else "music"}
