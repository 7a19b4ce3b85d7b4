# ccstudy gradient: numbers repeat by their seed, an interrupted study ends with the numbers of an uninterrupted one,
# and methods stand in the order that their biases demand.
# not under sanitizers: it computes; the kernels and losses have unit tests
. "$SRC/tests/support/cli.sh"
small="--quick --samples 40 --steps 80 --lr 0.01 --lr 0.03 --seed 1"
numbers() { # numbers FILE: without the times
    sed 's/"seconds":[^,}]*//g' "$1"
}

expect 0 "$BIN/ccstudy" gradient $small --json -o studies
cp err.txt figures.txt
cmp out.txt studies/gradient.json || fail "--json is not what the file has"
[ ! -e studies/gradient.part.json ] || fail "a finished study leaves its parts"
numbers out.txt >first.txt
methods=$(sed 's/"grid".*//' first.txt | grep -o '"method"' | wc -l)
[ "$(sed 's/.*"grid"//;s/"trace".*//' first.txt | grep -o '"method"' | wc -l)" = $((2 * methods)) ] || fail "runs of the grid"
[ "$(sed 's/.*"trace"//' first.txt | grep -o '"method"' | wc -l)" = $((41 * methods)) ] || fail "points of the curves"
grep 'id="ccstream-page"' studies/gradient.html >data.txt
[ "$(grep -o '"kind":"lines"' data.txt | wc -l)" = 4 ] || fail "figures"
grep -q matplotlib figures.txt || [ "$(find studies -name '*.svg' -size +4k | wc -l)" = 4 ] || fail "figures as files"
hasnt data.txt 'NaN'
hasnt data.txt 'http'

# ---- interrupted after its first method, and resumed
"$BIN/ccstudy" gradient $small -o parts -q >/dev/null 2>&1 &
pid=$!
while [ ! -e parts/gradient.part.json ] && kill -0 $pid; do sleep 0.02; done
kill -INT $pid
code=0
wait $pid || code=$?
[ $code != 0 ] || fail "finished before it was interrupted"
[ ! -e parts/gradient.json ] || fail "numbers of an unfinished study"
cp -r parts other
expect 64 "$BIN/ccstudy" gradient $small --lr 0.1 -o other --resume
has err.txt 'belongs to a study with other options'
expect 0 "$BIN/ccstudy" gradient $small -o parts --resume --json -q
numbers out.txt | cmp - first.txt || fail "resumed, other numbers"

# ---- another seed, other numbers: the loss of the first step, which the number of steps does not change
expect 0 "$BIN/ccstudy" gradient --quick --samples 40 --steps 3000 --lr 0.01 --json
mv out.txt whole.txt
for file in first whole; do
    sed 's/.*"trace"//' $file.txt | tr '{' '\n' | sed -n 's/.*"step":0,.*"L":\([^,]*\),.*/\1/p' | sort -u >$file.start
    lines $file.start 1
done
cmp -s first.start whole.start && fail "another seed, the same numbers"

# ---- what the page says: less bias, a lower gradient
value() { # value METHOD NAME
    sed 's/"grid".*//' whole.txt | tr '{' '\n' | grep "\"method\":\"$1\"" | tr ',' '\n' | sed -n 's/^"'"$2"'":\([^]}]*\).*/\1/p'
}
below() { # below METHOD NAME FACTOR OTHER
    awk -v a="$(value "$1" "$2")" -v b="$(value "$4" "$2")" -v f="$3" 'BEGIN { exit !(a > 0 && a < f * b) }' ||
        fail "$2 of $1, $(value "$1" "$2"), is not below $3 times that of $4, $(value "$4" "$2")"
}
below emc2-view scaled_bias2 0.3 simclr
below emc2-view scaled_bias2 0.3 emc2-encode
below sogclr-0.1 scaled_bias2 0.3 sogclr-0.9
below emc2-view scaled_norm2 0.8 emc2-encode
below sogclr-0.1 scaled_norm2 0.7 simclr

# ---- what is refused
expect 64 "$BIN/ccstudy" gradient --samples 41
has err.txt 'an even number'
expect 64 "$BIN/ccstudy" gradient --lr 0
has err.txt "--lr '0' is not a number"
expect 64 "$BIN/ccstudy" gradient --resume
has err.txt '--resume requires --out'
expect 64 "$BIN/ccstudy" gradient --image-size 32
has err.txt 'at most 16'
