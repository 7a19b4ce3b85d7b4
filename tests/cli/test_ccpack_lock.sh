#!/bin/bash
# Two ccpack runs in one directory: the second is refused with any options; a killed run does not block
# the next.
. "$SRC/tests/support/cli.sh"

# refused COMMAND...: exit code 73, and the message names the process that holds the lock.
refused() {
    local got=0
    "$@" >out.txt 2>err.txt || got=$?
    [ "$got" -eq 73 ] || fail "exit code $got, not 73: $*: $(head -c 300 err.txt)"
    grep -qE "in use by (process ($pid|[0-9]+)|another process)" err.txt ||
        fail "the message names no process: $(head -c 300 err.txt)"
}

# Starts a run on a pipe that gives only half of a tar, and waits for its first shard.
begin() { # begin DIR OPTION...
    local dir=$1
    shift
    "$BIN/ccpack" -q --shard-samples 7 "$@" -o "$dir" - <pipe 2>begun.txt &
    pid=$!
    exec 3>pipe
    head -c $(($(stat -c %s a.tar) / 2)) a.tar >&3
    for ((i = 0; i < 400; i++)); do
        ls "$dir"/shard-*.cci >/dev/null 2>&1 && [ "$(ls "$dir"/shard-*.cci | wc -l)" -gt "$before" ] && return
        sleep 0.05
    done
    fail "no shard of $dir came: $(cat begun.txt)"
}

end() { # end SIGNAL
    kill "-$1" $pid
    wait $pid 2>/dev/null || true
    exec 3>&-
}

"$TESTBIN/make_scenes" val 60 1 48 a.tar >/dev/null || exit 1
"$TESTBIN/make_scenes" train 20 2 48 b.tar >/dev/null || exit 1
for k in 1 2; do
    "$BIN/ccpack" -q --part $k/2 -o part-$k b.tar || exit 1
done
mkfifo pipe

# --- a run that makes a dataset
before=0
begin d
seen=
until [ "$seen" = "$(ls -l d)" ]; do # it has packed what it was given
    seen=$(ls -l d)
    sleep 0.3
done
cp -r d was
refused "$BIN/ccpack" -o d b.tar
refused "$BIN/ccpack" --overwrite -o d b.tar
refused "$BIN/ccpack" --resume --shard-samples 7 -o d/ a.tar
refused "$BIN/ccpack" --append -o d b.tar
refused "$BIN/ccpack" merge --overwrite -o d part-1 part-2
grep -q "process $pid;" err.txt || fail "the message names no process: $(cat err.txt)"
diff -r was d >/dev/null || fail "a run that was refused changed the directory"
end KILL
cat a.tar >pipe &
"$BIN/ccpack" -q --resume --shard-samples 7 -o d - <pipe 2>err.txt || fail "after a kill: $(cat err.txt)"
wait
"$BIN/ccdump" verify d >/dev/null || fail "the dataset is not valid"

# --- a run that appends
before=$(ls d/shard-*.cci | wc -l)
begin d --append
refused "$BIN/ccpack" --append -o d b.tar
refused "$BIN/ccpack" --append --resume -o d b.tar
refused "$BIN/ccpack" tokenizer --vocab-size 100 d
[ ! -e d/tokenizer.model ] || fail "a tokenizer was written into a directory in use"
refused "$BIN/ccpack" --overwrite -o d b.tar
end INT
"$BIN/ccpack" -q --append -o d b.tar 2>err.txt || fail "after an append: $(cat err.txt)"
"$BIN/ccdump" verify d >/dev/null || fail "the grown dataset is not valid"

# --- a tokenizer and indexes, while another program writes; whoever may only read keeps no one out
hold() { # hold FOLDER
    : >held.txt
    python3 "$SRC/tests/support/hold_lock.py" "$1" >held.txt &
    pid=$!
    until grep -q held held.txt; do
        sleep 0.05
    done
}
mkdir tars
cp b.tar tars/
if command -v python3 >/dev/null; then
    hold d
    refused "$BIN/ccpack" tokenizer --vocab-size 100 d
    grep -q "process $pid;" err.txt || fail "the message names another process: $(cat err.txt)"
    [ ! -e d/tokenizer.model ] || fail "a tokenizer was written into a locked directory"
    kill $pid
    hold tars
    refused "$BIN/ccpack" index tars/b.tar
    kill $pid
fi
exec 4<d 5<tars
flock -n 4 && flock -n 5 || true
"$BIN/ccpack" tokenizer -q --vocab-size 100 d 2>err.txt || fail "tokenizer: $(cat err.txt)"
"$BIN/ccpack" index -q tars/b.tar 2>err.txt || fail "index: $(cat err.txt)"
[ -z "$(ls -A d tars | grep lock)" ] || fail "a lock stays after a run"
