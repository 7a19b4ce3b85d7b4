# not under sanitizers: they catch SIGBUS themselves
# An index that is truncated while a program has it mapped ends the program with a message and exit code 74.
. "$SRC/tests/support/cli.sh"
"$TESTBIN/make_scenes" val 60 1 48 all.tar >scenes.txt
expect 0 "$BIN/ccpack" -q -o d all.tar
expect 0 "$BIN/ccpack" tokenizer -q d --vocab-size 60
"$BIN/ccstream-train" -q --preset cpu-demo --image-tower tiny --data d --out r --epochs 100000 --batch 4 >out.txt 2>err.txt &
pid=$!
for ((i = 0; i < 600; i++)); do
    [ -s r/metrics.jsonl ] && break
    sleep 0.1
done
[ -s r/metrics.jsonl ] || { kill $pid; fail "no step: $(cat err.txt)"; }
: >d/shard-000000.cci
code=0
(sleep 60 && kill $pid) 2>killer.txt >&2 &
killer=$!
wait $pid || code=$?
kill $killer 2>/dev/null || true
[ $code = 74 ] || fail "exit code $code: $(cat err.txt)"
has err.txt "shard-000000.cci: was truncated"
