# ccbench loader: its keys, a digest that depends only on the data and the seed, the ids it lists, and
# refusals.
. "$SRC/tests/support/cli.sh"
loader() { # loader OPTION...
    expect 0 "$BIN/ccbench" loader --json --size 32 --batch-size "${batch:-20}" "$@"
}
digest() { # digest OPTION...
    loader --digest "$@"
    sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/' out.txt
}
ids() { # ids FILE: the ids of a dump, in order
    sed 's/.*"ids":\[\([0-9,]*\)\].*/\1/' "$1" | tr ',' '\n' | grep . || true
}

"$TESTBIN/make_images" d 120
"$TESTBIN/make_images" e 60

one=$(digest d --threads 1 --io-engine pread)
for key in pairs pairs_per_s stall_fraction peak_rss_bytes rss_batches rss_bytes digest stages engine; do
    has out.txt "\"$key\":"
done
has out.txt '{"pairs":120,"pairs_per_s":'
has out.txt '"engine":"pread"'
has out.txt '"threads":1'
[ "$(wc -l <out.txt)" = 1 ] || fail "one line of JSON"
[ ${#one} = 16 ] || fail "digest '$one'"
[ "$one" = "$(digest d --threads 4)" ] || fail "four threads give another digest"
[ "$one" = "$(batch=7 && digest --data d --threads 8 --keep-last)" ] || fail "another batch, another digest"
[ "$one" = "$(digest d --io-engine pread --direct)" ] || fail "O_DIRECT, another digest"
[ "$one" = "$(digest d --prefetch 1)" ] || fail "fewer batches ahead, another digest"
has out.txt '"queue_capacity":2}}' # of the batches: those ahead and the one in hand
[ "$one" != "$(digest d --seed 1)" ] || fail "another seed, the same digest"
[ "$one" != "$(digest d --steps 3)" ] || fail "less data, the same digest"
has out.txt '"pairs":60,'
hasnt out.txt '"limit_' # it is not of a run that hashes
loader d --steps 9 # of an epoch of six batches
has out.txt '"pairs":180,'
for key in limit_pairs_per_s ratio limit_cpu_s; do
    grep -q "\"$key\":[0-9.]*[1-9]" out.txt || fail "no $key"
done
# Memory in use: a list of 32 to 64 samples for a run of any length.
loader d --steps 200
has out.txt '"rss_batches":4,"rss_bytes":['
samples=$(sed 's/.*"rss_bytes":\[\([0-9,]*\)\].*/\1/' out.txt | tr "," "\n" | grep -c "^[1-9][0-9]*$")
[ "$samples" = 50 ] || fail "$samples samples of memory in 200 batches, 50 expected"
loader d --steps 9 --epochs 1
has out.txt '"pairs":120,'
[ "$one" != "$(digest d --augment none)" ] || fail "other images, the same digest"
[ "$one" != "$(digest d --views 2)" ] || fail "two views, the same digest"
loader d
has out.txt '"digest":null'

# --io-engine io_uring never falls back: it is refused if the kernel has no io_uring.
code=0
"$BIN/ccbench" loader d --size 32 --batch-size 20 --json --digest --io-engine io_uring >out.txt 2>err.txt || code=$?
if [ $code = 0 ]; then
    has out.txt '"engine":"io_uring"'
    has out.txt "\"digest\":\"$one\""
else
    [ $code = 70 ] || [ $code = 69 ] || [ $code = 78 ] || fail "exit code $code"
    has err.txt io_uring
fi

# Orders and ids. The loader's own tests have all orders under sanitizers.
orders="global sequential block:8 block:8:2"
[ -z "${CCS_SANITIZE:-}" ] || orders=block:8:2
for order in $orders; do
    loader d --order $order --epochs 2 --dump-ids ids.txt --force
    [ "$(wc -l <ids.txt)" = 12 ] || fail "$order: lines of ids"
    [ "$(ids ids.txt | sort -n | uniq -c | awk '$1 != 2' | wc -l)" = 0 ] || fail "$order: every id twice"
    [ "$(ids ids.txt | wc -l)" = 240 ] || fail "$order: count of ids"
    cp ids.txt whole.txt
    # From the middle: the end of the whole run.
    loader d --order $order --epochs 2 --from 0:4 --dump-ids ids.txt --force
    tail -n +5 whole.txt | cmp - ids.txt || fail "$order: from 0:4"
    loader d --order $order --from 1:2 --dump-ids ids.txt --force
    tail -n +9 whole.txt | cmp - ids.txt || fail "$order: from 1:2"
    # Three ranks together.
    for rank in 0 1 2; do
        loader d --order $order --epochs 2 --ranks 3 --rank $rank --dump-ids r$rank.txt --force
        has r$rank.txt "\"rank\":$rank,"
    done
    for line in 1 6 12; do
        for rank in 0 1 2; do
            sed -n ${line}p r$rank.txt >line.txt
            ids line.txt
        done >union.txt
        sed -n ${line}p whole.txt >line.txt
        ids line.txt | cmp - union.txt || fail "$order: ranks of batch $line"
    done
done
head -n 1 whole.txt | grep -q '^{"epoch":0,"step":0,"rank":0,"ids":\[[0-9,]*\]}$' || fail "line of ids"
loader d --order sequential --dump-ids ids.txt --force
[ "$(ids ids.txt | head -n 3 | tr '\n' ' ')" = "0 3 6 " ] || fail "sequential ids"

# A mix: two thirds and one third of 180; ids of the second dataset follow those of the first.
loader --data d:2 --data e:1 --dump-ids ids.txt --force
[ "$(ids ids.txt | awk '$1 < 358' | wc -l)" = 120 ] || fail "share of the first dataset"
[ "$(ids ids.txt | awk '$1 >= 358' | wc -l)" = 60 ] || fail "share of the second dataset"
mixed=$(digest --data d:1 --data e:1 --threads 1)
[ "$mixed" = "$(digest d:1 e:1 --threads 3)" ] || fail "a mix, three threads"

# A filter keeps the ids.
loader d --filter label=3..4 --dump-ids ids.txt --force --keep-last
[ "$(ids ids.txt | awk '{ i = $1 / 3; if (i % 10 < 3 || i % 10 > 4 || i % 7 == 3) print }' | wc -l)" = 0 ] ||
    fail "ids of the filter"
[ "$(ids ids.txt | wc -l)" -gt 15 ] || fail "the filter rejects everything"

# A slow consumer does not wait.
loader d --consumer-ms 20 --steps 5
awk -F'"stall_fraction":' '{ split($2, a, ","); exit !(a[1] < 0.5) }' out.txt || fail "stall of a slow consumer"

expect 0 "$BIN/ccbench" loader d --size 32 --batch-size 20
has out.txt "ratio: "
expect 0 "$BIN/ccbench" loader d --size 32 --batch-size 20 --digest
has out.txt "pairs_per_s: "
has out.txt "$one"

expect 66 "$BIN/ccbench" loader nowhere
has err.txt "nowhere: no such dataset"
expect 64 "$BIN/ccbench" loader
expect 64 "$BIN/ccbench" loader d --batch-size 121
expect 64 "$BIN/ccbench" loader d --io-engine mmap
expect 64 "$BIN/ccbench" loader d --order random
expect 64 "$BIN/ccbench" loader d --order block:0
expect 64 "$BIN/ccbench" loader d --from 3
expect 64 "$BIN/ccbench" loader d --ranks 2 --rank 2
expect 64 "$BIN/ccbench" loader d --filter width=3
expect 64 "$BIN/ccbench" loader d:0.5 e
has err.txt "has a weight and"
expect 64 "$BIN/ccbench" nonsense
expect 0 "$BIN/ccbench" --help
has out.txt loader

"$TESTBIN/make_images" bad 120 30 300
loader bad --quarantine q.jsonl --epochs 2
has out.txt '"replaced":4,"corrupt":2'
[ "$(wc -l <q.jsonl)" = 2 ] || fail "lines of the quarantine file"
has q.jsonl '"dataset":"bad","id":30,"position":10,"reason":"the image'
