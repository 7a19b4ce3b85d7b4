#!/bin/bash
# ccpack fetch over TLS: certificates are verified, also through a proxy, and over HTTP/2.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
command -v openssl >which.txt || { echo "skipped: no openssl"; exit 77; }
unset http_proxy https_proxy HTTPS_PROXY all_proxy ALL_PROXY no_proxy NO_PROXY

"$TESTBIN/make_scenes" val 12 1 32 scenes.tar >/dev/null
mkdir www && tar xf scenes.tar -C www
images=$(cd www && ls | grep 'jpg$')
certificate() { # certificate NAME SUBJECTS OPTION...: NAME.pem with its key, NAME.crt without
    local name=$1 subjects=$2
    shift 2
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test \
        -addext "subjectAltName=$subjects" -keyout "$name.key" -out "$name.crt" "$@" 2>openssl.txt ||
        fail "openssl: $(cat openssl.txt)"
    cat "$name.key" "$name.crt" >"$name.pem"
}
certificate good DNS:localhost,DNS:images.test,IP:127.0.0.1
certificate other DNS:other.test
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www --tls good.pem; }
read -r port <&"${SERVER[0]}"
exec 3< <(exec python3 "$SRC/tests/net/fault_server.py" www --tls other.pem)
read -r other <&3
exec 4< <(exec python3 "$SRC/tests/net/proxy.py" "$port" proxy.txt)
read -r proxy <&4
nginx=
trap 'kill $SERVER_PID $nginx 2>/dev/null' EXIT
list() { # list ORIGIN: every image, with its name as caption
    for name in $images; do printf '%s\t%s/%s\n' "$name" "$1" "$name"; done >list.tsv
}
fetch() { # fetch CODE DIR OPTION...
    local want=$1 directory=$2
    shift 2
    expect "$want" "$BIN/ccpack" fetch --json -o "$directory" --rate-per-host 0 --attempts 1 "$@" list.tsv
}
fetched_all() {
    [ "$(field out.txt fetched)" = 12 ] || fail "$(cat out.txt)"
}

# Trusted by --ca-file; not trusted without it; another name than the certificate's.
list "https://127.0.0.1:$port"
fetch 0 trusted --allow-private --ca-file good.crt
fetched_all
fetch 65 untrusted --allow-private --no-robots
has err.txt "12 tls"
grep -qi 'the first failure: .*certificate' err.txt || fail "no reason: $(cat err.txt)"
list "https://127.0.0.1:$other"
fetch 65 wrong-name --allow-private --no-robots --ca-file other.crt
has err.txt "12 tls"
grep -qiE 'first failure: .*(name|match)' err.txt || fail "$(cat err.txt)"

# The reason is the same where robots.txt is asked for first.
list "https://127.0.0.1:$port"
fetch 65 robots --allow-private
has err.txt "12 tls"

# The proxy sees the name and no more.
list https://images.test
https_proxy=http://127.0.0.1:$proxy fetch 0 proxied --ca-file good.crt
fetched_all
[ "$(sort -u proxy.txt)" = "CONNECT images.test:443" ] || fail "$(cat proxy.txt)"
https_proxy=http://127.0.0.1:$proxy fetch 65 proxied-untrusted --no-robots
has err.txt "12 tls"

# HTTP/2, from nginx.
if ! command -v nginx >which.txt || ! nginx -V 2>&1 | grep -q http_v2; then
    echo "no nginx with HTTP/2: not tested over it"
    exit 0
fi
free=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
user=
[ "$(id -u)" != 0 ] || user='user root;'
cat >nginx.conf <<CONF
$user
daemon off;
pid $PWD/nginx.pid;
error_log $PWD/error.txt;
events {}
http {
    log_format seen '\$server_protocol \$connection \$status \$uri';
    access_log $PWD/seen.txt seen;
    client_body_temp_path $PWD/temp; proxy_temp_path $PWD/temp; fastcgi_temp_path $PWD/temp;
    uwsgi_temp_path $PWD/temp; scgi_temp_path $PWD/temp;
    server {
        listen 127.0.0.1:$free ssl http2;
        ssl_certificate $PWD/good.crt;
        ssl_certificate_key $PWD/good.key;
        root $PWD/www;
    }
}
CONF
nginx -c "$PWD/nginx.conf" 2>nginx.txt &
nginx=$!
until [ -s nginx.pid ]; do # a hang ends with the test's timeout
    kill -0 $nginx || fail "nginx: $(cat nginx.txt error.txt)"
    sleep 0.02
done
list "https://localhost:$free"
fetch 0 two --allow-private --ca-file good.crt
fetched_all
kill -QUIT $nginx && wait $nginx # once everything is in its log
lines seen.txt 13
[ "$(grep -c '^HTTP/2' seen.txt)" = 13 ] || fail "not all over HTTP/2: $(cat seen.txt)"
[ "$(cut -d' ' -f2 seen.txt | sort -u | wc -l)" -le 2 ] || fail "more than two connections: $(cat seen.txt)"
