#!/usr/bin/env python3
"""Reads the event files of a folder as TensorBoard does, with a reader of its own, and compares them with a run.

    read_events.py DIR RUN/metrics.jsonl

Every CRC must hold. What is left after the starts of sessions, which drop the steps from theirs on, must be the
numbers and histograms of the lines, each once, and an image with a text for every evaluation that found examples. Prints how many
events, numbers and histograms there are.
"""

import glob
import json
import struct
import sys


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    data = open(path, "rb").read()
    while data:
        length, = struct.unpack_from("<Q", data)
        assert masked(data[:8]) == struct.unpack_from("<I", data, 8)[0], f"{path}: CRC of a length"
        body = data[12:12 + length]
        assert masked(body) == struct.unpack_from("<I", data, 12 + length)[0], f"{path}: CRC of a record"
        yield body
        data = data[16 + length:]


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def fields(data):
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        elif kind == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        elif kind == 5:
            value, at = struct.unpack_from("<f", data, at)[0], at + 4
        else:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def value_of(data):
    tag, number, histogram = "", None, None
    for field, value in fields(data):
        if field == 1:
            tag = value.decode()
        elif field == 2:
            number = value
        elif field == 5:
            h = dict(fields(value))
            limits = struct.unpack(f"<{len(h[6]) // 8}d", h[6])
            counts = struct.unpack(f"<{len(h[7]) // 8}d", h[7])
            assert len(limits) == len(counts) and h[3] == sum(counts)
            histogram = (h[1], limits, counts)
    return tag, number, histogram


def is_image(data):
    """A JPEG, or the text beside it."""
    value = dict(fields(data))
    tag = value[1].decode()
    if 4 in value:
        image = dict(fields(value[4]))
        assert tag == "examples/t2i" and image[3] == 3 and image[4][:2] == b"\xff\xd8" and image[4][-2:] == b"\xff\xd9"
        assert image[1] % 102 == 0 and image[2] == 7 * 102, f"{image[2]} x {image[1]} pixels"
    elif 8 in value:
        tensor = dict(fields(value[8]))
        assert tag == "examples/t2i/text" and value[9] == b"\x0a\x06\x0a\x04text" and tensor[1] == 7
        assert tensor[8].decode().startswith("1. ") and "(own image: number " in tensor[8].decode()
    else:
        return False
    return True


def expected_of(value, path, out):
    for key, member in value.items():
        tag = f"{path}/{key}" if path else key
        if isinstance(member, bool) or (not path and key == "step"):
            continue
        if isinstance(member, (int, float)):
            out[tag] = struct.unpack("<f", struct.pack("<f", member))[0]
        elif isinstance(member, dict) and member.get("counts"):
            low, width, counts = member["low"], member["width"], member["counts"]
            out[tag] = (low, tuple(low + (i + 1) * width for i in range(len(counts))), tuple(map(float, counts)))
        elif isinstance(member, dict) and "counts" not in member:
            expected_of(member, tag, out)


def close(a, b):
    if isinstance(a, tuple):
        return all(close(x, y) for x, y in zip(a, b, strict=True))
    return a == b or abs(a - b) <= 1e-6 * max(abs(a), abs(b))


folder, metrics = sys.argv[1:]
events, images = [], []
for path in sorted(glob.glob(f"{folder}/events.out.tfevents.*")):
    first = True
    for record in records(path):
        step, values = 0, []
        for field, value in fields(record):
            if field == 2:
                step = value
            elif field == 3:
                assert first and value == b"brain.Event:2"
            elif field == 5:
                all_values = [v for f, v in fields(value) if f == 1]
                values += [value_of(v) for v in all_values if not is_image(v)]
                images += [step] * (len([v for v in all_values if is_image(v)]) == 2)
            elif field == 7:
                assert dict(fields(value)) == {1: 1}
                events = [e for e in events if e[0] < step]
                images = [p for p in images if p < step]
        first = False
        if values:
            events.append((step, values))
lines = [json.loads(line) for line in open(metrics, encoding="utf-8")]
expected = []
for line in lines:
    found = {}
    expected_of(line, "", found)
    if found:
        expected.append((line["step"], found))
assert len(events) == len(expected), f"{len(events)} events, {len(expected)} lines"
found = [line["step"] for line in lines if line.get("examples")]
assert images == found, f"images at {images}, examples at {found}"
count = 0
for (step, values), (expected_step, found) in zip(events, expected):
    assert step == expected_step
    assert len(values) == len(found) == len({tag for tag, _, _ in values}), f"step {step}: {values} and {found}"
    for tag, number, histogram in values:
        assert close(found[tag], number if histogram is None else histogram), f"step {step}: {tag}"
        count += 1
print(len(events), count)
