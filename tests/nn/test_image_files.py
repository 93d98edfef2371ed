"""Images as Pillow reads them: each mode, depth and byte order becomes the right bytes, or is refused by name."""

import struct
import zlib

import numpy as np
import pytest
from PIL import Image

import quantarray as qa

HEIGHT, WIDTH = 6, 4
RNG = np.random.default_rng(0)
WIDE = RNG.integers(0, 65536, (HEIGHT, WIDTH)).astype(np.uint16)
GREY = (WIDE >> 8).astype(np.uint8)
COLOUR16 = RNG.integers(0, 65536, (HEIGHT, WIDTH, 3)).astype(">u2")
COLOUR = (COLOUR16 >> 8).astype(np.uint8)
ALPHA = RNG.integers(0, 255, (HEIGHT, WIDTH)).astype(np.uint8)


def read(path, channels):
    """The bytes [h w c] that `predict` gives a network of `channels`."""
    values = [qa.nn.Value(name, (1, HEIGHT, WIDTH, channels), "uint8") for name in "xy"]
    graph = qa.nn.Graph(values[:1], values[1:], [qa.nn.Node("Identity", ("x",), ("y",))], {})
    return graph.predict(path).values[0]


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(path, a, colour, transparent=None):
    """Write a PNG of 16 bits, big endian, which Pillow writes of grey images only. colour: 2 RGB, 4 grey and alpha."""
    header = struct.pack(">IIBBBBB", a.shape[1], a.shape[0], 16, colour, 0, 0, 0)
    data = chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in a)))
    extra = b"" if transparent is None else chunk(b"tRNS", np.asarray(transparent, ">u2").tobytes())
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + data + chunk(b"IEND", b""))


def tiff(path, pixels, bits, samples=1, interpretation=1):
    """Write an uncompressed TIFF, little endian, of depths that Pillow reads but does not write."""
    end = 8 + len(pixels)  # of the pixels, where the directory begins; it is followed by the bits of each sample
    many = end + 2 + 12 * 10 + 4
    tags = [
        (256, 3, 1, WIDTH), (257, 3, 1, HEIGHT), (258, 3, samples, bits if samples == 1 else many), (259, 3, 1, 1),
        (262, 3, 1, interpretation), (273, 4, 1, 8), (277, 3, 1, samples), (278, 3, 1, HEIGHT),
        (279, 4, 1, len(pixels)), (284, 3, 1, 1),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", *tag) for tag in tags) + bytes(4)
    depths = np.full(samples, bits, "<u2").tobytes()
    path.write_bytes(b"II*\0" + struct.pack("<I", end) + pixels + struct.pack("<H", len(tags)) + entries + depths)


def packed_12(a):
    text = "".join(f"{v:012b}" for v in a.reshape(-1))
    return int(text, 2).to_bytes(len(text) // 8, "big")


def save(a, mode=None, **options):
    def write(path):
        image = Image.fromarray(a)
        (image if mode is None else image.convert(mode)).save(path, **options)

    return write


GREYS = {
    "L.png": save(GREY),
    "inverted.tif": save(GREY, tiffinfo={262: 0}),  # Pillow writes and reads 255 - byte
    "LA.png": save(GREY, "LA"),
    "LA.tif": save(GREY, "LA"),
    "RGB.png": save(GREY, "RGB"),
    "RGBA.webp": save(GREY, "RGBA", lossless=True),
    "I;16.png": save(WIDE),
    "I;16.tif": save(WIDE),
    "I;16B.tif": save(WIDE.astype(">u2")),
    "I;16.jp2": save(WIDE),
    "I.pgm": save(WIDE.astype(np.int32)),
    "12 bits.tif": lambda path: tiff(path, packed_12(WIDE >> 4), 12),
    "LA 16 bits.png": lambda path: png(path, np.dstack([WIDE, np.full_like(WIDE, 65535)]).astype(">u2"), 4),
    "unused transparency.png": save(GREY, transparency=int(np.setdiff1d(np.arange(256), GREY)[0])),
    "unused transparency of 16 bits.png": save(WIDE, transparency=int(np.setdiff1d(np.arange(65536), WIDE)[0])),
}
COLOURS = {
    "RGB.png": save(COLOUR),
    "RGB.bmp": save(COLOUR),
    "RGB.ico": save(COLOUR),
    "RGBA.png": save(COLOUR, "RGBA"),
    "RGBA.tif": save(COLOUR, "RGBA"),
    "RGBX.tif": save(COLOUR, "RGBX"),
    "CMYK.tif": save(COLOUR, "CMYK"),
    "RGB 16 bits.png": lambda path: png(path, COLOUR16, 2),
    "RGB 16 bits.tif": lambda path: tiff(path, COLOUR16.astype("<u2").tobytes(), 16, 3, 2),
}


@pytest.mark.parametrize("name", GREYS)
def test_grey_images(name, tmp_path):
    GREYS[name](tmp_path / name)
    np.testing.assert_array_equal(read(tmp_path / name, 1)[..., 0], GREY)
    np.testing.assert_array_equal(read(tmp_path / name, 3), np.repeat(GREY[..., None], 3, axis=2))


@pytest.mark.parametrize("name", COLOURS)
def test_colour_images(name, tmp_path):
    COLOURS[name](tmp_path / name)
    np.testing.assert_array_equal(read(tmp_path / name, 3), COLOUR)
    luma = COLOUR @ [0.299, 0.587, 0.114]
    assert abs(read(tmp_path / name, 1)[..., 0] - luma).max() <= 1


@pytest.mark.parametrize("name", ["white is 0.tif", "white is 0, big.tif"])
def test_16_bits_whose_zero_is_white(name, tmp_path):
    """Pillow inverts bytes, and leaves wider values as they are."""
    if "big" in name:
        image = Image.fromarray(WIDE)
        image.save(tmp_path / name, tiffinfo={262: 0, 274: 3})  # turned around, too
        expected = 255 - GREY[::-1, ::-1]
    else:
        tiff(tmp_path / name, WIDE.astype("<u2").tobytes(), 16, interpretation=0)
        expected = 255 - GREY
    np.testing.assert_array_equal(read(tmp_path / name, 1)[..., 0], expected)


@pytest.mark.parametrize("mode", ["1", "P", "PA"])
@pytest.mark.parametrize("transparent", [False, True])
def test_bits_and_palettes(mode, transparent, tmp_path):
    image = Image.fromarray(COLOUR).convert(mode)
    expected = np.asarray(image.convert("RGB"))
    if transparent:
        unused = np.setdiff1d(np.arange(256), np.asarray(image.convert("P")))
        image.info["transparency"] = int(unused[-1]) if mode == "P" else None
    image.save(tmp_path / "x.tif")
    if mode != "PA":
        image.save(tmp_path / "x.png")
    for path in tmp_path.iterdir():
        np.testing.assert_array_equal(read(path, 3), expected)


@pytest.mark.parametrize(("mode", "most"), [("YCbCr", 4), ("LAB", 8)])
def test_other_colour_spaces(mode, most, tmp_path):
    """Colours come back except for rounding to bytes; no colours outside sRGB's LAB are drawn."""
    a = np.clip(COLOUR, 96, 160)
    save(a, mode)(tmp_path / "x.tif")
    assert abs(read(tmp_path / "x.tif", 3).astype(int) - a).max() <= most
    assert abs(read(tmp_path / "x.tif", 1)[..., 0] - a @ [0.299, 0.587, 0.114]).max() <= most


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("name", ["x.png", "x.tif", "x.webp", "wide.png", "wide.tif", "big.tif"])
def test_orientations(name, orientation, tmp_path):
    """Images are turned upright, those of 16 bits too. The oracle is what each orientation says of rows and columns."""
    a = {"x": COLOUR, "wide": WIDE, "big": WIDE.astype(">u2")}[name.split(".")[0]]
    stored = {
        1: a, 2: a[:, ::-1], 3: a[::-1, ::-1], 4: a[::-1], 5: a.swapaxes(0, 1), 6: a.swapaxes(0, 1)[::-1],
        7: a[::-1, ::-1].swapaxes(0, 1), 8: a.swapaxes(0, 1)[:, ::-1],
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[274] = orientation
    options = {"lossless": True} if name.endswith("webp") else {}
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / name, exif=exif, **options)
    channels, expected = (3, COLOUR) if a is COLOUR else (1, GREY[..., None])
    np.testing.assert_array_equal(read(tmp_path / name, channels), expected)


def several(**options):
    others = [Image.fromarray(255 - COLOUR)]
    return save(COLOUR, save_all=True, append_images=others, **options)


def transparent_palette(path):
    image = Image.fromarray(COLOUR).convert("P")
    image.save(path, transparency=int(np.asarray(image)[0, 0]))


NO_RANGE, CLEAR, MANY = "no range that a {} file says; save it with bytes", "is transparent in places", "holds 2 images"
REFUSED = {
    "I.tif": (save(WIDE.astype(np.int32)), "'I', 32-bit integers of " + NO_RANGE.format("TIFF")),
    "F.tif": (save(WIDE.astype(np.float32)), "'F', floats of " + NO_RANGE.format("TIFF")),
    "F.pfm": (save(WIDE.astype(np.float32)), "'F', floats of " + NO_RANGE.format("PPM")),
    "signed.tif": (save(GREY, tiffinfo={339: 2}), "'L', signed numbers of " + NO_RANGE.format("TIFF")),
    "signed wide.tif": (save(WIDE.astype(np.int32), "I", tiffinfo={339: 2}), "'I', 32-bit integers of "),
    "RGBA.png": (save(np.dstack([COLOUR, ALPHA])), CLEAR),
    "RGBA.tif": (save(np.dstack([COLOUR, ALPHA])), CLEAR),
    "RGBA.webp": (save(np.dstack([COLOUR, ALPHA])), CLEAR),
    "LA.png": (save(np.dstack([GREY, ALPHA])), CLEAR),
    "LA 16 bits.png": (lambda path: png(path, np.dstack([WIDE, WIDE // 2]).astype(">u2"), 4), CLEAR),
    "P.png": (transparent_palette, CLEAR),
    "P.gif": (transparent_palette, CLEAR),
    "P with alphas.png": (save(COLOUR, "P", transparency=bytes(range(0, 256, 2))), CLEAR),
    "L with a transparent grey.png": (save(GREY, transparency=int(GREY[2, 1])), CLEAR),
    "RGB with a transparent colour.png": (save(COLOUR, transparency=tuple(map(int, COLOUR[0, 0]))), CLEAR),
    "I;16 with a transparent grey.png": (save(WIDE, transparency=int(WIDE[0, 1])), CLEAR),
    "RGB 16 bits with a transparent colour.png": (lambda path: png(path, COLOUR16, 2, COLOUR16[1, 1]), CLEAR),
    "moving.gif": (several(), MANY),
    "moving.png": (several(), MANY),
    "moving.webp": (several(lossless=True), MANY),
    "pages.tif": (several(), MANY),
}


@pytest.mark.parametrize("name", REFUSED)
def test_images_without_clear_bytes(name, tmp_path):
    """Such images are refused by name, in a folder and as single files, by every network."""
    write, text = REFUSED[name]
    write(tmp_path / name)
    for path in (tmp_path, tmp_path / name, [tmp_path / name]):
        for channels in (1, 3):
            with pytest.raises(ValueError) as error:
                read(path, channels)
            said = str(error.value)
            assert said.startswith(f"predict: {tmp_path / name} ") and text in said and "save" in said


def test_photographs_of_several_images(tmp_path):
    """Cameras write a JPEG with a preview after it: the first is the photograph."""
    grey = np.full((HEIGHT, WIDTH, 3), 99, np.uint8)
    others = [Image.fromarray(255 - grey)]
    Image.fromarray(grey).save(tmp_path / "x.mpo", save_all=True, append_images=others)
    with Image.open(tmp_path / "x.mpo") as opened:
        assert opened.format == "MPO" and opened.n_frames == 2
    assert abs(read(tmp_path / "x.mpo", 3).astype(int) - grey).max() <= 2


def test_a_damaged_image(tmp_path):
    save(WIDE)(tmp_path / "x.png")
    data = (tmp_path / "x.png").read_bytes()
    for end in (1, 20, 60, len(data) // 2):
        (tmp_path / "x.png").write_bytes(data[:end])
        with pytest.raises(ValueError, match=r"predict: .*x\.png is no image that Pillow reads"):
            read(tmp_path / "x.png", 1)


def test_files_of_a_folder_that_pillow_only_writes(tmp_path):
    """A PDF is no image of the folder."""
    save(GREY)(tmp_path / "x.png")
    Image.fromarray(GREY).save(tmp_path / "x.pdf")
    assert read(tmp_path, 1).shape == (HEIGHT, WIDTH, 1)


def test_the_command_line(tmp_path, capsys):
    from quantarray.cli import main

    side = np.full((8, 8), 20000, np.uint16)
    Image.fromarray(side).save(tmp_path / "wide.png")
    Image.fromarray((side >> 8).astype(np.uint8)).save(tmp_path / "byte.png")
    network = str(qa.__path__[0]) + "/data/digits.qa"
    assert main(["run", network, str(tmp_path / "wide.png"), str(tmp_path / "byte.png"), "--top", "3"]) == 0
    wide, byte = (line.partition(": ")[2] for line in reversed(capsys.readouterr().out.splitlines()))
    assert wide == byte
    Image.fromarray(side.astype(np.float32)).save(tmp_path / "float.tif")
    assert main(["run", network, str(tmp_path / "float.tif")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and "'F', floats" in err
