#!/bin/bash
# ccpack fetch through the proxies of the environment, around them by no_proxy, and over IPv6.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
unset http_proxy https_proxy HTTPS_PROXY all_proxy ALL_PROXY no_proxy NO_PROXY

"$TESTBIN/make_scenes" val 12 1 32 scenes.tar >/dev/null
mkdir www && tar xf scenes.tar -C www
images=$(cd www && ls | grep 'jpg$')
printf 'User-agent: *\nDisallow: /%s\n' "$(echo "$images" | head -1)" >www/robots.txt
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www; }
read -r port <&"${SERVER[0]}"
exec 3< <(exec python3 "$SRC/tests/net/proxy.py" "$port" proxy.txt)
read -r proxy <&3
exec 4< <(exec python3 "$SRC/tests/net/fault_server.py" www --host ::1 2>&1)
read -r port6 <&4
trap 'kill "$SERVER_PID" 2>/dev/null' EXIT
list() { # list ORIGIN: every image, with its name as caption
    for name in $images; do printf '%s\t%s/%s\n' "$name" "$1" "$name"; done >list.tsv
}
fetch() { # fetch CODE DIR OPTION...
    local want=$1 directory=$2
    shift 2
    expect "$want" "$BIN/ccpack" fetch --json -o "$directory" --rate-per-host 0 --attempts 1 "$@" list.tsv
}

# The proxy knows a name that nobody else does; that its own address is private refuses nothing.
list http://images.test
http_proxy=http://127.0.0.1:$proxy fetch 0 proxied
[ "$(field out.txt fetched) $(field out.txt excluded)" = "11 1" ] || fail "$(cat out.txt)"
lines proxy.txt 12 # robots.txt once, and an image is excluded
has proxy.txt "GET http://images.test/robots.txt"
has proxy.txt "GET http://images.test/$(echo "$images" | tail -1)"

# A private address in the list is refused, whoever would connect to it.
list "http://127.0.0.1:$port"
http_proxy=http://127.0.0.1:$proxy fetch 65 private
has err.txt "12 private"
lines proxy.txt 12

# Hosts in no_proxy are asked directly, others are not.
http_proxy=http://127.0.0.1:$proxy no_proxy=other.test,127.0.0.1 fetch 0 direct --allow-private
lines proxy.txt 12
cmp proxied/rejects.jsonl direct/rejects.jsonl
for directory in proxied direct; do
    expect 0 "$BIN/ccdump" ls "$directory"
    cp out.txt $directory.txt
done
lines direct.txt 11
cmp proxied.txt direct.txt
http_proxy=http://127.0.0.1:$proxy no_proxy=other.test fetch 0 through --allow-private
lines proxy.txt 24

# A proxy that nobody runs at is a failure to connect that names it.
http_proxy=http://127.0.0.1:9 fetch 65 none --no-robots --allow-private
has err.txt "12 connect"
has err.txt "127.0.0.1 port 9"

# IPv6.
if [ -n "$port6" ] && [ "$port6" -gt 0 ] 2>/dev/null; then
    list "http://[::1]:$port6"
    fetch 0 six --allow-private
    [ "$(field out.txt fetched) $(field out.txt excluded)" = "11 1" ] || fail "$(cat out.txt)"
    fetch 65 six-refused
    has err.txt "12 private"
    list "http://[::ffff:127.0.0.1]:$port"
    fetch 65 mapped-refused
    has err.txt "12 private"
else
    echo "no IPv6 loopback: not tested over it"
fi
