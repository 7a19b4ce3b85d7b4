#!/bin/bash
# A public server leads nobody to private addresses: not by redirects, not by names, in no spelling; only a location that
# is written with one, an endpoint, or --allow-private does. Needs root, for addresses of its own.
. "$SRC/tests/support/cli.sh"
[ "${1:-}" = inside ] || {
    command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
    unshare -nm true 2>which.txt || { echo "skipped: no network namespace of its own"; exit 77; }
    exec unshare -nm bash "$0" inside
}
ip link set lo up
for a in 93.184.216.34 169.254.169.254 10.0.0.5 10.0.0.6; do ip addr add $a/32 dev lo; done
ip addr add fd00:ec2::254/128 dev lo
printf '127.0.0.1 localhost\n10.0.0.5 inside.example.com nas\n169.254.169.254 keys.internal\n93.184.216.34 open.example.com\n' >hosts
mount --bind hosts /etc/hosts
unset http_proxy https_proxy all_proxy AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3 AWS_PROFILE
export AWS_CONFIG_FILE=/dev/null AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=s

"$TESTBIN/make_scenes" train 40 1 32 scenes.tar >/dev/null
expect 0 "$BIN/ccpack" -q -o www/ds scenes.tar
cat >server.py <<'PYTHON'
# A request for /to/HOST/PATH is sent on to http://HOST/PATH; others are answered from www. Requests are written down.
import http.server, os, socket, socketserver, threading, sys
class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *a): pass
    def do_GET(self):
        with open("asked", "a") as f: f.write("%s %s %s\n" % (self.server.server_address[0], self.path, dict(self.headers)))
        if self.path.startswith("/to/"):
            self.send_response(302)
            self.send_header("Location", "http://" + self.path[4:])
            self.send_header("Content-Length", "0")
            return self.end_headers()
        try: data = open("www" + self.path, "rb").read()
        except OSError: data = None
        if data is None:
            self.send_response(404); self.send_header("Content-Length", "0"); return self.end_headers()
        first, last = self.headers.get("Range", "bytes=0-").split("=")[1].split("-")
        first, last = int(first), min(int(last or len(data)), len(data) - 1)
        self.send_response(206)
        self.send_header("ETag", '"1"')
        self.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, len(data)))
        self.send_header("Content-Length", str(last - first + 1))
        self.end_headers()
        self.wfile.write(data[first:last + 1])
    do_PUT = do_GET
class Server(socketserver.ThreadingMixIn, http.server.HTTPServer): daemon_threads = True
class Server6(Server): address_family = socket.AF_INET6
for a in "93.184.216.34", "169.254.169.254", "10.0.0.5", "10.0.0.6", "127.0.0.1":
    threading.Thread(target=Server((a, 80), Handler).serve_forever, daemon=True).start()
threading.Thread(target=Server6(("fd00:ec2::254", 80), Handler).serve_forever, daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
PYTHON
coproc SERVER { exec python3 server.py; }
read -r _ <&"${SERVER[0]}"
trap 'kill "$SERVER_PID"' EXIT

asked() { # asked COUNT WHAT: how many private addresses were asked
    n=0
    [ ! -e asked ] || n=$(grep -cvE '^93\.' asked) || true
    rm -f asked
    [ "$n" = "$1" ] || fail "$n requests at private addresses, not $1: $2"
}
public=http://93.184.216.34
for place in 10.0.0.5 169.254.169.254 127.0.0.1 0x0a000005 167772165 012.0.0.5 0.0.0.0 10.5 '[::ffff:10.0.0.5]' '[::ffff:a9fe:a9fe]' \
    '[fd00:ec2::254]' '[::1]' '[64:ff9b::a00:5]' '[2002:a00:5::1]' inside.example.com nas localhost localhost. keys.internal; do
    expect 74 "$BIN/ccdump" info "$public/to/$place/ds" --cache cache
    asked 0 "a redirect to $place"
done
grep -rl AccessKey cache && fail "keys in the cache"
for place in inside.example.com keys.internal; do
    expect_message 74 'its address is private; to allow that: --allow-private' "$BIN/ccdump" info "http://$place/ds"
    asked 0 "$place"
done
# A redirect of a private server leads to its like, but not to this machine or the metadata service.
expect 0 "$BIN/ccdump" info http://10.0.0.5/to/10.0.0.6/ds
rm asked
for place in 127.0.0.1 169.254.169.254 '[::1]' nas; do
    expect 74 "$BIN/ccdump" info "http://10.0.0.5/to/$place/ds"
    [ "$(grep -cv '^10.0.0.5 /to/' asked)" = 0 ] || fail "10.0.0.5 led to $place"
done
# By way of a public server there is no way back.
expect 74 "$BIN/ccdump" info "http://10.0.0.5/to/93.184.216.34/to/10.0.0.6/ds"
grep -q '^10.0.0.6' asked && fail "led back to a private server"
rm asked
# One's own.
for place in http://10.0.0.5/ds http://nas/ds http://127.0.0.1/ds http://localhost/ds http://open.example.com/ds; do
    expect 0 "$BIN/ccdump" info "$place"
done
expect 0 "$BIN/ccdump" info http://inside.example.com/ds --allow-private
expect 0 "$BIN/ccdump" info "$public/to/10.0.0.5/ds" --allow-private
mkdir www/bucket && cp -r www/ds www/bucket/ds
expect 0 "$BIN/ccdump" info s3://bucket/ds --endpoint http://inside.example.com
rm -f asked

# ccpack fetch.
printf 'url,caption\n' >list.csv
for place in 10.0.0.5 127.0.0.1 '[::ffff:10.0.0.5]' inside.example.com nas keys.internal; do
    printf '%s\n' "http://$place/x.jpg,x" "$public/to/$place/x.jpg,x" >>list.csv
done
expect 65 "$BIN/ccpack" fetch list.csv -o fetched --attempts 1 --no-robots
asked 0 "ccpack fetch"
# The metadata service is not asked through a proxy.
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
http_proxy=http://93.184.216.34 AWS_SHARED_CREDENTIALS_FILE=/dev/null "$BIN/ccdump" info s3://bucket/ds --endpoint http://93.184.216.34 \
    --instance-metadata >out.txt 2>err.txt && fail "there are no keys"
grep -q '^169.* /latest/api/token' asked || fail "the metadata service was not asked"
grep '^93.*api/token' asked && fail "the proxy saw a request for keys"
true
