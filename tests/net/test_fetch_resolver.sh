#!/bin/bash
# ccpack fetch --resolver: names that only a server of DNS over HTTPS knows, several servers, servers that go wrong,
# addresses that are private.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
command -v openssl >which.txt || { echo "skipped: no openssl"; exit 77; }
unset http_proxy https_proxy HTTPS_PROXY all_proxy ALL_PROXY no_proxy NO_PROXY

"$TESTBIN/make_scenes" val 12 1 32 scenes.tar >/dev/null
mkdir www && tar xf scenes.tar -C www
image=$(cd www && ls | grep -m1 'jpg$')
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=test \
    -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" -keyout good.key -out good.crt 2>openssl.txt ||
    fail "openssl: $(cat openssl.txt)"
cat good.key good.crt >good.pem
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www; }
read -r port <&"${SERVER[0]}"
trap 'kill $SERVER_PID 2>/dev/null' EXIT

for i in $(seq 40); do echo "host$i.test 127.0.0.1"; done >names.txt
cat >>names.txt <<NAMES
alias.test alias:host1.test
two.test 127.0.0.1 ::1
xn--mnchen-3ya.test 127.0.0.1
private.test 10.0.0.1
local.test ::1
mapped.test ::ffff:127.0.0.1
mail.test
NAMES
exec 3< <(exec python3 "$SRC/tests/net/doh_server.py" good.pem names.txt one.txt)
read -r one <&3
exec 4< <(exec python3 "$SRC/tests/net/doh_server.py" good.pem names.txt two.txt)
read -r two <&4
one=https://127.0.0.1:$one/dns-query two=https://localhost:$two/dns-query

list() { # list HOST...
    for name in "$@"; do printf 'c\thttp://%s:%s/%s\n' "$name" "$port" "$image"; done >list.tsv
}
fetch() { # fetch CODE DIR OPTION...
    local want=$1 directory=$2
    shift 2
    expect "$want" "$BIN/ccpack" fetch --json -o "$directory" --ca-file good.crt --rate-per-host 0 --attempts 1 "$@" list.tsv
}
failed() { # failed DIR ROW REASON TEXT: by the ledger
    grep "\"row\":$2," "$1/fetch/ledger.jsonl" >line.txt || fail "row $2 is not in $1/fetch/ledger.jsonl"
    has line.txt "\"reason\":\"$3\""
    has line.txt "$4"
}

# Names that nobody else knows, robots.txt included, which asks for the host's rows too: one question of each kind for
# each name. An alias, an address of each kind, a name with a dot at its end, one with other letters.
list host1.test host1.test host2.test host2.test host1.test alias.test two.test host3.test. münchen.test
fetch 0 known --allow-private --resolver "$one"
[ "$(field out.txt fetched)" = 9 ] || fail "$(cat out.txt err.txt)"
[ -z "$(sort one.txt | uniq -d)" ] || fail "asked again: $(sort one.txt | uniq -d)"
grep -q '^xn--mnchen-3ya.test A$' one.txt || fail "$(cat one.txt)"
fetch 65 unknown --allow-private --no-robots
has err.txt "9 dns"

# Addresses are not looked up.
: >one.txt
list 127.0.0.1 localhost
fetch 0 addresses --allow-private --resolver "$one"
lines one.txt 0

# What a name leads to is judged like any address.
list host1.test private.test local.test mapped.test
fetch 65 private --no-robots --resolver "$one"
has err.txt "4 private"

# No such name, and one without an address.
list host1.test nobody.test mail.test "$(printf 'a%.0s' {1..64}).test"
fetch 0 nobody --allow-private --no-robots --resolver "$one{?dns}"
for row in 1 2 3; do failed nobody $row dns http; done

# Two servers share the hosts, and each host stays with one.
: >one.txt
: >two.txt
list $(for i in $(seq 40); do echo "host$i.test host$i.test"; done)
fetch 0 shared --allow-private --no-robots --resolver "$one,$two"
[ "$(field out.txt fetched)" = 80 ] || fail "$(cat out.txt)"
cut -d' ' -f1 one.txt | sort -u >first.txt
cut -d' ' -f1 two.txt | sort -u >second.txt
[ "$(comm -12 first.txt second.txt | wc -l)" = 0 ] || fail "asked of both: $(comm -12 first.txt second.txt)"
for log in first.txt second.txt; do
    [ "$(wc -l <$log)" -ge 10 ] || fail "$log has $(wc -l <$log) of 40 hosts"
done

# A server that goes wrong is a reason of its rows, and nothing worse.
list host1.test host2.test
for how in nothing status servfail text cut question; do
    exec 5< <(exec python3 "$SRC/tests/net/doh_server.py" good.pem names.txt bad.txt --say "$how")
    read -r bad <&5
    fetch 65 "bad-$how" --allow-private --no-robots --resolver "https://127.0.0.1:$bad/"
    has err.txt "2 dns"
done
exec 5< <(exec python3 "$SRC/tests/net/doh_server.py" good.pem names.txt bad.txt --say silent)
read -r silent <&5
fetch 65 bad-silent --allow-private --no-robots --connect-timeout 1s --resolver "https://127.0.0.1:$silent/"
has err.txt "2 timeout"
fetch 65 nowhere --allow-private --no-robots --resolver https://127.0.0.1:9/
has err.txt "2 dns"

# Its certificate is verified.
expect 65 "$BIN/ccpack" fetch -o untrusted --allow-private --no-robots --attempts 1 --resolver "$one" list.tsv
has err.txt "2 dns"

# A run that ends while it waits for names.
: >bad.txt
"$BIN/ccpack" fetch -o stopped --ca-file good.crt --allow-private --resolver "https://127.0.0.1:$silent/" list.tsv 2>err.txt &
pid=$!
until [ "$(wc -l <bad.txt)" -gt 0 ]; do sleep 0.02; done
kill -INT $pid
code=0
wait $pid || code=$?
[ "$code" = 130 ] || fail "exit code $code after Ctrl-C: $(cat err.txt)"

# Mistakes.
for wrong in http://127.0.0.1/ "$one," "$one,192.0.2.1" ftp://192.0.2.1; do
    fetch 64 wrong --resolver "$wrong"
    has err.txt resolver
done
http_proxy=http://127.0.0.1:9 fetch 64 wrong --resolver "$one"
has err.txt "unset http_proxy"
[ ! -e wrong ] || fail "a mistake made a directory"

# IP addresses: if libcurl can ask them, the server at a closed port fails to answer.
for servers in 127.0.0.1:9,[::1]:9 dns.test; do
    code=0
    "$BIN/ccpack" fetch -o by-address --allow-private --no-robots --attempts 1 --connect-timeout 2s \
        --resolver "$servers" list.tsv 2>err.txt || code=$?
    case $code in
    69) has err.txt "https://HOST/dns-query" ;;
    64) has err.txt "not an IP address" ;;
    65) grep -qE '2 (dns|timeout)' err.txt || fail "$(cat err.txt)" ;;
    *) fail "exit code $code: $(cat err.txt)" ;;
    esac
done
