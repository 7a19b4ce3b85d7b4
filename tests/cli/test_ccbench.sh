# ccbench loader: its keys, a digest that depends on seed and data alone, and its refusals.
set -eu
fail() {
    echo "FAILED: $*"
    exit 1
}
expect() { # expect CODE COMMAND...
    want=$1
    shift
    code=0
    "$@" >out.txt 2>err.txt || code=$?
    [ "$code" = "$want" ] || { cat out.txt err.txt; fail "exit code $code, not $want: $*"; }
}
has() { # has FILE TEXT
    grep -qF -- "$2" "$1" || { cat "$1"; fail "no '$2' in $1"; }
}
digest() { # digest OPTION...: of the dataset d
    expect 0 "$BIN/ccbench" loader d --json --image-size 32 --seconds 100ms "$@"
    sed 's/.*"digest":"\([0-9a-f]*\)".*/\1/' out.txt
}

"$TESTBIN/make_pictures" d 120

one=$(digest --threads 1 --engine pread)
for key in pairs_per_s limit_pairs_per_s ratio digest digest_pairs engine threads image_size batch \
    seed samples fingerprint loader; do
    has out.txt "\"$key\":"
done
has out.txt '"engine":"pread","threads":1,"image_size":32,"batch":120,"seed":0,"samples":120'
has out.txt '"digest_pairs":120'
[ "$(wc -l <out.txt)" = 1 ] || fail "one line of JSON"
[ ${#one} = 16 ] || fail "digest '$one'"
[ "$one" = "$(digest --threads 4)" ] || fail "four threads, another digest"
[ "$one" = "$(digest --threads 2 --batch 7)" ] || fail "another batch, another digest"
[ "$one" != "$(digest --seed 1)" ] || fail "another seed, the same digest"
[ "$one" != "$(digest --digest-batches 1 --batch 50)" ] || fail "less data, the same digest"
has out.txt '"digest_pairs":50'

expect 0 "$BIN/ccbench" loader d --image-size 32 --seconds 100ms
has out.txt "pairs/s"
has out.txt "ratio"

expect 66 "$BIN/ccbench" loader nowhere
has err.txt nowhere/dataset.json
expect 64 "$BIN/ccbench" loader
expect 64 "$BIN/ccbench" loader d --engine mmap
expect 64 "$BIN/ccbench" nonsense
expect 0 "$BIN/ccbench" --help
has out.txt loader

"$TESTBIN/make_pictures" bad 120 30 300
expect 0 "$BIN/ccbench" loader bad --image-size 32 --seconds 100ms --json
has out.txt '"replaced":'
