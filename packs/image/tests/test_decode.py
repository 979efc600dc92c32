"""Decoding: every format and mode to upright sRGB, what is broken or hostile to `failed`, with a reason."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib

import cv2
import numpy as np
import pyarrow as pa
import pytest
from curator_image.decode import Decode
from curator_image.header import jpeg_quality, read_header
from curator_image.pixels import Limits, decode, scale_down, upright
from curator_image.structure import BadImage
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageCms

from curator.api.errors import ContractError
from curator.api.stage import Context
from curator.api.tasks import Batch
from curator.front import from_source
from curator.io.media.files import Files
from curator.pipeline.plan import make_plan
from curator.stages import Map, ToParquet
from curator.testing import check_stage, run_stage
from packs.image.tests.image_files import chunk, picture, png, saved

LIMITS = Limits(178_956_970)


def files(*data):
    ids = [str(i) for i in range(len(data))]
    return Batch(rows=pa.table({"id": pa.array(ids, pa.string()), "source": pa.array(["a"] * len(data), pa.string()),
                                "bytes": pa.array(data, pa.binary())}))


def one(data, size=None):
    frames = decode(data, size, LIMITS)
    assert len(frames) == 1
    return frames[0]


def fault_of(data, **parameters):
    outputs = run_stage(Decode(**parameters), files(data))
    assert set(outputs) <= {"out", "failed"}
    assert len(outputs["failed"]) == 1
    return outputs["failed"].column("error")[0]


RGB = picture()
PHOTO = Image.fromarray(RGB)
FILES = {
    "jpeg": saved(RGB, "JPEG", quality=90), "progressive": saved(RGB, "JPEG", progressive=True),
    "grey": saved(RGB[..., 0], "JPEG"), "cmyk": saved(PHOTO.convert("CMYK"), "JPEG"),
    "png": saved(RGB, "PNG"), "palette": saved(PHOTO.quantize(128), "PNG"),
    "webp": saved(RGB, "WEBP"), "lossless": saved(RGB, "WEBP", lossless=True),
    "gif": saved(PHOTO.quantize(128), "GIF"), "bmp": saved(RGB, "BMP"), "ppm": saved(RGB, "PPM"),
    "tiff": saved(RGB, "TIFF"), "lzw": saved(RGB, "TIFF", compression="tiff_lzw"), "avif": saved(RGB, "AVIF"),
}
EXACT = {"png", "lossless", "bmp", "tiff", "lzw", "ppm"}
FORMATS = {"progressive": "jpeg", "grey": "jpeg", "cmyk": "jpeg", "palette": "png", "lossless": "webp", "lzw": "tiff"}


@pytest.mark.parametrize("name", FILES)
def test_every_format_is_decoded(name):
    frame = one(FILES[name])
    assert frame.pixels.shape == (60, 80, 3)
    assert frame.pixels.dtype == np.uint8
    assert frame.pixels.flags.c_contiguous
    assert (frame.format, frame.width, frame.height, frame.frames) == (FORMATS.get(name, name), 80, 60, 1)
    assert frame.transparent_ratio == 0
    assert (frame.quality is None) == (frame.format != "jpeg")
    if name in EXACT:
        assert (frame.pixels == RGB).all()
    elif name == "grey":
        assert np.abs(frame.pixels[..., 1].astype(int) - RGB[..., 0]).mean() < 3
    else:
        assert np.abs(frame.pixels.astype(int) - RGB).mean() < 16


@pytest.mark.parametrize("name", ["jpeg", "progressive", "grey", "png", "webp", "bmp"])
def test_pixels_are_those_of_opencv_and_pillow(name):
    expected = cv2.cvtColor(cv2.imdecode(np.frombuffer(FILES[name], np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
    assert (one(FILES[name]).pixels == expected).all()
    by_pillow = np.asarray(Image.open(io.BytesIO(FILES[name])).convert("RGB"))
    assert np.abs(one(FILES[name]).pixels.astype(int) - by_pillow).mean() < 1


def test_the_stage_keeps_its_contract():
    data = files(FILES["jpeg"], None, b"", FILES["gif"], FILES["webp"], b"<html>", FILES["tiff"])
    check_stage(Decode(), data)
    check_stage(Decode(size=20), data)
    check_stage(Decode(frames="all"), data)


def test_columns_and_their_types():
    outputs = run_stage(Decode(), files(FILES["jpeg"], b"", FILES["palette"], None))
    out = outputs["out"]
    assert out.column("id") == ["0", "2"]
    assert [p.shape for p in out.pixels] == [(60, 80, 3)] * 2
    assert out.column("format") == ["jpeg", "png"]
    assert out.column("mode") == ["RGB", "P"]
    assert out.column("jpeg_quality") == [90.0, None]
    types = [out.rows.schema.field(name).type for name in ("width", "frames", "transparent_ratio")]
    assert types == [pa.int32(), pa.int32(), pa.float32()]
    assert outputs["failed"].column("error") == ["empty file", "no bytes"]


def test_long_batches_are_answered_in_parts():
    large = saved(np.zeros((3000, 3000, 3), np.uint8), "PNG")
    stage = Decode()
    data = files(large, b"x", large, large)
    assert len(run_stage(stage, data)["out"]) == 3
    stage.setup(Context())
    assert [sum(map(len, answer.values())) for answer in stage.process(data)] == [3, 1]


def test_a_column_that_holds_no_bytes_is_refused(tmp_path):
    def plan(expression):
        source = Files(path=str(tmp_path))
        make_plan(from_source(source) >> Map(columns={"bytes": expression}) >> Decode() >> ToParquet(path=str(tmp_path / "out")))

    with pytest.raises(ContractError, match="'decode' needs 'bytes' as binary, and here it is string"):
        plan("'text'")
    plan("bytes")


@pytest.mark.parametrize("wrong", [{"size": 0}, {"frames": "some"}, {"max_frames": 0}, {"max_pixels": 0}])
def test_wrong_parameters_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Decode(**wrong)


def test_listing_the_stages_imports_no_image_library():
    code = "import sys, curator_image; print([m for m in ('cv2', 'PIL', 'torch', 'transformers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


# -- modes ------------------------------------------------------------------------------------------------


def test_adobe_cmyk_is_not_a_negative():
    import PIL.JpegImagePlugin as plugin

    data = saved(PHOTO.convert("CMYK"), "JPEG", quality=95)
    assert b"Adobe" in data
    assert plugin.JpegImageFile(io.BytesIO(data)).info["adobe_transform"] is not None
    frame = one(data)
    assert frame.mode == "CMYK"
    assert np.abs(frame.pixels.astype(int) - RGB).mean() < 4


def test_what_is_transparent_stands_over_white():
    rgba = np.dstack([RGB, np.full((60, 80), 255, np.uint8)])
    rgba[:30, :, 3], rgba[30:45, :, 3] = 0, 128
    for kind in ("PNG", "TIFF"):
        frame = one(saved(rgba, kind))
        assert frame.transparent_ratio == pytest.approx(0.75)
        assert frame.mode == "RGBA"
        assert (frame.pixels[:30] == 255).all()
        assert (frame.pixels[45:] == RGB[45:]).all()
        assert np.abs(frame.pixels[30:45] - (RGB[30:45] * 0.5 + 127.5)).max() <= 2
    assert one(saved(rgba, "WEBP", lossless=True)).transparent_ratio == pytest.approx(0.75)
    rgba[..., 3] = 255
    assert one(saved(rgba, "PNG")).transparent_ratio == 0


def test_transparent_colours_of_palettes_and_grey():
    palette = Image.fromarray(np.array([[0, 1], [1, 1]], np.uint8), "P")
    palette.putpalette([10, 20, 30, 200, 100, 50])
    for kind in ("PNG", "GIF"):
        frame = one(saved(palette, kind, transparency=0))
        assert frame.transparent_ratio == 0.25
        assert frame.pixels.tolist() == [[[255] * 3, [200, 100, 50]], [[200, 100, 50]] * 2]
    grey = one(saved(Image.fromarray(np.array([[7, 9]], np.uint8)), "PNG", transparency=7))
    assert grey.pixels[0, :, 0].tolist() == [255, 9]
    assert grey.transparent_ratio == 0.5
    both = np.dstack([np.full((2, 2), 40, np.uint8), np.array([[0, 255], [255, 255]], np.uint8)])
    frame = one(saved(Image.fromarray(both, "LA"), "PNG"))
    assert frame.mode == "LA"
    assert frame.pixels[..., 0].tolist() == [[255, 40], [40, 40]]


def test_sixteen_bits_are_scaled_and_not_clipped():
    values = np.linspace(0, 65535, 80 * 60).reshape(60, 80).astype(np.uint16)
    for kind in ("PNG", "TIFF", "PPM"):
        frame = one(saved(Image.fromarray(values), kind))
        assert (frame.pixels[..., 0] == values >> 8).all()
        assert (frame.pixels[..., 2] == values >> 8).all()
    deep = np.dstack([values, values[::-1], values[:, ::-1]])
    coded = cv2.imencode(".png", deep[..., ::-1])[1].tobytes()
    assert (one(coded).pixels == deep >> 8).all()


def test_floats_and_wide_integers():
    assert scale_down(np.array([[0.0, 0.5, 1.0, np.nan]], np.float32)).tolist() == [[0, 128, 255, 0]]
    assert scale_down(np.array([[-10.0, 0.0, 10.0, np.inf]], np.float32)).tolist() == [[0, 128, 255, 0]]
    assert scale_down(np.array([[5.0, 5.0]], np.float32)).tolist() == [[0, 0]]
    assert scale_down(np.full((1, 2), np.nan, np.float32)).tolist() == [[0, 0]]
    assert scale_down(np.array([[0, 65535]], np.int32)).tolist() == [[0, 255]]
    assert scale_down(np.array([[-100, 0, 1 << 30]], np.int32)).tolist() == [[0, 0, 255]]
    frame = one(saved(Image.fromarray(np.linspace(0, 1, 48).reshape(6, 8).astype(np.float32)), "TIFF"))
    assert frame.mode == "F"
    assert frame.pixels.max() == 255
    assert frame.pixels.min() == 0


def test_bilevel_and_lab():
    bits = Image.fromarray(RGB[..., 0] > 128).convert("1")
    for kind, options in (("TIFF", {"compression": "group4"}), ("PNG", {}), ("PPM", {})):
        assert set(np.unique(one(saved(bits, kind, **options)).pixels)) == {0, 255}
    lab = ImageCms.profileToProfile(PHOTO, ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), outputMode="LAB")
    assert np.abs(one(saved(lab, "TIFF")).pixels.astype(int) - RGB).mean() < 4


# -- orientation and colour ----------------------------------------------------------------------------------


def turned(number):
    """A picture as stored with an orientation, so that it is upright as `RGB`."""
    exif = Image.Exif()
    exif[274] = number
    undo = {6: 8, 8: 6}.get(number, number)
    return Image.fromarray(np.ascontiguousarray(upright(RGB, undo))), exif


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize(("kind", "options"), [("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True}), ("JPEG", {"quality": 95}),
                                               ("AVIF", {"quality": 95})])
def test_orientation_is_applied(number, kind, options):
    image, exif = turned(number)
    data = saved(image, kind, exif=exif, **options)
    frame = one(data)
    assert (frame.width, frame.height) == (80, 60)
    assert frame.pixels.shape == (60, 80, 3)
    assert np.abs(frame.pixels.astype(int) - RGB).mean() < (4 if kind in ("JPEG", "AVIF") else 0.1)
    assert one(data, size=20).pixels.shape == (20, 27, 3)


@pytest.mark.parametrize("number", range(1, 9))
def test_turning_agrees_with_opencv_and_pillow(number):
    image, exif = turned(number)
    data = saved(image, "JPEG", exif=exif)
    by_opencv = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)  # turns by itself
    assert (one(data).pixels == by_opencv[..., ::-1]).all()
    from PIL import ImageOps

    stored = np.asarray(image)
    tagged = Image.fromarray(stored)
    tagged.getexif()[274] = number
    assert (upright(stored, number) == np.asarray(ImageOps.exif_transpose(tagged))).all()


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize("exif", [b"Exif\0\0garbage", b"Exif\0\0II*\0\x08\0\0\0\xff\xff",
                                  b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\x63\0\0"])
def test_broken_exif_leaves_a_picture_as_it_is(exif):
    assert (one(saved(RGB, "JPEG", exif=exif)).width, one(saved(RGB, "PNG", exif=exif)).height) == (80, 60)


def xyz(values):
    return b"XYZ \0\0\0\0" + struct.pack(">3i", *(round(v * 65536) for v in values))


def profile(space, gamma):
    """An ICC profile made by hand: grey, or an RGB space with the primaries of Adobe RGB (adapted to D50), with a gamma."""
    curve = b"curv\0\0\0\0" + struct.pack(">IHH", 1, round(gamma * 256), 0)
    tags = {b"desc": b"desc\0\0\0\0" + struct.pack(">I", 5) + b"test\0" + b"\0" * 79, b"wtpt": xyz((0.9642, 1, 0.8249))}
    if space == b"GRAY":
        tags |= {b"kTRC": curve}
    else:
        tags |= {b"rXYZ": xyz((0.6097, 0.3111, 0.0195)), b"gXYZ": xyz((0.2053, 0.6257, 0.0609)),
                 b"bXYZ": xyz((0.1492, 0.0632, 0.7446)), b"rTRC": curve, b"gTRC": curve, b"bTRC": curve}
    table, body = struct.pack(">I", len(tags)), b""
    for name, data in tags.items():
        table += name + struct.pack(">II", 132 + 12 * len(tags) + len(body), len(data))
        body += data
    head = struct.pack(">I4sI4s4s4s12s4s", 128 + len(table) + len(body), b"", 0x02100000, b"mntr", space, b"XYZ ", b"", b"acsp")
    head = head.ljust(68, b"\0") + struct.pack(">3i", 63190, 65536, 54061)
    return head.ljust(128, b"\0") + table + body


ADOBE = profile(b"RGB ", 2.2)


@pytest.mark.parametrize(("kind", "options"), [("JPEG", {"quality": 95}), ("PNG", {}), ("WEBP", {"lossless": True}),
                                               ("TIFF", {})])
def test_profiles_are_converted_to_srgb(kind, options):
    tagged = saved(RGB, kind, icc_profile=ADOBE, **options)
    plain, told = one(saved(RGB, kind, **options)).pixels, one(tagged).pixels
    source = ImageCms.ImageCmsProfile(io.BytesIO(ADOBE))
    expected = ImageCms.profileToProfile(Image.fromarray(plain), source, ImageCms.createProfile("sRGB"))
    assert (told == np.asarray(expected)).all()
    assert np.abs(told.astype(int) - plain).max() > 20
    assert np.abs(one(tagged, size=30).pixels.astype(int) - cv2.resize(told, (40, 30), interpolation=cv2.INTER_AREA)).mean() < 4


def test_grey_profiles_are_converted_to_srgb():
    """Linear light of 1/4 is 137 in sRGB (IEC 61966-2-1)."""
    for kind in ("PNG", "TIFF", "JPEG"):
        frame = one(saved(np.full((16, 16), 64, np.uint8), kind, icc_profile=profile(b"GRAY", 1.0)))
        assert np.abs(frame.pixels.astype(int) - 137).max() <= 1


def test_srgb_broken_and_foreign_profiles_are_passed_over():
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    for data in (srgb, b"nonsense", b"", ADOBE[:200]):
        assert (one(saved(RGB, "PNG", icc_profile=data)).pixels == RGB).all()
    assert (one(saved(RGB[..., 0], "PNG", icc_profile=ADOBE)).pixels == RGB[..., :1]).all()  # an RGB profile on grey


# -- size ---------------------------------------------------------------------------------------------------


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 200), st.sampled_from(["JPEG", "PNG"]))
def test_the_shorter_side_has_the_size_and_never_grows(width, height, size, kind):
    frame = one(saved(picture(width, height), kind), size)
    rows, columns = frame.pixels.shape[:2]
    assert (frame.width, frame.height) == (width, height)
    assert min(rows, columns) == min(size, width, height)
    scale = min(1, size / min(width, height))
    assert abs(columns - width * scale) <= 0.5001
    assert abs(rows - height * scale) <= 0.5001


@pytest.mark.parametrize("name", ["jpeg", "cmyk", "grey"])
def test_reduced_decoding_is_close_to_averaging(name):
    image = Image.fromarray(picture(640, 480))
    image = image.convert({"cmyk": "CMYK", "grey": "L"}.get(name, "RGB"))
    data = saved(image, "JPEG", quality=95)
    full = one(data).pixels
    for size in (50, 100, 200, 300):
        expected = cv2.resize(full, (round(640 * size / 480), size), interpolation=cv2.INTER_AREA)
        assert np.abs(one(data, size).pixels.astype(int) - expected).mean() < 3


# -- frames ---------------------------------------------------------------------------------------------------


def animation(kind, count=4, **options):
    frames = [Image.fromarray(picture(seed=k)) for k in range(count)]
    return saved(frames[0], kind, save_all=True, append_images=frames[1:], **options)


@pytest.mark.parametrize(("kind", "options"), [("GIF", {}), ("WEBP", {"lossless": True}), ("PNG", {}), ("TIFF", {}),
                                               ("AVIF", {})])
def test_frames_are_records(kind, options):
    data = animation(kind, **options)
    first = run_stage(Decode(), files(data))["out"]
    assert first.column("frames") == [4]
    assert first.column("id") == ["0"]
    assert "bytes" in first.columns
    every = run_stage(Decode(frames="all"), files(data, FILES["png"]))["out"]
    assert every.column("id") == ["0#0", "0#1", "0#2", "0#3", "1#0"]
    assert every.column("parent") == ["0"] * 4 + ["1"]
    assert every.column("frame") == [0, 1, 2, 3, 0]
    assert "bytes" not in every.columns
    assert (every.pixels[0] == first.pixels[0]).all()
    for k in range(4):
        assert np.abs(every.pixels[k].astype(int) - picture(seed=k)).mean() < 16
    if kind in ("WEBP", "PNG", "TIFF"):
        assert all((every.pixels[k] == picture(seed=k)).all() for k in range(4))


def test_pages_of_different_sizes():
    pages = [Image.fromarray(picture(30, 20)), Image.fromarray(picture(50, 70))]
    out = run_stage(Decode(frames="all"), files(saved(pages[0], "TIFF", save_all=True, append_images=pages[1:])))["out"]
    assert [p.shape[:2] for p in out.pixels] == [(20, 30), (70, 50)]
    assert out.column("width") == [30, 50]


def test_frames_are_limited():
    data = animation("GIF")
    assert fault_of(data, frames="all", max_frames=3) == "too many frames: 4 (max_frames 3)"
    assert fault_of(data, frames="all", max_pixels=4 * 4800 - 1).startswith("too many pixels: 4 frames of 80 x 60 (max_pixels")
    assert len(run_stage(Decode(frames="all", max_frames=4, max_pixels=4 * 4800), files(data))["out"]) == 4
    assert len(run_stage(Decode(max_frames=1, max_pixels=4800), files(data))["out"]) == 1


def test_the_second_picture_of_a_jpeg_is_left_alone():
    data = saved(PHOTO, "MPO", save_all=True, append_images=[PHOTO.resize((40, 30))])
    frame = one(data)
    assert (frame.format, frame.frames, frame.width) == ("jpeg", 1, 80)


# -- quality ---------------------------------------------------------------------------------------------------


def test_jpeg_quality_is_what_was_asked_for():
    for quality in range(1, 101):
        for image in (PHOTO, PHOTO.convert("L")):
            data = saved(image, "JPEG", quality=quality)
            assert read_header("jpeg", data, 10**6).quality == quality
        coded = cv2.imencode(".jpg", RGB, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        assert one(coded).quality == quality


def test_jpeg_quality_of_foreign_tables_is_near():
    table = np.array(Image.open(io.BytesIO(saved(PHOTO, "JPEG", quality=75))).quantization[0])
    assert jpeg_quality(tuple(table + 1)) == pytest.approx(75, abs=5)
    assert jpeg_quality(tuple([1] * 64)) == 100
    assert jpeg_quality(tuple([255] * 64)) == 1
    assert jpeg_quality(None) is None


# -- what is broken ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "error"), [
    (b"", "empty file"), (None, "no bytes"), (b"\0", "not an image (unknown content)"),
    (bytes(range(256)), "not an image (unknown content)"),
    (b"  <!DOCTYPE html><html>", "not an image (looks like HTML)"), (b"\xef\xbb\xbf<html>", "not an image (looks like HTML)"),
    (b"<?xml version='1.0'?><svg></svg>", "unsupported image format (SVG)"),
    (b"<svg width='1'/>", "unsupported image format (SVG)"),
    (b"%PDF-1.7", "not an image (looks like PDF)"), (b"%!PS-Adobe-3.0 EPSF-3.0", "not an image (looks like PostScript)"),
    (b"404 Not Found\n", "not an image (looks like text)"), (b"PK\3\4aaaa", "not an image (looks like ZIP)"),
    (b"\0\0\0\x18ftypheic", "unsupported image format (HEIC)"), (b"\0\0\0\x18ftypisom", "not an image (looks like MP4)"),
    (b"8BPS", "unsupported image format (PSD)"), (b"RIFF\0\0\0\0WAVE", "not an image (looks like RIFF)"),
    (b"\xff\xd8\xff", "truncated JPEG: no picture data"), (b"\x89PNG\r\n\x1a\n", "truncated PNG: no end chunk"),
    (b"GIF89a", "truncated GIF: no trailer"), (b"II*\0", "truncated TIFF: a directory lies beyond the end"),
])
def test_what_is_no_image_fails_with_a_reason(data, error):
    assert fault_of(data) == error


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("share", [0.3, 0.6, 0.9, 0.99])
def test_truncated_files_fail(name, share):
    data = FILES[name]
    error = fault_of(data[:int(len(data) * share)])
    assert error.startswith(("truncated ", "broken ")), error
    if name not in ("avif", "bmp", "ppm", "tiff", "lzw"):
        assert error.startswith("truncated")
    assert fault_of(data[:int(len(data) * share)], size=10)


@pytest.mark.parametrize("name", ["jpeg", "progressive", "grey", "cmyk", "png", "gif", "webp"])
def test_a_file_that_lacks_its_last_byte_fails_and_one_with_more_does_not(name):
    assert fault_of(FILES[name][:-1]).startswith("truncated")
    assert (one(FILES[name] + b"\0\0more\xff\xda").pixels == one(FILES[name]).pixels).all()


def test_a_thumbnail_in_exif_does_not_hide_that_the_end_is_missing():
    inner = saved(RGB[:20, :20], "JPEG")
    exif = b"Exif\0\0II*\0\x08\0\0\0\0\0\0\0\0\0" + inner
    data = saved(picture(400, 300), "JPEG", exif=exif)
    assert inner in data
    assert one(data).width == 400
    assert fault_of(data[:len(data) // 2 + len(inner)]) == "truncated JPEG: no end marker"


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_blocks": 4}])
@pytest.mark.parametrize("kind", ["RGB", "L"])
@pytest.mark.parametrize("size", [None, 40])
def test_grey_filler_is_not_taken_for_a_picture(kind, options, size):
    """A scan that breaks off at a marker: the end marker or, where there is one scan only, one that damage has made."""
    data = saved(Image.fromarray(picture(160, 160)).convert(kind), "JPEG", **options)
    start = data.index(b"\xff\xda")
    for marker in (b"\xff\xd9", *([] if "progressive" in options else [b"\xff\xfe\0\2"])):
        cut = start + 40 + (0 if "progressive" in options else (len(data) - start) // 2)
        broken = data[:cut].rstrip(b"\xff") + marker + (b"" if marker == b"\xff\xd9" else data[cut + 4:])
        assert fault_of(broken, size=size) == "truncated JPEG: its data ends before the picture does"
    assert one(data, size).width == 160


def test_a_picture_that_is_grey_is_no_filler():
    flat = np.full((100, 100, 3), 128, np.uint8)
    half = picture(100, 100)
    half[50:] = 128
    for pixels in (flat, half):
        for options in ({}, {"progressive": True}, {"restart_marker_blocks": 3}):
            data = saved(pixels, "JPEG", quality=90, **options)
            assert (one(data).pixels[-1] == 128).all()
            assert (one(data + b"\xff\xd9", 16).pixels[-1] == 128).all()


def test_damaged_png_data_fails():
    data = bytearray(FILES["png"])
    data[data.index(b"IDAT") + 30] ^= 0xFF
    assert fault_of(bytes(data)).startswith("broken PNG")


def test_many_pixels_fail_undecoded():
    assert fault_of(png(30_000, 30_000, chunk(b"IDAT", zlib.compress(b"")))) == (
        "too many pixels: 30000 x 30000 (max_pixels 178,956,970)")
    assert fault_of(png(2**31 - 1, 2**31 - 1)).startswith("too many pixels: 2147483647 x 2147483647")
    assert fault_of(FILES["jpeg"], max_pixels=4799) == "too many pixels: 80 x 60 (max_pixels 4,799)"
    assert len(run_stage(Decode(max_pixels=4800), files(*FILES.values()))["out"]) == len(FILES)
    assert fault_of(b"P6\n99999 99999\n255\n").startswith("too many pixels")
    gif = bytearray(FILES["gif"])
    gif[6:10] = b"\xff\xff\xff\xff"
    assert fault_of(bytes(gif)).startswith("too many pixels")
    webp = b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + b"\xfe\x3f\0" * 2
    assert fault_of(b"RIFF" + struct.pack("<I", len(webp) + 4) + b"WEBP" + webp)


def test_bombs_in_chunks_of_a_png_fail():
    bomb = zlib.compress(b"\0" * (100 << 20))
    pixels = chunk(b"IDAT", zlib.compress(b"\0\0\0\0"))
    for kind in (b"iCCP", b"zTXt"):
        data = png(1, 1, chunk(kind, b"name\0\0" + bomb), pixels)
        outputs = run_stage(Decode(), files(data))
        assert sum(map(len, outputs.values())) == 1


@pytest.mark.parametrize(("data", "error"), [
    (b"\xff\xd8" + b"\xff" * 1_000_000, "broken JPEG: no end of segments"),
    (b"\xff\xd8" + b"\xff\xe0\0\2" * 200_000 + FILES["jpeg"][2:], "broken JPEG: no end of segments"),
    (b"\x89PNG\r\n\x1a\n" + chunk(b"teXt", b"") * 200_000, "broken PNG: no end of chunks"),
    (b"GIF89a\4\0\4\0\0\0\0;", "no pixels: a GIF without a picture"),
], ids=["fill bytes", "empty segments", "empty chunks", "no picture"])  # the bytes would be names of a megabyte
def test_files_of_empty_blocks_fail(data, error):
    assert fault_of(data) == error
    assert fault_of(data, frames="all") == error


def test_a_tiff_whose_directories_go_in_circles_ends():
    data = bytearray(FILES["tiff"])
    first = struct.unpack_from("<I", data, 4)[0]
    entries = struct.unpack_from("<H", data, first)[0]
    struct.pack_into("<I", data, first + 2 + 12 * entries, first)
    assert one(bytes(data)).frames == 1


def answer(data, size, limits):
    """The frames, or the text of the error; anything else that is raised fails the test."""
    try:
        return decode(data, size, limits)
    except BadImage as error:
        return str(error)


def well_formed(found):
    assert found
    for frame in found if isinstance(found, list) else ():
        assert frame.pixels.ndim == 3
        assert frame.pixels.shape[2] == 3
        assert frame.pixels.dtype == np.uint8
        assert 0 <= frame.transparent_ratio <= 1
        assert min(frame.width, frame.height, frame.frames) > 0


@pytest.mark.filterwarnings("ignore")
@given(st.sampled_from(sorted(FILES)), st.data())
def test_mutated_files_get_an_answer(name, data):
    """Whatever becomes of a file, its record is on `out`, well formed, or on `failed`, with a text."""
    mutated = bytearray(FILES[name])
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, min(len(mutated), 700) - 1))
        match data.draw(st.sampled_from(["set", "cut", "repeat", "remove"])):
            case "set":
                mutated[at] = data.draw(st.integers(0, 255))
            case "cut":
                del mutated[max(20, at):]
            case "repeat":
                mutated[at:at] = mutated[at:at + 16]
            case "remove":
                del mutated[at:at + data.draw(st.integers(1, 16))]
        mutated = mutated or bytearray(b"\0")
    size = data.draw(st.sampled_from([None, 30]))
    well_formed(answer(bytes(mutated), size, Limits(1_000_000)))
    well_formed(answer(bytes(mutated), size, Limits(1_000_000, 10)))


@pytest.mark.filterwarnings("ignore")
@given(st.binary(max_size=300), st.sampled_from([b"", b"\xff\xd8\xff", b"GIF89a", b"II*\0", b"MM\0+", b"BM", b"P6 ",
                                                 b"\x89PNG\r\n\x1a\n", b"RIFF\x40\0\0\0WEBPVP8 ", b"\0\0\0\x18ftypavif"]))
def test_random_bytes_get_an_answer(data, start):
    well_formed(answer(start + data, None, Limits(1_000_000, 10)))
