"""Video stages for Curator: probing, shots, clips, motion, measures, hashes, previews, models, writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from curator.stages.late import attributes

# Each by its name, as `module:Class`: who asks for one imports that module alone.
STAGES = {
    "files": "curator_video.read.files:VideoFiles",
    "manifest": "curator_video.read.manifest:Manifest",
    "probe": "curator_video.read.probe:Probe",
    "decode": "curator_video.read.decode:Decode",
    "parts": "curator_video.shots.parts:Parts",
    "shots": "curator_video.shots.shots:Shots",
    "transnet": "curator_video.shots.transnet:Transnet",
    "stride": "curator_video.shots.stride:Stride",
    "spans": "curator_video.shots.spans:Spans",
    "clips": "curator_video.once.clips:Clips",
    "cut": "curator_video.clips.cut:Cut",
    "frames": "curator_video.clips.frames:Frames",
    "audio": "curator_video.clips.audio:Audio",
    "preview": "curator_video.clips.preview:Preview",
    "motion": "curator_video.measures.motion:Motion",
    "overlay": "curator_video.measures.overlay:Overlay",
    "signals": "curator_video.measures.signals:Signals",
    "sound_level": "curator_video.measures.sound_level:SoundLevel",
    "vectors": "curator_video.measures.vectors:Vectors",
    "hash": "curator_video.copies.hash:Hash",
    "embed": "curator_video.models.embed:Embed",
    "text_match": "curator_video.models.text_match:TextMatch",
    "caption": "curator_video.models.caption:Caption",
    "caption_server": "curator_video.models.caption_server:CaptionServer",
    "enhance": "curator_video.models.enhance:Enhance",
    "to_nemo": "curator_video.write.to_nemo:ToNemo",
}

if TYPE_CHECKING:
    from curator_video.clips.audio import Audio as Audio
    from curator_video.clips.cut import Cut as Cut
    from curator_video.clips.frames import Frames as Frames
    from curator_video.clips.preview import Preview as Preview
    from curator_video.copies.hash import Hash as Hash
    from curator_video.measures.motion import Motion as Motion
    from curator_video.measures.overlay import Overlay as Overlay
    from curator_video.measures.signals import Signals as Signals
    from curator_video.measures.sound_level import SoundLevel as SoundLevel
    from curator_video.measures.vectors import Vectors as Vectors
    from curator_video.models.caption import Caption as Caption
    from curator_video.models.caption_server import CaptionServer as CaptionServer
    from curator_video.models.embed import Embed as Embed
    from curator_video.models.enhance import Enhance as Enhance
    from curator_video.models.text_match import TextMatch as TextMatch
    from curator_video.once.clips import Clips as Clips
    from curator_video.read.decode import Decode as Decode
    from curator_video.read.files import VideoFiles as VideoFiles
    from curator_video.read.manifest import Manifest as Manifest
    from curator_video.read.probe import Probe as Probe
    from curator_video.shots.parts import Parts as Parts
    from curator_video.shots.shots import Shots as Shots
    from curator_video.shots.spans import Spans as Spans
    from curator_video.shots.stride import Stride as Stride
    from curator_video.shots.transnet import Transnet as Transnet
    from curator_video.write.to_nemo import ToNemo as ToNemo
else:
    __getattr__, __dir__ = attributes(__name__, STAGES)
