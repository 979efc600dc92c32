"""Scores of a recording that need no model.

Ratios are shares of what their name says, 0 to 1. dBFS: relative to a sample of 1, so that a sine that just fits has an
`rms_db` of -3.01.

| column | what | unit, range | source |
| --- | --- | --- | --- |
| peak_db | highest sample of any channel | dBFS; 0 is full scale | |
| rms_db | mean square, of all channels together | dBFS | |
| crest_db | peak_db - rms_db: 3 a sine, 10 to 20 speech | dB, 0 and more | |
| clipped_ratio | samples in flat tops: runs of 2 and more on the highest or lowest value, with a step beside them | 0 to 1 | |
| dc_offset | mean, of the channel where it is farthest from 0 | -1 to 1 | |
| zero_ratio | samples that are exactly 0 | 0 to 1 | |
| silence_ratio | frames of 20 ms below -50 dBFS | 0 to 1 | |
| dropouts | holes of 2 to 500 ms in sound, of zeros or a held value, where the wave breaks off | count | |
| loudness | integrated loudness, K weighting, gates of -70 LUFS and -10 LU | LUFS | ITU-R BS.1770-4 |
| loudness_range | from the 10th to the 95th percentile of windows of 3 s | LU, 0 and more | EBU Tech 3342 |
| true_peak | the highest value at four times the rate | dBTP; above 0 it clips when converted | BS.1770-4, annex 2 |
| snr_db | signal to noise, from the distribution of amplitudes (WADA), without exact zeros | dB, -20 to 100 | Kim and Stern 2008 |
| snr_range | from the 10th to the 95th percentile of the level of frames of 20 ms, without those that are all zeros | dB | |
| hum_ratio | lasting power from 10 to 500 Hz within 2 Hz of 50 or 60 Hz and 3 harmonics | 0 to 1 | |
| bandwidth | the highest frequency within 50 dB of the strongest one, of the mean power | Hz | NeMo SDP, changed |
| rolloff | frequency with 85% of the power below it | Hz | Scheirer and Slaney 1997 |
| centroid | mean frequency, by power | Hz | Scheirer and Slaney 1997 |
| flatness | geometric / arithmetic mean of the power below 4 kHz; tones 0, white noise 0.56 | 0 to 1 | Gray and Markel 1974 |
| flux_std | deviation, within seconds, of the change from frame to frame, each of length 1 | 0 to 1 | Scheirer and Slaney 1997 |
| zcr | changes of sign, a sample | 0 to 1 | Saunders 1996 |
| zcr_std | deviation, within seconds, of those of frames of 20 ms | 0 to 0.5 | Saunders 1996 |
| low_energy_ratio | frames of 20 ms of less than half the mean level of their second | 0 to 1 | Scheirer and Slaney 1997 |
| modulation_4hz | changes of the level 3 to 5 times a second among all, as syllables make them | 0 to 1 | Scheirer and Slaney 1997 |
| kind_guess | `speech`, `music`, `noise` or `silence`: a guess by flatness and the columns of rhythm above | | |
| decay_s | time for 60 dB at the pace at which sound fades, lower quartile of decays, 200 to 3800 Hz | s | Wen et al. 2008, changed |
| stereo_correlation | of the first two channels: 1 the same, -1 cancel each other in a mix | -1 to 1 | |
| fake_stereo | all channels are the same, to -60 dB | bool | |

Null: all where there are no samples, no rate, or values that are not finite; levels in dB of digital silence; loudness of
less than 0.4 s, its range of less than 3 s, both of silence below -70 LUFS and of rates below 4 kHz; snr_db with less than
1,600 samples that are not 0; hum_ratio of less than half a second; what looks at frequencies where no frame of 32 ms is above
-60 dBFS; what looks at seconds where no whole second is; kind_guess also where its votes do not agree; both of stereo for
one channel and for digital silence; decay_s with less than ten decays and for rates below 8 kHz.

Channels. Levels, zeros and clipping count all channels, loudness adds them as BS.1770 says, dropouts are those of the worst
channel. All else is the mean over the channels, of powers and never of the waves, so that nothing cancels out.

Measure before you resample. `clipped_ratio` finds clipping also after the level was changed, and none in pure tones, but not
after a resampling or an encoder that loses something, which bend flat tops; `dropouts`, four in five of the gaps of 20 ms
that lost packets leave in speech, but not after a resampling either; `bandwidth` is at most half of the rate. A synthesiser
that cuts its sounds together has dropouts, too.

`hum_ratio` of clean speech is 0.05, up to 0.22, of music up to 0.16; with hum of 20 dB below speech 0.5, of 15 dB 0.75.

`snr_db` takes speech to be distributed as Gamma(0.4) and the noise as Gaussian: music, tones and noise have no meaning there
(a tone has -20). Recorded prompts of 3 s and more with noise at 0, 10, 20 and 30 dB have a median of -2, 8, 16 and 23, and
four in five lie within 3 dB of it up to 20 dB; with babble of other speakers 5, 11, 20 and 27. Exact zeros are left out, as
Kim and Stern do not: a padded recording would count as clean.

`bandwidth` skips frames below -60 dBFS, and what lies below four times the power of rounding to 16 bits; frames are not
padded, as they are where the original answers 24 kHz for any noise of one second. It answers up to four bins (125 Hz) too
high, and follows the skirt of a gentle filter.

`kind_guess`: of 147 pieces of ten seconds of recorded prompts 141 are called speech, 5 nothing and 1 music; of 108 of music
105, 2 nothing and 1 speech. They are clean: speech over music, and in noise of 10 dB, mostly has no guess, and low rumble
counts as music. For more there are models.

`decay_s` is a blind estimate of reverberation, of speech only: it fades as fast as the speaker and the room let it. In
artificial rooms (noise that decays exponentially, 3 dB above the direct sound) of 0, 0.2, 0.4, 0.6, 0.8 and 1.2 s prompts have
0.22, 0.29, 0.45, 0.58, 0.63 and 0.70, all of 10 s within 0.05 of it up to 0.8 s; synthesised speech differs by less. With noise
at 20 dB dry speech has 0.34, the others the same. So below 0.3 a recording is dry, above 0.5 it is not, and from 0.8 s on
rooms are not told apart. No real rooms were measured. Wen et al. take the spread of the slopes rather than a quartile.

Kim and Stern: Interspeech 2008. Saunders: ICASSP 1996. Scheirer and Slaney: ICASSP 1997. Gray and Markel: IEEE Trans. ASSP
22(3). Wen, Habets and Naylor: ICASSP 2008. What has no source is our own.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from curator.api.names import chosen
from curator.api.stage import Context, Contract, Stage
from curator.api.tasks import AudioBatch

COLUMNS: dict[str, pa.DataType] = dict.fromkeys((
    "peak_db", "rms_db", "crest_db", "clipped_ratio", "dc_offset", "zero_ratio", "silence_ratio", "dropouts", "loudness",
    "loudness_range", "true_peak", "snr_db", "snr_range", "hum_ratio", "bandwidth", "rolloff", "centroid", "flatness", "flux_std",
    "zcr", "zcr_std", "low_energy_ratio", "modulation_4hz", "kind_guess", "decay_s", "stereo_correlation", "fake_stereo",
), pa.float32()) | {"dropouts": pa.int32(), "decay_s": pa.float64(), "kind_guess": pa.string(), "fake_stereo": pa.bool_()}


@dataclass(kw_only=True)
class Signals(Stage):
    """Measure a recording without a model: levels, clipping, gaps, loudness, noise, hum, bandwidth, kind of sound, stereo.

    Adds the columns of the table in `curator_audio.measures.signals`. Decide on them with `drop`, by the packaged rule set
    `audio/quality`, `audio/speech` or `audio/tts` or conditions of your own. Null where there are no samples, or too few.

    `only`: the columns to add; None for all. What is left out is not computed, though columns that come of one computation
    cost what one of them does: those of the spectrum, of loudness, of rhythm.
    """

    only: list[str] | None = None

    sparse = ("clipped_ratio", "zero_ratio", "dropouts", "stereo_correlation", "fake_stereo", "loudness_range")

    def __post_init__(self) -> None:
        chosen(self.only, COLUMNS)  # raises where it names what is none

    def contract(self) -> Contract:
        return Contract(needs={"samples": None, "sample_rate": pa.int32()},
                        adds=chosen(self.only, COLUMNS))

    def setup(self, ctx: Context) -> None:
        from curator_audio.measures.measured import measure

        self._measure = measure

    def process(self, batch: AudioBatch) -> AudioBatch:
        wanted = self.contract().adds
        measured = [self._measure(samples, rate, wanted) for samples, rate
                    in zip(batch.samples or [None] * len(batch), batch.column("sample_rate"), strict=True)]
        return batch.with_columns({name: pa.array([of_one[name] for of_one in measured], kind) for name, kind in wanted.items()})
