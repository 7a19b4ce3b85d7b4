#!/usr/bin/env python3
"""DNS over HTTPS (RFC 8484, POST) on the loopback interface, for tests.

    doh_server.py PEM NAMES LOG [--say HOW]

Prints its port, then serves until the process that started it ends. PEM is its certificate and key. NAMES has a
line for each name that it knows: NAME ADDRESS..., where ADDRESS may also be alias:OTHER, an alias of OTHER. LOG gets
a line NAME TYPE for each question. HOW is what it says instead of an answer:

    nothing     closes the connection      silent      says nothing, and keeps it
    status      HTTP status 503            servfail    the code SERVFAIL
    text        a page of text             cut         half of the answer
    question    the question
"""
import argparse
import ctypes
import http.server
import ipaddress
import signal
import ssl
import struct
import sys
import threading

CODES = {"servfail": 2}


def parse_question(message):
    """(name, type, end of the question)"""
    labels, at = [], 12
    while message[at]:
        labels.append(message[at + 1:at + 1 + message[at]].decode("ascii"))
        at += 1 + message[at]
    kind, kind_class = struct.unpack(">HH", message[at + 1:at + 5])
    assert kind_class == 1 and len(message) == at + 5, message
    return ".".join(labels).lower(), kind, at + 5


def encode_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def make_answer(names, message, code):
    name, kind, end = parse_question(message)
    owner, records, alias = b"\xc0\x0c", [], names.get(name, [])
    while alias and alias[0].startswith("alias:"):
        target = alias[0].removeprefix("alias:")
        records.append(owner + struct.pack(">HHIH", 5, 1, 60, len(encode_name(target))) + encode_name(target))
        owner, alias = encode_name(target), names.get(target, [])
    for text in alias:
        address = ipaddress.ip_address(text)
        if kind == {4: 1, 6: 28}[address.version]:
            records.append(owner + struct.pack(">HHIH", kind, 1, 60, len(address.packed)) + address.packed)
    code = code if code is not None else 0 if name in names else 3
    return struct.pack(">HHHHHH", 0, 0x8180 | code, 1, len(records), 0, 0) + message[12:end] + b"".join(records)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    names, log, say = {}, None, None

    def reply(self, status, body, content_type="application/dns-message"):
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        assert self.headers["Content-Type"] == "application/dns-message"
        message = self.rfile.read(int(self.headers["Content-Length"]))
        name, kind, _ = parse_question(message)
        print(name, {1: "A", 28: "AAAA"}[kind], file=self.log, flush=True)
        answer = make_answer(self.names, message, CODES.get(self.say))
        if self.say == "nothing":
            self.close_connection = True
        elif self.say == "silent":
            threading.Event().wait()
        elif self.say == "status":
            self.reply(503, b"")
        elif self.say == "text":
            self.reply(200, b"<!DOCTYPE html><title>Welcome</title>\n" * 20, "text/html")
        elif self.say == "cut":
            self.reply(200, answer[:len(answer) // 2])
        elif self.say == "question":
            self.reply(200, message)
        else:
            self.reply(200, answer)

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def finish_request(self, request, client_address):
        """The handshake belongs to the connection's thread."""
        try:
            super().finish_request(self.tls.wrap_socket(request, server_side=True), client_address)
        except OSError:
            pass


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    parser.add_argument("pem")
    parser.add_argument("names")
    parser.add_argument("log")
    parser.add_argument("--say", choices=["nothing", "silent", "status", "servfail", "text", "cut", "question"])
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG
    with open(options.names, encoding="ascii") as lines:
        Handler.names = {line.split()[0]: line.split()[1:] for line in lines}
    Handler.log = open(options.log, "a", encoding="ascii")
    Handler.say = options.say
    Server.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    Server.tls.load_cert_chain(options.pem)
    server = Server(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    sys.stdout.close()
    server.serve_forever()


if __name__ == "__main__":
    main()
