#!/bin/bash
# Every transfer ends, and no server fills the disk: files larger than their kind can be, bytes that trickle, answers that
# are put off for a day.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
"$TESTBIN/make_scenes" train 40 1 32 scenes.tar >/dev/null
expect 0 "$BIN/ccpack" -q -o www/ds scenes.tar
cat >server.py <<'PYTHON'
# server.py MODE: prints its port.
import http.server, os, re, socketserver, sys, time
mode = sys.argv[1]
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def answer(self, first, last, total):
        self.wfile.write(b'HTTP/1.1 206 x\r\nETag: "a"\r\nContent-Range: bytes %d-%d/%d\r\nContent-Length: %d\r\n\r\n'
                         % (first, last, total, last - first + 1))
        self.wfile.flush()
    def do_GET(self):
        data = open("www" + self.path, "rb").read()
        first, last = map(int, re.match(r"bytes=(\d+)-(\d+)", self.headers["Range"]).groups())
        total, name = len(data), self.path.rsplit(".", 1)[-1]
        if mode == "huge-" + name or mode == "lying-" + name:
            total = 60 << 30
            self.answer(first, total - 1 if mode[0] == "l" else min(last, total - 1), total)
            while True: self.wfile.write(b"\xff" * 65536)
        if mode == "later":
            self.wfile.write(b"HTTP/1.1 503 x\r\nRetry-After: 80000\r\nContent-Length: 0\r\n\r\n")
            return
        last = min(last, total - 1)
        self.answer(first, last, total)
        if mode == "byte" and name in ("json", "tar"):
            self.wfile.write(data[first:first + 1]); self.wfile.flush()
            time.sleep(5 if name == "json" else 1)
            self.close_connection = True
        elif mode == "drip" and name == "json":
            for i in range(first, last + 1):
                self.wfile.write(data[i:i + 1]); self.wfile.flush()
                time.sleep(0.2)
        else:
            self.wfile.write(data[first:last + 1])
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    def handle_error(self, *a): pass
s = Server(("127.0.0.1", 0), Handler)
print(s.server_address[1], flush=True)
s.serve_forever()
PYTHON
mkdir tmp
ends() ( # ends MODE SECONDS CODE PATTERN
    coproc SERVER { exec python3 server.py "$1"; }
    read -r port <&"${SERVER[0]}"
    trap 'kill "$SERVER_PID"' EXIT
    code=0
    TMPDIR=$PWD/tmp timeout "$2" "$BIN/ccdump" info "http://127.0.0.1:$port/ds" >"$1.out" 2>"$1.err" || code=$?
    [ "$code" = "$3" ] || { cat "$1.err"; fail "$1: exit code $code, not $3"; }
    [ -z "$4" ] || grep -q "$4" "$1.err" || { cat "$1.err"; fail "$1: no '$4'"; }
)
stream() ( # a tar that is read from front to back
    cp scenes.tar www/
    coproc SERVER { exec python3 server.py byte; }
    read -r port <&"${SERVER[0]}"
    trap 'kill "$SERVER_PID"' EXIT
    code=0
    timeout 150 "$BIN/ccpack" -q -o new "http://127.0.0.1:$port/scenes.tar" >stream.out 2>stream.err || code=$?
    [ "$code" = 74 ] || { cat stream.err; fail "a byte each second of a tar: exit code $code, not 74"; }
)
stream &
tar=$!
ends drip 150 74 'cannot be read' &
drip=$!
ends byte 90 74 'cannot be read' &
byte=$!
ends none 20 0 ''
ends huge-json 20 65 'announces 64424509440 bytes, the limit for such a file is 268435456'
ends huge-cci 20 65 'announces 64424509440 bytes, the limit for such a file is 4294967295'
ends lying-cci 60 74 'another range'
ends later 20 74 'HTTP status 503'
wait $byte || exit 1
wait $tar || exit 1
wait $drip
