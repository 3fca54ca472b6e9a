import shutil
import struct
import zlib

from catalog import program

WIDTH, HEIGHT = 800, 600
USER = "nobody"


@program("chromium", needs={"chromium": "chromium"}, light=True, watches=["chrom*"], quick_limit_s=120, full_limit_s=300)
def chromium(test):
    """Chromium, headless: pages with scripts and a canvas rendered to PNG, pixels checked"""
    shutil.copy(test.scripts / "page.html", test.folder)  # where every user may read it
    # Its renderers live in a seccomp sandbox, which root may not have, and a container may not allow.
    sandbox = test.run(["unshare", "--user", "true"], user=USER, preload=False, statuses=None).status == 0
    test.note("renderers in the seccomp sandbox" if sandbox else "without sandbox: no user namespaces here")
    for number in range(1 if test.quick else 6):
        render(test, number, [] if sandbox else ["--no-sandbox"])


def render(test, number, options):
    """Renders the page once. Chromium allocates with its own allocator; the library serves what is linked beside it."""
    picture = test.folder / f"page{number}.png"
    page = (test.folder / "page.html").as_uri()
    test.run(["chromium", "--headless", *options, "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
              "--hide-scrollbars", "--force-color-profile=srgb", "--force-device-scale-factor=1",
              f"--user-data-dir={test.folder}/profile{number}", f"--window-size={WIDTH},{HEIGHT}",
              "--virtual-time-budget=10000", f"--screenshot={picture}", page],
             user=USER, limit_s=90)
    test.expect(picture.exists(), "chromium wrote no picture")
    width, height, pixel = decode_png(picture.read_bytes())
    test.expect((width, height) == (WIDTH, HEIGHT), f"the picture has {width} x {height} pixels")
    drawn = (((100, 50), (255, 0, 0), "a box in HTML"), ((300, 50), (0, 0, 255), "a box made by a script"),
             ((100, 250), (0, 255, 0), "a drawing on a canvas, made after all scripts"))
    for (x, y), colour, what in drawn:
        test.expect(pixel(x, y) == colour, f"{what} has the colour {pixel(x, y)}, not {colour}")
    dark = sum(sum(pixel(x, y)) < 200 for x in range(WIDTH) for y in range(400, 440))
    test.expect(dark > 500, f"the line of text has only {dark} dark pixels")


def decode_png(data):
    """Returns width, height and a function (x, y) -> (red, green, blue). 8 bits per channel, not interlaced."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n", "not a PNG"
    position, compressed = 8, b""
    while position < len(data):
        length, kind = struct.unpack(">I4s", data[position:position + 8])
        body = data[position + 8:position + 8 + length]
        assert zlib.crc32(kind + body) == struct.unpack(">I", data[position + 8 + length:position + 12 + length])[0]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlace = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and not interlace, "an unexpected kind of PNG"
        elif kind == b"IDAT":
            compressed += body
        position += 12 + length
    channels = 3 if colour == 2 else 4
    rows = unfilter(zlib.decompress(compressed), width * channels, height, channels)
    return width, height, lambda x, y: tuple(rows[y][x * channels:x * channels + 3])


def unfilter(raw, stride, height, channels):
    rows, above = [], bytearray(stride)
    for y in range(height):
        kind = raw[y * (stride + 1)]
        line = bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
        for i in range(stride):
            left = line[i - channels] if i >= channels else 0
            corner = above[i - channels] if i >= channels else 0
            if kind == 1:
                line[i] = line[i] + left & 255
            elif kind == 2:
                line[i] = line[i] + above[i] & 255
            elif kind == 3:
                line[i] = line[i] + (left + above[i]) // 2 & 255
            elif kind == 4:
                line[i] = line[i] + min((left, above[i], corner), key=lambda p: abs(left + above[i] - corner - p)) & 255
        rows.append(line)
        above = line
    return rows
