#!/bin/bash
# ccpack fetch --append: another list's rows follow, those whose URL is there are skipped; kills, resumes
# and retries of either list keep every id; --verify sha256 refuses other images.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }

"$TESTBIN/make_scenes" val 12 1 48 scenes.tar >/dev/null
mkdir www && tar xf scenes.tar -C www
coproc SERVER { exec python3 "$SRC/tests/net/fault_server.py" www --seed 1; }
read -r port <&"${SERVER[0]}"
trap 'kill "$SERVER_PID" 2>/dev/null' EXIT
images=($(ls www | grep jpg))
row() { printf 'caption %s\thttp://127.0.0.1:%s/%s?row=%s%s\n' "$1" "$port" "${images[$(($1 % 12))]}" "$1" "$2"; }
fast="--allow-private --no-robots --rate-per-host 0 --per-host 32 --attempts 1"

# Names of columns as data sets have them; the first list, one row of which fails.
{ printf 'caption\tImage Path\n'; for i in $(seq 0 19); do row "$i" "$([ "$i" = 7 ] && echo '&fault=404')"; done; } >one.tsv
expect 0 "$BIN/ccpack" fetch -o d $fast --resize short:32 --shard-samples 6 one.tsv
for column in coco_url url.txt; do
    sed "1s/Image Path/$column/" one.tsv >named.tsv
    expect 0 "$BIN/ccpack" fetch -o "$column" $fast named.tsv
done

# The second has 10 rows of the first and 15 new ones, one of which fails. The settings are the dataset's.
{ printf 'caption\turl\tsource\n'
  for i in $(seq 10 34); do row "$i" "$([ "$i" = 30 ] && echo '&fault=404' || { [ "$i" -lt 20 ] || echo '&fault=latency:40'; })" | sed 's/$/\tweb/'; done; } >two.tsv
cp -r d killed
expect 0 "$BIN/ccpack" fetch --json -o d $fast --append two.tsv
has err.txt "as the dataset in d: --resize short:32"
has err.txt "10 rows skipped, whose URL was there"
[ "$(field out.txt skipped)" = 10 ] && [ "$(field out.txt fetched)" = 14 ] || fail "$(cat out.txt)"
expect 0 "$BIN/ccdump" verify d
expect 0 "$BIN/ccdump" show d --id 44 --json # row 24 of the second list, after 20 of the first
has out.txt '"caption 34"'
has out.txt '"source":"web"'

# What is there already is not appended again, and says so.
expect 65 "$BIN/ccpack" fetch -o d $fast --append two.tsv
has err.txt "the dataset has a list of this name"
cp two.tsv again.tsv
expect 65 "$BIN/ccpack" fetch -o d $fast --append again.tsv
has err.txt "contains the rows of this source"
head -12 two.tsv >fewer.tsv
cp -r d before
expect 0 "$BIN/ccpack" fetch -o d $fast --append fewer.tsv
has err.txt "the ledger has every URL of the list: nothing to append"
cmp before/dataset.json d/dataset.json || fail "an append of nothing changed the dataset"

# A retry finds the rows of each list.
sed 's/&fault=404//' one.tsv >cured && cp cured one.tsv
sed 's/&fault=404//' two.tsv >cured && cp cured two.tsv
expect 0 "$BIN/ccpack" fetch --json -o d $fast --retry 4xx two.tsv
[ "$(field out.txt fetched)" = 1 ] || fail "$(cat out.txt)"
expect 0 "$BIN/ccdump" show d --id 40 --json
has out.txt '"caption 30"'
expect 0 "$BIN/ccpack" fetch --json -o d $fast --retry 4xx one.tsv
expect 0 "$BIN/ccdump" show d --id 7 --json
has out.txt '"caption 7"'

# Killed and resumed: the bytes of an undisturbed append. An append that begins again loses nothing.
cp -r killed whole
cp -r killed begun
expect 0 "$BIN/ccpack" fetch -o whole $fast --append two.tsv
"$BIN/ccpack" fetch -q -o killed $fast -c 1 --append two.tsv 2>err.txt &
pid=$!
for i in $(seq 500); do [ "$(grep -c '"row":3[0-9]' killed/fetch/ledger.jsonl)" -gt 4 ] && break; sleep 0.01; done
kill -KILL $pid
wait $pid 2>/dev/null || true
cp killed/fetch/ledger.jsonl begun/fetch/
expect 0 "$BIN/ccpack" fetch --json -o killed $fast --append --resume two.tsv
[ "$(field out.txt known)" -gt 4 ] || fail "$(cat out.txt): what was fetched was requested again"
for file in dataset.json rejects.jsonl; do cmp "killed/$file" "whole/$file" || fail "$file of a killed append differs"; done
expect 0 "$BIN/ccpack" fetch --json -o begun $fast --append two.tsv
cmp begun/dataset.json whole/dataset.json || fail "an append that begins again differs"
expect 64 "$BIN/ccpack" fetch -o d $fast --append --retry 4xx two.tsv

# --verify sha256
{ printf 'caption,url,sha256\n'
  for i in 0 1 2; do
      sum=$(sha256sum "www/${images[$i]}")
      row "$i" "" | tr '\t\n' ',,'
      [ "$i" = 1 ] && echo "${sum//[0-7]/8}" || echo "${sum^^}"
  done | sed 's/  *[wW].*//'; } >sums.csv
expect 0 "$BIN/ccpack" fetch --json -o sums $fast --verify sha256 sums.csv
has out.txt '"reasons":{"sha256":1}'
has sums/fetch/ledger.jsonl "the list says"
expect 64 "$BIN/ccpack" fetch -o none $fast --verify sha256 one.tsv
has err.txt "needs a column 'sha256'"
expect 64 "$BIN/ccpack" fetch -o none $fast --image-column absent one.tsv
has err.txt "no column is named 'absent'"
