"""What models say of clips."""

from curator_video.models.embed import Embed
from curator_video.models.text_match import TextMatch

STAGES: tuple[type, ...] = (Embed, TextMatch)
