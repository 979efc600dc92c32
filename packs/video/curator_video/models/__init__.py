"""What models say of clips."""

from curator_video.models.caption import Caption
from curator_video.models.caption_server import CaptionServer
from curator_video.models.embed import Embed
from curator_video.models.enhance import Enhance
from curator_video.models.text_match import TextMatch

STAGES: tuple[type, ...] = (Embed, TextMatch, Caption, CaptionServer, Enhance)
