#!/bin/bash
# A robots.txt made to be slow costs the fetch thread, which all hosts share, little.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
mkdir www
cp "$SRC/README.md" www/x.jpg
python3 - <<'PYTHON'
open("www/robots.txt", "w").write("User-agent: *\n" + "".join("Disallow: /*%sb\n" % ("a" * (1900 - i)) for i in range(33)))
PYTHON
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www; }
read -r port <&"${SERVER[0]}"
trap 'kill "$SERVER_PID"' EXIT
{ echo url,caption; for i in $(seq 20); do printf 'http://127.0.0.1:%s/%s%s,x\n' "$port" "$(printf 'a%.0s' $(seq 3900))" "$i"; done; } >list.csv
code=0
before=$(awk '{ print $16 }' /proc/$$/stat)
"$BIN/ccpack" fetch list.csv -o out --allow-private --attempts 1 --rate-per-host 0 >out.txt 2>err.txt || code=$?
after=$(awk '{ print $16 }' /proc/$$/stat)
[ "$code" = 65 ] || fail "exit code $code"
has err.txt "20 robots"
[ $(((after - before) * 1000 / $(getconf CLK_TCK))) -lt 2000 ] || fail "$((after - before)) ticks of CPU for 20 URLs"
