"""Checks fault_server.py with http.client, which shares no code with it. Run in an empty folder."""

import gzip
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time

SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fault_server.py")
DATA = bytes(range(256)) * 40
JPEG_BEGIN = b"\xff\xd8\xff\xe0\0\x10JFIF\0"


class Running:
    def __init__(self, *arguments):
        self.process = subprocess.Popen([sys.executable, SERVER, "files", *arguments],
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())
        self.other_port = int(self.process.stdout.readline())

    def get(self, target, headers=None, port=None, method="GET", host="127.0.0.1"):
        connection = http.client.HTTPConnection(host, port or self.port, timeout=10)
        try:
            connection.request(method, target, headers=headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def stats(self):
        return json.loads(self.get("/stats")[2])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(10) == 0, self.process.returncode
        self.process.stdout.close()


def expect(got, wanted):
    assert got == wanted, f"{got!r} instead of {wanted!r}"


def fails(call, *errors):
    try:
        call()
    except errors:
        return
    raise AssertionError(f"no {errors}")


def check_files(s):
    status, headers, body = s.get("/data.bin")
    expect((status, body, headers["Content-Length"]), (200, DATA, "10240"))
    etag = headers["ETag"]
    for text, first, end in (("0-0", 0, 1), ("100-", 100, 10240), ("-7", 10233, 10240),
                             ("10000-99999", 10000, 10240)):
        status, headers, body = s.get("/data.bin", {"Range": f"bytes={text}"})
        expect((status, headers["Content-Range"], body),
               (206, f"bytes {first}-{end - 1}/10240", DATA[first:end]))
    status, headers, _ = s.get("/data.bin", {"Range": "bytes=10240-"})
    expect((status, headers["Content-Range"]), (416, "bytes */10240"))
    expect(s.get("/data.bin", {"If-Match": etag})[0], 200)
    expect(s.get("/data.bin", {"If-Match": '"other"'})[0], 412)
    expect(s.get("/data.bin?fault=new_etag", {"If-Match": etag})[0], 412)
    expect(s.get("/data.bin", {"If-None-Match": etag})[0], 304)
    status, headers, body = s.get("/data.bin", method="HEAD")
    expect((status, headers["Content-Length"], body), (200, "10240", b""))
    for target in ("/no.bin", "/../check", "/%2e%2e/check", "/"):
        expect(s.get(target)[0], 404)
    expect(s.get("/a%20b%2Bc.txt")[2], b"a name\n")
    with open("files/data.bin", "ab"):
        os.utime("files/data.bin", ns=(1, 1))
    expect(s.get("/data.bin", {"If-Match": etag})[0], 412)
    connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=10)
    for _ in range(3): # one connection
        connection.request("GET", "/data.bin")
        sock = connection.sock
        expect(connection.getresponse().read(), DATA)
        assert connection.sock is sock
    connection.close()


def check_faults(s):
    broken = (http.client.HTTPException, ConnectionError)
    part = {"Range": "bytes=1000-1999"}
    for fault in ("reset", "empty", "half", "reset_body", "long_length", "half_chunked", "garbage"):
        fails(lambda f=fault: s.get(f"/data.bin?fault={f}"), *broken)
    fails(lambda: s.get("/data.bin?fault=huge_headers"), *broken)
    for fault in ("no_length", "short_length"):
        expect(s.get(f"/data.bin?fault={fault}")[2], DATA[:5120])
    expect(s.get("/data.bin?fault=chunked")[2], DATA)
    expect(s.get("/data.bin?fault=no_range", part)[::2], (200, DATA))
    _, headers, body = s.get("/data.bin?fault=wrong_range", part)
    expect((headers["Content-Range"], body), ("bytes 999-1998/10240", DATA[999:1999]))
    _, headers, body = s.get("/data.bin?fault=lying_range", part)
    expect((headers["Content-Range"], body), ("bytes 1000-1999/10240", DATA[999:1999]))
    body = s.get("/data.bin?fault=wrong_byte", part)[2]
    expect([i for i in range(1000) if body[i] != DATA[1000 + i]], [500])
    status, headers, _ = s.get("/data.bin?fault=429:7")
    expect((status, headers["Retry-After"]), (429, "7"))
    assert "GMT" in s.get("/data.bin?fault=503:date")[1]["Retry-After"]
    expect([s.get("/data.bin?fault=500&times=2")[0] for _ in range(4)], [500, 500, 200, 200])
    expect(s.get("/data.bin?fault=noai:none")[1]["X-Robots-Tag"], "none")
    expect(gzip.decompress(s.get("/data.bin?fault=gzip")[2]), DATA)
    fails(lambda: gzip.decompress(s.get("/data.bin?fault=bad_gzip")[2]), Exception)
    bomb = s.get("/data.bin?fault=gzip_bomb:3145728")[2]
    assert len(bomb) < 10000
    expect(gzip.decompress(bomb), JPEG_BEGIN + bytes(3145728))
    expect(s.get("/data.bin?fault=ful")[0], 400)
    for fault, took in (("latency:200", 0.2), ("drip:51200", 0.1), ("drip_head:2000", 0.05)):
        start = time.monotonic()
        expect(s.get(f"/data.bin?fault={fault}")[2], DATA)
        assert time.monotonic() - start > took, fault
    for fault in ("silent:100", "stall:100"):
        fails(lambda f=fault: s.get(f"/data.bin?fault={f}"), *broken)


def check_redirects(s):
    where = {f: s.get(f"/data.bin?fault={f}") for f in
             ("redirect:/x", "redirect_loop", "redirect_other", "redirect_private", "redirect_file")}
    expect({a[0] for a in where.values()}, {302})
    expect(where["redirect:/x"][1]["Location"], "/x")
    expect(where["redirect_loop"][1]["Location"], "/data.bin?fault=redirect_loop")
    other = f"http://127.0.0.1:{s.other_port}"
    expect(where["redirect_other"][1]["Location"], other + "/data.bin?fault=none")
    expect(s.get("/data.bin?fault=none", port=s.other_port)[2], DATA)
    target, hops = "/data.bin?fault=redirect_chain:4", 0
    while True:
        status, headers, body = s.get(target)
        if status == 200:
            break
        target, hops = headers["Location"], hops + 1
    expect((hops, body), (4, DATA))


def check_robots():
    s = Running("--hosts", "2")
    expect(s.get("/robots.txt")[2], b"User-agent: *\nDisallow: /a\n")
    expect(s.get("/robots.txt", host="127.0.0.2")[2], b"Disallow:\n")
    s.get("/data.bin", host="127.0.0.2")
    expect(s.stats()["hosts"][f"127.0.0.2:{s.port}"]["requests"], 2)
    s.stop()
    s = Running("--robots-fault", "503")
    expect((s.get("/robots.txt")[0], s.get("/data.bin")[0]), (503, 200))
    s.stop()


def check_rates():
    """The same seed draws the same faults, in any order; the share is what was asked for."""
    seen = []
    for seed, targets in (("3", range(600)), ("3", reversed(range(600))), ("4", range(600))):
        s = Running("--faults", "404=0.1,503:1=0.2,none=0.1", "--seed", seed)
        connection = http.client.HTTPConnection("127.0.0.1", s.port, timeout=10)
        statuses = {}
        for i in targets:
            connection.request("GET", f"/data.bin?{i}")
            response = connection.getresponse()
            response.read()
            statuses[i] = response.status
        connection.close()
        seen.append(statuses)
        counts = s.stats()
        expect(counts["faults"]["503"], sum(v == 503 for v in statuses.values()))
        expect(counts["requests"], 600)
        assert 90 <= counts["faults"]["503"] <= 150 and 35 <= counts["faults"]["404"] <= 85, counts
        s.stop()
    expect(seen[0], seen[1])
    assert seen[0] != seen[2]
    refused = subprocess.run([sys.executable, SERVER, "files", "--faults", "resets=1"],
                             capture_output=True, check=False)
    assert refused.returncode != 0 and b"no fault is called 'resets'" in refused.stderr


def check_stats(s):
    s.get("/stats?reset")
    s.get("/data.bin?x=1", {"Range": "bytes=0-99", "X-Own": "a: b"})
    s.get("/no.bin")
    stats = s.stats()
    expect((stats["requests"], stats["statuses"], stats["paths"]),
           (2, {"206": 1, "404": 1}, {"/data.bin": 1, "/no.bin": 1}))
    expect(stats["bytes"], 100 + len("no such file\n"))
    request = stats["last"][0]
    expect((request["target"], request["headers"]["x-own"], request["status"]),
           ("/data.bin?x=1", "a: b", 206))


def check_imds():
    os.makedirs("files/latest/meta-data", exist_ok=True)
    with open("files/latest/meta-data/role", "w", encoding="ascii") as file:
        file.write("secret")
    s = Running("--imds")
    expect(s.get("/latest/meta-data/role")[0], 401)
    expect(s.get("/latest/api/token", method="PUT")[0], 400)
    status, _, token = s.get("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"},
                             method="PUT")
    expect(status, 200)
    expect(s.get("/latest/meta-data/role", {"X-aws-ec2-metadata-token": token.decode()})[2], b"secret")
    s.stop()


def main():
    os.mkdir("files")
    for name, data in (("data.bin", DATA), ("a b+c.txt", b"a name\n"),
                       ("robots.txt", b"User-agent: *\nDisallow: /a\n"),
                       ("robots.127.0.0.2.txt", b"Disallow:\n")):
        with open(os.path.join("files", name), "wb") as file:
            file.write(data)
    s = Running()
    check_files(s)
    check_faults(s)
    check_redirects(s)
    check_stats(s)
    socket.create_connection(("127.0.0.1", s.port)).close()
    s.stop()
    check_robots()
    check_rates()
    check_imds()


if __name__ == "__main__":
    main()
