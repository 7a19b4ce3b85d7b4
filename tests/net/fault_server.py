#!/usr/bin/env python3
"""An HTTP/1.1 server of files that goes wrong on request, for tests on the loopback interface.

    fault_server.py FOLDER [--port N] [--faults SPEC] [--seed N] ...

Prints its port on the first line and the port of its second origin on the second one, then serves
until SIGTERM, or until the process that started it ends. Files of FOLDER are served with ranges,
ETag (of size and time), If-Match, If-None-Match, HEAD and keep-alive. The query of a URL selects
no file, so `image.jpg?row=1` and `image.jpg?row=2` are two URLs of one.

A fault is NAME or NAME:ARGUMENT. It applies
  - to a request that has it in its query: image.jpg?fault=503:2
    (&times=N: to the first N requests of this target and range only), or
  - to a share of all requests: --faults reset=0.1,latency:200=0.3 (the sum is at most 1). Which,
    is drawn from the seed, the target, the range and how often they were requested before: the
    order in which requests of other targets arrive changes nothing.

Faults (argument, its default):
  none             no fault; stops --faults for this request
  latency:MS       waits before the answer (1000)
  silent:MS        waits, then closes without an answer (60000)
  empty            closes without an answer
  reset            resets the connection instead of an answer
  reset_body       resets it after half of the body
  half             closes it after half of the body
  stall:MS         waits after half of the body, then closes (60000)
  drip:RATE        the body at RATE bytes per second (100)
  drip_head:RATE   the head at RATE bytes per second (10)
  no_length        no Content-Length, and closes after half of the body: looks complete
  short_length     half of the body with its length: looks complete where no range was asked for
  long_length      Content-Length is one too many, then closes
  chunked          the whole body, in chunks (correct HTTP)
  half_chunked     half of the body in chunks, then closes
  wrong_range      another range than the one asked for, correctly described
  lying_range      Content-Range as asked for, bytes of another place
  no_range         ignores the range: 200 and the whole file
  wrong_byte       the middle byte of the body is another one
  400 ... 599      this status; argument: Retry-After, seconds or (date) an HTTP date (none)
  s3_error:CODE    an error as S3 servers write it, with the status of the code (AccessDenied)
  redirect:URL     302 to URL
  redirect_loop    302 to itself
  redirect_chain:N 302, N times, then the file (3)
  redirect_other   302 to the same file at the second origin (its other port)
  redirect_private 302 to http://169.254.169.254/
  redirect_file    302 to file:///etc/passwd
  new_etag         an ETag that changes with every request, so that If-Match fails
  no_etag          no ETag
  huge_headers:N   N bytes of headers (1048576)
  garbage          an answer that is not HTTP
  html             200 with a page of HTML
  gzip             the body compressed, with Content-Encoding
  bad_gzip         the same, damaged in the middle
  gzip_bomb:N      the first bytes of a JPEG and N zero bytes, compressed (268435456)
  noai:VALUE       X-Robots-Tag: VALUE (noai)

Further paths:
  /stats           JSON of what was requested (see class Stats); ?reset: from now on anew
  /robots.txt      robots.HOST.txt of FOLDER, by the Host header, or else its robots.txt; --faults
                   does not apply, --robots-fault does
  /latest/...      with --imds: an instance metadata service, version 2, over the files of FOLDER;
                   `index` is that of a path that ends with /
"""

import argparse
import collections
import ctypes
import email.utils
import hashlib
import json
import os
import signal
import socket
import ssl
import stat
import struct
import sys
import threading
import time
import urllib.parse
import zlib

PIECE_BYTES = 1 << 20
HEAD_MAX_BYTES = 1 << 20
IDLE_SECONDS = 60
KEPT_REQUESTS = 10000
JPEG_BEGIN = b"\xff\xd8\xff\xe0\0\x10JFIF\0"
IMDS_TOKEN = "token-of-the-fault-server"

TYPES = {
    ".csv": "text/csv", ".gif": "image/gif", ".html": "text/html", ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg", ".json": "application/json", ".png": "image/png", ".tsv": "text/plain",
    ".txt": "text/plain", ".webp": "image/webp",
}
REASONS = {
    200: "OK", 206: "Partial Content", 302: "Found", 304: "Not Modified", 400: "Bad Request",
    401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    412: "Precondition Failed", 416: "Range Not Satisfiable", 429: "Too Many Requests",
    500: "Internal Server Error", 503: "Service Unavailable",
}
FAULTS = frozenset(line.split()[0].split(":")[0]
                   for line in __doc__.split("Faults (argument")[1].split("\n\n")[0].split("\n")[1:]
                   if line.startswith("  ") and not line.startswith("   "))


class Close(Exception):
    """The connection ends here."""


class Stats:
    """What was requested. A lock guards all of it; /stats itself is not counted.

    requests, connections, bytes (of bodies), statuses {status: n}, faults {name: n}, paths {path: n},
    hosts {Host header: {requests, running, most_running, first, last (seconds)}}, and the last 10,000
    requests: [{method, target, headers {lower-case name: value}, status, time}].
    """

    def __init__(self):
        self.lock = threading.Lock()
        self.asked = collections.Counter()
        self.reset()

    def reset(self):
        self.requests = self.connections = self.bytes = 0
        self.statuses, self.faults, self.paths = (collections.Counter() for _ in range(3))
        self.hosts = {}
        self.last = collections.deque(maxlen=KEPT_REQUESTS)

    def begin(self, request):
        """Counts a request; returns how often its target and range were requested before."""
        now = time.monotonic()
        with self.lock:
            self.requests += 1
            self.paths[request.path] += 1
            self.last.append({"method": request.method, "target": request.target,
                              "headers": request.headers, "status": 0, "time": now})
            request.record = self.last[-1]
            host = self.hosts.setdefault(request.headers.get("host", ""), {
                "requests": 0, "running": 0, "most_running": 0, "first": now})
            host["requests"] += 1
            host["running"] += 1
            host["most_running"] = max(host["most_running"], host["running"])
            host["last"] = now
            request.host = host
            key = (request.target, request.headers.get("range", ""))
            self.asked[key] += 1
            return self.asked[key] - 1

    def end(self, request):
        with self.lock:
            request.host["running"] -= 1

    def json(self):
        with self.lock:
            return json.dumps({
                "requests": self.requests, "connections": self.connections, "bytes": self.bytes,
                "statuses": self.statuses, "faults": self.faults, "paths": self.paths,
                "hosts": self.hosts, "last": list(self.last)}).encode()


class Request:
    def __init__(self, head):
        lines = head.decode("latin-1").split("\r\n")
        self.method, self.target, version = lines[0].split(" ")
        self.headers = {}
        for line in lines[1:]:
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        parts = urllib.parse.urlsplit(self.target)
        self.path = parts.path
        self.query = urllib.parse.parse_qs(parts.query, keep_blank_values=True)
        self.record = None # in Stats.last; None: not counted
        self.close = version != "HTTP/1.1" or self.headers.get("connection", "").lower() == "close"

    def range_of(self, size):
        """(first, end) of the one range asked for; None: the whole file; () if outside the file."""
        text = self.headers.get("range", "")
        if not text.startswith("bytes=") or "," in text:
            return None
        first, _, last = text[6:].partition("-")
        if first == "":
            count = min(int(last), size)
            return (size - count, size) if count > 0 else ()
        end = min(int(last) + 1, size) if last else size
        return (int(first), end) if int(first) < end else ()


class Server:
    def __init__(self, options):
        self.options = options
        self.root = os.path.realpath(options.folder)
        self.stats = Stats()
        self.tls = None
        if options.tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(options.tls)
        self.bombs = {}
        self.bomb_lock = threading.Lock()

    def fault_of(self, request, nth):
        """(name, argument or None) of the fault of this request."""
        text = "none"
        if request.path == "/robots.txt":
            text = self.options.robots_fault
        elif "fault" in request.query:
            if nth < int(request.query.get("times", [1 << 62])[0]):
                text = request.query["fault"][0]
        else:
            key = "\0".join((str(self.options.seed), request.target,
                             request.headers.get("range", ""), str(nth)))
            draw = int.from_bytes(hashlib.blake2b(key.encode("latin-1"), digest_size=7).digest(), "big")
            draw /= 1 << 56
            for fault, rate in self.options.faults:
                if draw < rate:
                    text = fault
                    break
                draw -= rate
        name, _, argument = text.partition(":")
        return name, argument or None

    def file_of(self, path):
        """The file of a path of a URL, or None."""
        name = urllib.parse.unquote(path).lstrip("/")
        if "\0" in name or ".." in name.split("/"):
            return None
        return os.path.join(self.root, name)

    def bomb(self, size):
        """A gzip file of JPEG_BEGIN and `size` zeros: one compressed piece, repeated."""
        with self.bomb_lock:
            if size not in self.bombs:
                zeros = bytes(PIECE_BYTES)
                packer = zlib.compressobj(9, zlib.DEFLATED, -15)
                piece = packer.compress(zeros) + packer.flush(zlib.Z_FULL_FLUSH)
                count = max(1, size // PIECE_BYTES)
                begin = len(JPEG_BEGIN)
                stored = struct.pack("<BHH", 0, begin, begin ^ 0xFFFF) + JPEG_BEGIN
                crc = zlib.crc32(JPEG_BEGIN)
                for _ in range(count):
                    crc = zlib.crc32(zeros, crc)
                self.bombs[size] = (b"\x1f\x8b\x08\0\0\0\0\0\0\x03" + stored + piece * count + b"\x03\0" +
                                    struct.pack("<II", crc, begin + count * PIECE_BYTES & 0xFFFFFFFF))
            return self.bombs[size]


class Connection:
    """One client: reads requests and answers them, in a thread of its own."""

    def __init__(self, server, sock, other_port):
        self.server = server
        self.sock = sock
        self.other_port = other_port
        self.received = b""

    def run(self):
        try:
            self.sock.settimeout(IDLE_SECONDS)
            self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self.server.tls:
                self.sock = self.server.tls.wrap_socket(self.sock, server_side=True)
            while self.answer_next():
                pass
        except (Close, OSError, ValueError):
            pass
        finally:
            self.sock.close()

    def answer_next(self):
        end = self.received.find(b"\r\n\r\n")
        while end < 0:
            data = self.sock.recv(65536)
            if not data or len(self.received) > HEAD_MAX_BYTES:
                return False
            self.received += data
            end = self.received.find(b"\r\n\r\n")
        request = Request(self.received[:end])
        self.received = self.received[end + 4:]
        if request.path == "/stats":
            stats = self.server.stats
            body = stats.json()
            if "reset" in request.query: # before the answer: what is requested after it counts
                with stats.lock:
                    stats.reset()
            self.send_body(request, 200, {"Content-Type": "application/json"}, body)
            return not request.close
        nth = self.server.stats.begin(request)
        try:
            name, argument = self.server.fault_of(request, nth)
            if not is_fault(name):
                self.send_body(request, 400, {}, f"no fault is called '{name}'\n".encode())
                return True
            if name != "none":
                with self.server.stats.lock:
                    self.server.stats.faults[name] += 1
            if self.server.options.latency_ms:
                time.sleep(self.server.options.latency_ms / 1000)
            self.answer(request, name, argument, nth)
        finally:
            self.server.stats.end(request)
        return not request.close

    # --- sending

    def send_head(self, request, status, headers, rate=None):
        if request.record is not None:
            request.record["status"] = status
            with self.server.stats.lock:
                self.server.stats.statuses[status] += 1
        lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Status')}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if request.close:
            lines.append("Connection: close")
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if rate:
            self.send_slowly(head, rate)
        else:
            more = request.method != "HEAD" and headers.get("Content-Length") != 0
            self.sock.sendall(head, 0 if self.server.tls or not more else socket.MSG_MORE)

    def send_slowly(self, data, rate):
        step = max(1, rate // 10)
        for at in range(0, len(data), step):
            self.sock.sendall(data[at:at + step])
            time.sleep(step / rate)

    def send_body(self, request, status, headers, body):
        """A whole answer from memory."""
        self.send_head(request, status, {"Content-Length": len(body), **headers})
        if request.method != "HEAD" and body:
            self.count(request, len(body))
            self.sock.sendall(body)

    def send_file(self, request, file, first, end):
        """Bytes [first, end) of a file."""
        at = first
        self.count(request, end - first)
        if not self.server.tls:
            while at < end: # with a timeout set, sockets of Python do not block
                try:
                    sent = os.sendfile(self.sock.fileno(), file.fileno(), at, end - at)
                except BlockingIOError:
                    file.seek(at)
                    sent = self.sock.send(file.read(min(PIECE_BYTES, end - at)))
                if sent == 0:
                    raise Close
                at += sent
        file.seek(at)
        while at < end:
            piece = file.read(min(PIECE_BYTES, end - at))
            self.sock.sendall(piece)
            at += len(piece)

    def count(self, request, size):
        if request.record is not None:
            with self.server.stats.lock:
                self.server.stats.bytes += size

    def wait(self, ms):
        """Waits, at most until the client closes the connection or sends something."""
        self.sock.settimeout(ms / 1000)
        try:
            self.sock.recv(1)
        except TimeoutError:
            pass

    def reset_connection(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
        raise Close

    # --- answers

    def answer(self, request, fault, argument, nth):
        number = int(argument) if argument and argument.isdigit() else None
        if fault == "latency":
            time.sleep((number or 1000) / 1000)
        elif fault == "silent":
            self.wait(number or 60000)
            raise Close
        elif fault == "empty":
            raise Close
        elif fault == "reset":
            self.reset_connection()
        elif fault == "garbage":
            self.sock.sendall(b"220 this is not HTTP\r\n" * 100)
            raise Close
        elif fault.isdigit():
            return self.send_body(request, int(fault), self.retry_after(argument), b"fault\n")
        elif fault == "s3_error":
            code = argument or "AccessDenied"
            status = {"NoSuchKey": 404, "NoSuchBucket": 404, "SlowDown": 503, "PermanentRedirect": 301}.get(code, 403)
            return self.send_body(request, status, {"Content-Type": "application/xml"},
                                  f"<?xml version='1.0'?>\n<Error><Code>{code}</Code>"
                                  f"<Message>A message &amp; {code}.</Message></Error>".encode())
        elif fault.startswith("redirect"):
            location = self.redirect_target(request, fault, argument, nth)
            if location:
                return self.send_body(request, 302, {"Location": location}, b"")
        elif fault == "html":
            return self.send_body(request, 200, {"Content-Type": "text/html"},
                                  b"<!DOCTYPE html><title>Not here</title><p>Not here.\n")
        elif fault == "gzip_bomb":
            return self.send_body(request, 200, {"Content-Encoding": "gzip"},
                                  self.server.bomb(number or 1 << 28))
        elif fault == "huge_headers":
            lines = "".join(f"X-Huge-{i}: {'x' * 1000}\r\n" for i in range((number or 1 << 20) >> 10))
            self.sock.sendall(f"HTTP/1.1 200 OK\r\n{lines}Content-Length: 0\r\n\r\n".encode())
            return None
        if self.server.options.imds and request.path.startswith("/latest/"):
            if not self.allow_imds(request):
                return None
            request.path += "index" if request.path.endswith("/") else ""
        if request.method not in ("GET", "HEAD"):
            return self.send_body(request, 405, {}, b"")
        return self.answer_file(request, fault, argument, nth)

    @staticmethod
    def retry_after(argument):
        if argument == "date":
            return {"Retry-After": email.utils.formatdate(time.time() + 2, usegmt=True)}
        return {"Retry-After": argument} if argument else {}

    def redirect_target(self, request, fault, argument, nth):
        if fault == "redirect":
            return argument
        if fault == "redirect_loop":
            return request.target
        if fault == "redirect_chain":
            left = int(argument or 3)
            query = f"?fault=redirect_chain:{left - 1}" if left > 1 else "?fault=none"
            return request.path + query
        if fault == "redirect_other":
            scheme = "https" if self.server.tls else "http"
            host = request.headers.get("host", "").rpartition(":")[0]
            return f"{scheme}://{host}:{self.other_port}{request.path}?fault=none"
        return {"redirect_private": "http://169.254.169.254/",
                "redirect_file": "file:///etc/passwd"}[fault]

    def allow_imds(self, request):
        """Instance metadata: the token, or the check of it. False: answered."""
        if request.path == "/latest/api/token":
            seconds = request.headers.get("x-aws-ec2-metadata-token-ttl-seconds", "")
            right = request.method == "PUT" and seconds.isdigit() and 1 <= int(seconds) <= 21600
            self.send_body(request, 200 if right else 400, {}, IMDS_TOKEN.encode() if right else b"")
            return False
        if request.headers.get("x-aws-ec2-metadata-token") != IMDS_TOKEN:
            self.send_body(request, 401, {}, b"")
            return False
        return True

    def answer_file(self, request, fault, argument, nth):
        path = self.server.file_of(request.path)
        if request.path == "/robots.txt":
            host = request.headers.get("host", "").rpartition(":")[0]
            own = self.server.file_of(f"/robots.{host}.txt")
            path = own if own and os.path.isfile(own) else path
        try:
            file = open(path, "rb") if path else None
        except (OSError, ValueError):
            file = None
        if file is None:
            return self.send_body(request, 404, {}, b"no such file\n")
        with file:
            state = os.fstat(file.fileno())
            if not stat.S_ISREG(state.st_mode):
                return self.send_body(request, 404, {}, b"no such file\n")
            etag = f'"{state.st_mtime_ns:x}-{state.st_size:x}"'
            if fault == "new_etag":
                etag = f'"changed-{time.time_ns():x}"'
            wanted = request.headers.get("if-match")
            if wanted not in (None, "*") and etag not in [e.strip() for e in wanted.split(",")]:
                return self.send_body(request, 412, {"ETag": etag}, b"")
            if request.headers.get("if-none-match") == etag:
                return self.send_body(request, 304, {"ETag": etag}, b"")
            headers = {"Content-Type": TYPES.get(os.path.splitext(path)[1].lower(),
                                                 "application/octet-stream"),
                       "ETag": etag, "Accept-Ranges": "bytes"}
            if fault == "no_etag":
                del headers["ETag"]
            if fault == "noai":
                headers["X-Robots-Tag"] = argument or "noai"
            return self.answer_range(request, fault, argument, file, state.st_size, headers)

    def answer_range(self, request, fault, argument, file, size, headers):
        part = request.range_of(size) if fault != "no_range" else None
        if part == ():
            return self.send_body(request, 416, {"Content-Range": f"bytes */{size}"}, b"")
        status, first, end = (206, *part) if part else (200, 0, size)
        moved = -1 if first > 0 else 1 if end < size else 0
        if fault == "wrong_range" and part:
            first, end = first + moved, end + moved
        if part:
            headers["Content-Range"] = f"bytes {first}-{end - 1}/{size}"
        if fault == "lying_range":
            first, end = first + moved, end + moved
        if request.method == "HEAD":
            headers["Content-Length"] = end - first
            return self.send_head(request, status, headers)
        if fault in ("gzip", "bad_gzip", "wrong_byte"):
            file.seek(first)
            body = bytearray(file.read(end - first))
            if fault != "wrong_byte":
                packer = zlib.compressobj(6, zlib.DEFLATED, 31)
                body = bytearray(packer.compress(body) + packer.flush())
                headers["Content-Encoding"] = "gzip"
            if fault != "gzip" and body:
                body[len(body) // 2] ^= 0x55
            return self.send_body(request, status, headers, body)
        return self.send_faulty(request, fault, argument, file, (status, first, end), headers)

    def send_faulty(self, request, fault, argument, file, part, headers):
        """The head and what the fault leaves of the body."""
        status, first, end = part
        half = first + (end - first) // 2
        number = int(argument) if argument and argument.isdigit() else None
        if fault in ("chunked", "half_chunked"):
            headers["Transfer-Encoding"] = "chunked"
        elif fault != "no_length":
            sent = half - first if fault == "short_length" else end - first
            headers["Content-Length"] = sent + (fault == "long_length")
        if fault in ("no_length", "long_length"):
            request.close = True
        self.send_head(request, status, headers, (number or 10) if fault == "drip_head" else None)
        if fault in ("chunked", "half_chunked"):
            stop = end if fault == "chunked" else half
            step = max(1, (stop - first + 2) // 3)
            for at in range(first, stop, step):
                till = min(at + step, stop)
                self.sock.sendall(f"{till - at:x}\r\n".encode())
                self.send_file(request, file, at, till)
                self.sock.sendall(b"\r\n")
            if fault == "half_chunked":
                raise Close
            self.sock.sendall(b"0\r\n\r\n")
        elif fault in ("half", "reset_body", "stall", "no_length", "short_length"):
            self.send_file(request, file, first, half)
            if fault == "reset_body":
                time.sleep(0.02) # else the reset may discard what was sent
                self.reset_connection()
            if fault == "stall":
                self.wait(number or 60000)
            if fault != "short_length":
                raise Close
        elif fault == "drip":
            file.seek(first)
            self.send_slowly(file.read(end - first), number or 100)
        else:
            self.send_file(request, file, first, end)


def is_fault(name):
    return name in FAULTS or (name.isdigit() and 400 <= int(name) <= 599)


def parse_faults(text):
    """[(fault, rate)] of NAME[:ARGUMENT]=RATE,..."""
    faults = []
    for item in text.split(",") if text else []:
        fault, _, rate = item.rpartition("=")
        name = fault.split(":")[0]
        if not is_fault(name):
            raise argparse.ArgumentTypeError(f"no fault is called '{name}'")
        faults.append((fault, float(rate)))
    if sum(rate for _, rate in faults) > 1 + 1e-9:
        raise argparse.ArgumentTypeError("the rates add up to more than 1")
    return faults


def listen(host, port):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    sock.listen(4096)
    return sock


def accept_all(server, listener, other_port):
    while True:
        sock, _ = listener.accept()
        with server.stats.lock:
            server.stats.connections += 1
        threading.Thread(target=Connection(server, sock, other_port).run, daemon=True).start()


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--host", default="127.0.0.1", help="address, IPv4 or IPv6 (127.0.0.1)")
    parser.add_argument("--hosts", type=int, default=1,
                        help="listens on 127.0.0.1 to 127.0.0.N, at the same port (1)")
    parser.add_argument("--faults", type=parse_faults, default=[], help="NAME[:ARGUMENT]=RATE,...")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--latency-ms", type=float, default=0, help="before every answer")
    parser.add_argument("--robots-fault", default="none", help="fault of every /robots.txt")
    parser.add_argument("--tls", metavar="PEM", help="serves HTTPS with this certificate and key")
    parser.add_argument("--imds", action="store_true", help="instance metadata under /latest/")
    options = parser.parse_args()

    # Blocked before there are threads: one that waits for a connection would sleep through it.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    ctypes.CDLL(None).prctl(1, signal.SIGTERM) # PR_SET_PDEATHSIG
    threading.stack_size(256 << 10)
    server = Server(options)
    other = listen(options.host, 0)
    main_listener = listen(options.host, options.port)
    port, other_port = main_listener.getsockname()[1], other.getsockname()[1]
    listeners = [(main_listener, other_port), (other, port)]
    for i in range(2, options.hosts + 1):
        listeners.append((listen(f"127.0.0.{i}", port), other_port))
    for listener, its_other in listeners:
        threading.Thread(target=accept_all, args=(server, listener, its_other), daemon=True).start()
    print(port, other_port, sep="\n", flush=True)
    signal.sigwait({signal.SIGTERM})
    os._exit(0)


if __name__ == "__main__":
    main()
