#!/usr/bin/env python3
"""Makes webp/* and gif/*, and beside each good one the .rgb that it means, as it is looked at.

    pip install pillow; tests/golden/images/make_webp_gif.py

GIFs are written by this script alone. Of WebP, Pillow makes the coded pictures, the containers
around them (orientation, animation) are made here; the pixels of lossless ones are those that went
in, those of lossy ones are what Pillow (libwebp) reads back. Files named bad_* are to be refused. Some
of them also begin the corpora of fuzz_image and, without their containers, of fuzz_vp8l.
"""
import io
import os
import struct

from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))

CORPUS = os.path.join(HERE, "../../fuzz/corpus/image")
FUZZED = ("lossless", "lossless_alpha", "lossless_few", "lossy", "lossy_alpha", "many_codes", "turned_6",
          "animated", "animated_part_turned", "bad_anmf_size", "interlaced", "transparent", "part_of_screen",
          "beyond_screen", "local_colours", "one_bit", "bad_colour", "bad_short")


def sample(x, y, c):
    return ((x * 40503 + y * 30011 + c * 7919 + x * y * 257) >> 3) & 255


def over_white(pixel):
    r, g, b, a = pixel
    return bytes((v * a + 255 * (255 - a) + 127) // 255 for v in (r, g, b))


def save(folder, name, data, size=None, pixels=None):
    """`pixels`: RGBA tuples by rows."""
    with open(os.path.join(HERE, folder, name), "wb") as f:
        f.write(data)
    if os.path.splitext(name)[0] in FUZZED:
        with open(os.path.join(CORPUS, name), "wb") as f:
            f.write(data)
        if b"VP8L" in data:
            at = data.index(b"VP8L")
            stream_bytes = struct.unpack_from("<I", data, at + 4)[0]
            with open(os.path.join(CORPUS, "../vp8l", os.path.splitext(name)[0]), "wb") as f:
                f.write(data[at + 8:at + 8 + stream_bytes])
    if pixels is not None:
        assert len(pixels) == size[0] * size[1]
        with open(os.path.join(HERE, folder, os.path.splitext(name)[0] + ".rgb"), "wb") as f:
            f.write(struct.pack("<II", *size) + b"".join(over_white(p) for p in pixels))


def turned(width, height, pixels, orientation):
    """The picture as it is looked at."""
    rows = [pixels[y * width:(y + 1) * width] for y in range(height)]
    if orientation in (2, 3, 7, 8):
        rows = [row[::-1] for row in rows]
    if orientation in (3, 4, 6, 7):
        rows = rows[::-1]
    if orientation >= 5:
        rows = [list(column) for column in zip(*rows)]
    return (len(rows[0]), len(rows)), [p for row in rows for p in row]


# ----------------------------------------------------------------------------------------- WebP


def chunk(kind, body):
    return kind + struct.pack("<I", len(body)) + body + b"\0" * (len(body) & 1)


def riff(chunks):
    return b"RIFF" + struct.pack("<I", 4 + len(chunks)) + b"WEBP" + chunks


def le24(v):
    return struct.pack("<I", v)[:3]


def vp8x(flags, width, height):
    return chunk(b"VP8X", bytes([flags, 0, 0, 0]) + le24(width - 1) + le24(height - 1))


def coded(width, height, pixels, **how):
    """The chunks ALPH, VP8 or VP8L of a picture, and what they mean."""
    mode = "RGBA" if any(p[3] != 255 for p in pixels) else "RGB"
    image = Image.new(mode, (width, height))
    image.putdata([p[:len(mode)] for p in pixels])
    out = io.BytesIO()
    image.save(out, "WEBP", exact=True, method=4, **how)
    data = out.getvalue()
    meaning = pixels
    if not how.get("lossless"):
        back = Image.open(io.BytesIO(data)).convert("RGBA").tobytes()
        meaning = [tuple(back[i:i + 4]) for i in range(0, len(back), 4)]
    chunks, at = b"", 12
    while at < len(data):
        size = 8 + struct.unpack_from("<I", data, at + 4)[0]
        if data[at:at + 4] in (b"ALPH", b"VP8 ", b"VP8L"):
            chunks += data[at:at + size + (size & 1)]
        at += size + (size & 1)
    return chunks, meaning


def exif(orientation, prefix=b""):
    return chunk(b"EXIF", prefix + b"II*\0\x08\0\0\0" + struct.pack("<HHHIHH", 1, 0x0112, 3, 1, orientation, 0) +
                 b"\0\0\0\0")


def anmf(x, y, width, height, chunks):
    return chunk(b"ANMF", le24(x // 2) + le24(y // 2) + le24(width - 1) + le24(height - 1) + le24(100) + b"\0" + chunks)


def many_codes(width, height):
    """A lossless picture, black, in which every tile of 4 x 4 pixels has a set of codes of its own."""
    bits = []

    def put(value, count):
        bits.extend((value >> i) & 1 for i in range(count))

    def put_byte_code(symbols):  # 8 bits to each of the first 256
        put(0, 1)
        put(12 - 4, 4)
        for length in (0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1):
            put(length, 3)
        put(0, 1)
        bits.extend(int(i < 256) for i in range(symbols))

    put(0x2F, 8)
    put(width - 1, 14)
    put(height - 1, 14)
    put(0, 4)
    put(4, 7)  # no transform, no cache; sets by tiles of 2^2, in a picture without cache
    put_byte_code(280)
    put_byte_code(256)
    single = 1
    for _ in range(3):
        put(single, 4)
    tiles = ((width + 3) // 4) * ((height + 3) // 4)
    for i in range(tiles):
        for byte in (i & 255, i >> 8):
            bits.extend((byte >> k) & 1 for k in range(7, -1, -1))
    for _ in range(5 * tiles):
        put(single, 4)
    bits.extend([0] * (-len(bits) % 8))
    return chunk(b"VP8L", bytes(sum(b << k for k, b in enumerate(bits[i:i + 8])) for i in range(0, len(bits), 8)))


def make_webp():
    w, h = 21, 14
    opaque = [(sample(x, y, 0), sample(x, y, 1), sample(x, y, 2), 255) for y in range(h) for x in range(w)]
    clear = [p[:3] + (sample(x, y, 3),) for (x, y), p in zip(((x, y) for y in range(h) for x in range(w)), opaque)]
    few = [((x // 5 * 60) & 255, (y // 3 * 50) & 255, 90, 255) for y in range(h) for x in range(w)]
    smooth = [(x * 12, y * 18, 128, 255 if y < 7 else x * 12) for y in range(h) for x in range(w)]
    solid = [p[:3] + (255,) for p in smooth]
    for name, pixels, how in (("lossless", opaque, {"lossless": True}), ("lossless_alpha", clear, {"lossless": True}),
                              ("lossless_few", few, {"lossless": True}), ("lossy", solid, {"quality": 80})):
        chunks, meaning = coded(w, h, pixels, **how)
        save("webp", name + ".webp", riff(chunks), (w, h), meaning)
    save("webp", "many_codes.webp", riff(many_codes(132, 124)), (132, 124), [(0, 0, 0, 255)] * (132 * 124))
    chunks, meaning = coded(w, h, smooth, quality=80)
    save("webp", "lossy_alpha.webp", riff(vp8x(0x10, w, h) + chunks), (w, h), meaning)
    chunks, _ = coded(w, h, opaque, lossless=True)
    for o in range(1, 9):
        file = riff(vp8x(0x08, w, h) + chunks + exif(o, b"Exif\0\0" if o % 2 == 0 else b""))
        save("webp", f"turned_{o}.webp", file, *turned(w, h, opaque, o))
    # Animations: a first frame that fills the canvas, and one that does not.
    chunks, meaning = coded(w, h, solid, quality=80)
    second, _ = coded(4, 4, [(0, 0, 0, 255)] * 16, lossless=True)
    anim = chunk(b"ANIM", struct.pack("<IH", 0xFF00FF00, 0))
    save("webp", "animated.webp", riff(vp8x(0x02, w, h) + anim + anmf(0, 0, w, h, chunks) + anmf(2, 2, 4, 4, second)),
         (w, h), meaning)
    chunks, _ = coded(w, h, clear, lossless=True)
    canvas = [clear[(y - 4) * w + x - 6] if 6 <= x < 6 + w and 4 <= y < 4 + h else (0, 0, 0, 0)
              for y in range(25) for x in range(32)]
    frames = anim + anmf(6, 4, w, h, chunks) + anmf(0, 0, 4, 4, second)
    size, pixels = turned(32, 25, canvas, 6)
    save("webp", "animated_part_turned.webp", riff(vp8x(0x1A, 32, 25) + frames + exif(6)), size, pixels)
    save("webp", "bad_frame_outside.webp", riff(vp8x(0x12, 26, 25) + frames))
    save("webp", "bad_no_frame.webp", riff(vp8x(0x02, w, h) + anim))
    still, _ = coded(w, h, opaque, lossless=True)
    save("webp", "bad_canvas.webp", riff(vp8x(0, w + 1, h) + still))
    save("webp", "bad_anmf_size.webp", riff(vp8x(0x02, w, h) + anmf(0, 0, w - 1, h, still)))


# ------------------------------------------------------------------------------------------ GIF


def lzw(numbers, bits):
    """Codes of growing width, as every reader expects them; the table starts anew when it is full."""
    clear, end = 1 << bits, (1 << bits) + 1
    out, acc, filled = bytearray(), 0, 0

    def put(code, width):
        nonlocal acc, filled
        acc |= code << filled
        filled += width
        while filled >= 8:
            out.append(acc & 255)
            acc >>= 8
            filled -= 8

    table, width = {(i,): i for i in range(clear)}, bits + 1
    next_code = end + 1
    put(clear, width)
    prefix = ()
    for n in numbers:
        if prefix + (n,) in table:
            prefix += (n,)
            continue
        put(table[prefix], width)
        table[prefix + (n,)] = next_code
        next_code += 1
        if next_code - 1 == 1 << width and width < 12:
            width += 1
        if next_code == 4096:
            put(clear, width)
            table, width = {(i,): i for i in range(clear)}, bits + 1
            next_code = end + 1
        prefix = (n,)
    put(table[prefix], width)
    put(end, width)
    if filled:
        out.append(acc & 255)
    return bytes([bits]) + blocks(bytes(out))


def blocks(data):
    return b"".join(bytes([len(data[i:i + 255])]) + data[i:i + 255] for i in range(0, len(data), 255)) + b"\0"


def colours(count, seed):
    return [tuple((i * k + seed) & 255 for k in (37, 91, 151)) for i in range(count)]


def table_flags(count):
    return 0x80 | (count.bit_length() - 2) if count else 0


def picture(x, y, w, h, numbers, bits, local=(), interlaced=False, transparent=None):
    out = b""
    if transparent is not None:
        out += b"!\xf9\x04" + struct.pack("<BHB", 1, 5, transparent) + b"\0"
    flags = table_flags(len(local)) | (0x40 if interlaced else 0)
    rows = [numbers[i * w:(i + 1) * w] for i in range(h)]
    if interlaced:
        rows = rows[0::8] + rows[4::8] + rows[2::4] + rows[1::2]
    out += b"," + struct.pack("<HHHHB", x, y, w, h, flags) + b"".join(bytes(c) for c in local)
    return out + lzw([n for row in rows for n in row], bits)


def gif(screen_w, screen_h, table, body, version=b"89a", background=0, end=b";"):
    flags = table_flags(len(table)) | 0x70
    screen = struct.pack("<HHBBB", screen_w, screen_h, flags, background, 0)
    return b"GIF" + version + screen + b"".join(bytes(c) for c in table) + body + end


def make_gif():
    w, h = 19, 23
    table = colours(16, 5)
    numbers = [sample(x, y, 0) & 15 for y in range(h) for x in range(w)]
    plain = picture(0, 0, w, h, numbers, 4)
    shown = [table[n] + (255,) for n in numbers]
    save("gif", "plain87.gif", gif(w, h, table, plain, b"87a"), (w, h), shown)
    save("gif", "no_end.gif", gif(w, h, table, plain, end=b""), (w, h), shown)
    words = b"!\xfe" + blocks(b"a comment, which says nothing " * 20)
    loop = b"!\xff" + blocks(b"NETSCAPE2.0")[:-1] + blocks(b"\1\0\0")
    later = picture(3, 2, 4, 4, [1] * 16, 4, transparent=2)
    save("gif", "animated.gif", gif(w, h, table, loop + words + plain + later), (w, h), shown)
    save("gif", "interlaced.gif", gif(w, h, table, picture(0, 0, w, h, numbers, 4, interlaced=True)), (w, h), shown)
    see_through = [(0, 0, 0, 0) if n == 3 else table[n] + (255,) for n in numbers]
    save("gif", "transparent.gif", gif(w, h, table, picture(0, 0, w, h, numbers, 4, transparent=3)), (w, h),
         see_through)

    def placed(screen_w, screen_h, x0, y0):
        return [see_through[(y - y0) * w + x - x0] if x0 <= x < x0 + w and y0 <= y < y0 + h else (0, 0, 0, 0)
                for y in range(screen_h) for x in range(screen_w)]

    part = picture(5, 7, w, h, numbers, 4, transparent=3, interlaced=True)
    save("gif", "part_of_screen.gif", gif(40, 33, table, part, background=9), (40, 33), placed(40, 33, 5, 7))
    save("gif", "beyond_screen.gif", gif(20, 40, table, part), (24, 40), placed(24, 40, 5, 7))
    save("gif", "no_screen.gif", gif(0, 0, table, plain), (w, h), shown)
    local = colours(4, 77)
    two = [n & 3 for n in numbers]
    save("gif", "local_colours.gif", gif(w, h, table, picture(0, 0, w, h, two, 2, local)), (w, h),
         [local[n] + (255,) for n in two])
    pair = [(9, 8, 7), (200, 100, 50)]
    save("gif", "one_bit.gif", gif(w, h, pair, picture(0, 0, w, h, [n & 1 for n in numbers], 2)), (w, h),
         [pair[n & 1] + (255,) for n in numbers])
    big = [(i * i >> 3) & 255 for i in range(100 * 90)]  # fills the code table twice
    full = colours(256, 1)
    save("gif", "full_table.gif", gif(100, 90, full, picture(0, 0, 100, 90, big, 8)), (100, 90),
         [full[n] + (255,) for n in big])
    # Colour 12 is in no table, but transparent: nothing is wrong.
    beyond = [12 if n == 3 else n & 3 for n in numbers]
    odd = picture(0, 0, w, h, beyond, 4, transparent=12)
    save("gif", "transparent_beyond_table.gif", gif(w, h, local, odd), (w, h),
         [(0, 0, 0, 0) if n == 12 else local[n] + (255,) for n in beyond])
    save("gif", "bad_colour.gif", gif(w, h, local, picture(0, 0, w, h, beyond, 4)))
    save("gif", "bad_no_colours.gif", gif(w, h, [], plain))
    save("gif", "bad_no_picture.gif", gif(w, h, table, words))
    save("gif", "bad_no_rows.gif", gif(w, h, table, b",\0\0\0\0" + struct.pack("<HHB", w, 0, 0) + plain[10:]))
    save("gif", "bad_short.gif", gif(w, h, table, picture(0, 0, w, h, numbers[:-1], 4)))


make_webp()
make_gif()
