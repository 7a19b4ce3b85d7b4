#!/bin/bash
# ccpack --resume, --append and merge: after Ctrl-C and kill -9, on a growing dataset, with parts. The bytes
# are always those of an undisturbed run.
. "$SRC/tests/support/cli.sh"

field() { # field NAME: of the summary in out.json
    sed 's/.*"'"$1"'":"\{0,1\}\([0-9a-z]*\).*/\1/' out.json
}

# run OPTION...: packs quietly, the summary in out.json.
run() {
    "$BIN/ccpack" -q --json "$@" >out.json 2>err.txt || fail "ccpack $*: $(cat err.txt)"
}

"$TESTBIN/make_scenes" val 60 1 48 a.tar >/dev/null || exit 1
"$TESTBIN/make_scenes" train 40 2 48 b.tar >/dev/null || exit 1
how="--shard-samples 7"
run $how -o good a.tar b.tar
print=$(field fingerprint)
[ ! -e good/pack.journal ] || fail "a finished run leaves its journal"

# --- a run on a pipe is interrupted or killed, and resumed
cat a.tar >all.tar
mkdir other && "$TESTBIN/make_scenes" val 60 3 48 other/a.tar >/dev/null && cat other/a.tar >other.tar
run $how -o from-pipe - <all.tar
mkfifo pipe
for signal in INT KILL; do
    "$BIN/ccpack" -q $how -o $signal - <pipe 2>err.txt &
    pid=$!
    exec 3>pipe
    head -c $(($(stat -c %s all.tar) * 3 / 4)) all.tar >&3
    for ((i = 0; i < 200; i++)); do
        [ -e $signal/shard-000003.cci ] && break
        sleep 0.05
    done
    kill -$signal $pid
    wait $pid 2>/dev/null || true
    exec 3>&-
    [ -e $signal/pack.journal ] || fail "$signal leaves no journal"
    if [ $signal = INT ]; then
        grep -q -- "the same command with --resume continues" err.txt || fail "no hint how to resume: $(cat err.txt)"
        "$BIN/ccdump" verify INT >/dev/null || fail "SIGINT leaves no valid dataset"
    fi
    expect_message 65 "--shard-samples was 7, is 8" "$BIN/ccpack" --resume --shard-samples 8 -o $signal - <all.tar
    expect_message 65 "source 1 was -, is a.tar" "$BIN/ccpack" --resume $how -o $signal a.tar
    expect_message 65 "standard input: is not the source that was packed" "$BIN/ccpack" --resume $how -o $signal - <other.tar
    run $how --resume -o $signal - <all.tar
    [ "$(field resumed)" -ge 21 ] || fail "$signal: resumed $(field resumed) samples"
    diff -r from-pipe $signal || fail "after $signal, --resume gives other bytes"
done

# --- a run that would make too many shards ends early: the second tar is almost all hole
cp a.tar vast.tar && truncate -s 100G vast.tar
"$TESTBIN/make_scenes" val 120 4 16 many.tar >/dev/null
expect_message 65 "the run would write about [0-9]* shards, the limit is 250000: use a larger --shard-samples" \
    "$BIN/ccpack" --shard-samples 1 -o vast many.tar vast.tar
rm -rf vast vast.tar

# --- --resume without a run, and of a finished run
run $how --resume -o fresh a.tar b.tar
diff -r good fresh || fail "--resume in an absent directory gives other bytes"
expect_message 0 "finished already: 100 samples" "$BIN/ccpack" --resume $how -o fresh a.tar b.tar
run $how --resume -o fresh a.tar b.tar
[ "$(field was_finished)" = true ] && [ "$(field fingerprint)" = "$print" ] || fail "$(cat out.json)"
diff -r good fresh || fail "--resume on a finished dataset changes it"
expect_message 65 "from 2 sources, not from these 1" "$BIN/ccpack" --resume $how -o fresh a.tar
expect_message 65 "--zstd-level was 3, is 5" "$BIN/ccpack" --resume $how --zstd-level 5 -o fresh a.tar b.tar
expect_message 64 "exclude each other" "$BIN/ccpack" --resume --overwrite -o fresh a.tar
run $how -o one a.tar
expect_message 65 "complete, and was not made from other/a.tar" "$BIN/ccpack" --resume $how -o one other/a.tar
expect_message 65 "already contains the rows of this source, from 'a.tar'; --allow-duplicates" "$BIN/ccpack" --append $how -o one a.tar
run --append --allow-repeat $how -o one a.tar
[ "$(field samples)" = 60 ] || fail "--allow-repeat: $(cat out.json)"
expect_message 65 "./a.tar is the same source as a.tar" "$BIN/ccpack" -o two a.tar ./a.tar
run --allow-duplicates -o two a.tar ./a.tar
[ "$(field samples)" = 120 ] || fail "--allow-duplicates: $(cat out.json)"

# --- an append packs as the dataset was packed
run --min-side 48 --dedup exact --no-check --container tar --shard-samples 9 -o kept a.tar
expect_message 0 "as the dataset in kept: --min-side 48 --no-check --dedup exact" "$BIN/ccpack" --append -o kept b.tar
[ "$(ls kept/*.tar | wc -l)" = 12 ] || fail "--append does not keep the size of shards: $(ls kept)"
expect_message 65 "[-]-min-side was 48, is 50" "$BIN/ccpack" --append --min-side 50 -o kept other/a.tar
expect_message 65 "[-]-dedup was exact, is not given" "$BIN/ccpack" --append --dedup none -o kept other/a.tar
run --append --new-settings -o kept other/a.tar
has kept/dataset.json '"dedup@3":"not given"'
run --resize long:40 -o small a.tar
run --append -o small b.tar

# --- too many bad rows, resumed with a higher limit
mkdir images && tar xf a.tar -C images
for text in images/*.txt; do
    printf '%s\t%s.jpg\n' "$(cat "$text")" "$(basename "$text" .txt)"
done >rows.tsv
{
    head -20 rows.tsv
    printf 'gone\tgone.jpg\nno words here\tno.jpg\n'
    tail -40 rows.tsv
} >bad.tsv
run $how --max-bad 2 -o bad-good --images images bad.tsv
expect_message 65 "more than --max-bad 1" "$BIN/ccpack" $how --max-bad 1 -o bad --images images bad.tsv
has err.txt "the same command with --resume and a larger --max-bad continues"
run $how --max-bad 2 --resume -o bad --images images bad.tsv
diff -r bad-good bad || fail "after --max-bad, --resume gives other bytes"
expect_message 65 "bad.tsv: row 20, key '[^']*': image-unreadable" \
    "$BIN/ccpack" $how --on-bad fail -o fails --images images bad.tsv
has err.txt "the same command with --resume and --on-bad skip continues"
expect_message 65 "it cannot be resumed; --overwrite starts over" "$BIN/ccpack" $how --ids key -o id-twice other/a.tar a.tar
run $how --max-bad 2 --resume -o fails --images images bad.tsv
diff -r bad-good fails || fail "after --on-bad fail, --resume gives other bytes"

# --- --append
run $how -o grown a.tar
run $how --append -o grown b.tar
[ "$(field fingerprint)" = "$print" ] || fail "appended: $(field fingerprint), in one run: $print"
"$BIN/ccdump" verify grown >/dev/null || fail "an appended dataset does not verify"
cp -r grown before
expect_message 65 "--ids was row, is key" "$BIN/ccpack" --append --ids key -o grown b.tar
expect_message 65 "--resize was none, is short:32" "$BIN/ccpack" --append --resize short:32 -o grown b.tar
expect_message 65 "add --resize none" "$BIN/ccpack" --append --resize short:32 -o grown b.tar
expect_message 66 "no dataset to append to" "$BIN/ccpack" --append -o nowhere b.tar
expect_message 64 "part of the dataset that this run would append to" \
    "$BIN/ccpack" --append -o grown grown/shard-000000.tar.zst
head -c $(($(stat -c %s b.tar) / 2)) b.tar >half.tar
expect_message 65 "the dataset in grown is unchanged; when the source is repaired, the same command with --resume" \
    "$BIN/ccpack" --append $how -o grown half.tar
"$BIN/ccdump" verify grown >/dev/null || fail "an append that failed leaves no valid dataset"
cmp grown/dataset.json before/dataset.json || fail "an append that failed changed dataset.json"
cp b.tar half.tar # mended; another size is another source
expect_message 65 "half.tar was of [0-9]* bytes" "$BIN/ccpack" --append --resume $how -o grown half.tar
run --append --allow-repeat $how -o grown half.tar
"$BIN/ccdump" verify grown >/dev/null || fail "the third generation does not verify"
expect_message 73 "append" "$BIN/ccpack" -o grown a.tar

# --- parts in any order
for k in 1 2 3; do
    run $how --part $k/3 --resume -o part-$k a.tar b.tar
done
expect_message 65 "missing: part 2 of 3" "$BIN/ccpack" merge --json -o merged part-3 part-1
grep -q -e "--part K/3 --resume.*--array=2$" err.txt || fail "no hint how to pack part 2: $(cat err.txt)"
[ "$(cat out.txt)" = '{"parts":3,"missing":[2],"unfinished":[],"repeated":[],"foreign":[]}' ] ||
    fail "merge --json with a missing part: $(cat out.txt)"
expect_message 65 "not a part: good: is not a part" "$BIN/ccpack" merge -o merged part-3 part-1 good
expect_message 64 "is a part and cannot also be the result" "$BIN/ccpack" merge --overwrite -o part-1 part-1
expect_message 74 "File too large; merged is not a dataset yet, the same command resumes" \
    bash -c 'trap "" XFSZ && ulimit -f 1 && "$BIN/ccpack" merge -o merged part-3 part-1 part-2' # as a full disk
"$BIN/ccpack" merge -q --json -o merged part-3 part-1 part-2 >out.json 2>err.txt || fail "merge: $(cat err.txt)"
[ "$(field fingerprint)" = "$print" ] || fail "merged: $(field fingerprint), in one run: $print"
[ "$(field samples)" = 100 ] || fail "merged: $(cat out.json)"
"$BIN/ccdump" verify merged >/dev/null || fail "a merged dataset does not verify"
[ part-1/shard-000000.tar.zst -ef merged/shard-000000.tar.zst ] || fail "shards were copied"
cmp good/rejects.jsonl merged/rejects.jsonl || fail "other rejects"
expect_message 0 "merged: finished already: 100 samples" "$BIN/ccpack" merge -o merged part-3 part-1 part-2
expect_message 73 "holds a dataset already" "$BIN/ccpack" merge -o good part-3 part-1 part-2
expect_message 73 "part-1: holds a dataset already; --resume does nothing if it is this part" \
    "$BIN/ccpack" --part 1/3 -o part-1 a.tar b.tar
expect_message 0 "100 samples" "$BIN/ccpack" merge --overwrite -o merged part-3 part-1 part-2
expect_message 64 "K/N" "$BIN/ccpack" --part 4/3 -o refused a.tar
expect_message 64 "standard input" "$BIN/ccpack" --part 1/3 -o refused -
expect_message 64 "exclude each other" "$BIN/ccpack" --part 1/3 --dedup exact -o refused a.tar
expect_message 64 "exclude each other" "$BIN/ccpack" --no-check --resize short:32 -o refused a.tar
expect_message 64 "at least 1" "$BIN/ccpack" --max-aspect 0.5 -o refused a.tar
[ ! -e refused ] || fail "a refused run made the directory"

# --- the plain container, and tars that ccpack did not make
run $how --container tar -o tars a.tar b.tar
[ "$(field fingerprint)" = "$print" ] || fail "--container tar: $(field fingerprint)"
tar tf tars/shard-000000.tar >/dev/null || fail "a shard in container tar is no tar"
expect_message 65 "--container was tar, is tar.zst" "$BIN/ccpack" --append $how --container tar.zst -o tars b.tar
run $how --container tar --append --allow-repeat -o tars b.tar
run $how --overwrite -o tars a.tar b.tar
diff -r good tars || fail "--overwrite leaves something of container tar"
mkdir theirs && cp a.tar theirs/shard-000000.tar
"$BIN/ccpack" index -q theirs/shard-000000.tar >/dev/null 2>err.txt || fail "index: $(cat err.txt)"
expect_message 65 "--container was tar-foreign" "$BIN/ccpack" --append -o theirs b.tar
expect_message 73 "belongs to no dataset made by ccpack" "$BIN/ccpack" --overwrite --container tar -o theirs b.tar
run --overwrite -o theirs b.tar
cmp a.tar theirs/shard-000000.tar || fail "--overwrite removed a tar that ccpack did not make"

# --- the summary counts what is omitted
run --allow-duplicates --dedup exact --min-side 48 --max-bad 0 -o once a.tar a.tar
[ "$(field samples)" = 60 ] && [ "$(field rejected)" = 60 ] || fail "--dedup: $(cat out.json)"
expect_message 0 "60 rows rejected, see once/rejects.jsonl: 60 duplicate" \
    "$BIN/ccpack" --allow-duplicates --dedup exact --max-bad 0 --overwrite -o once a.tar a.tar

# --- on a terminal: rate, bytes, progress, remaining time
if script -qec true /dev/null >typed.txt 2>&1 </dev/null; then # a machine may have no terminals to give
    size=$(stat -c %s rows.tsv)
    mkfifo slow
    {
        head -c $(($(stat -c %s all.tar) / 2)) all.tar
        sleep 1
        tail -c +$(($(stat -c %s all.tar) / 2 + 1)) all.tar
    } >slow &
    script -qec "'$BIN/ccpack' -o shown - <slow" /dev/null >screen.txt || fail "on a terminal: $(cat screen.txt)"
    wait
    tr '\r' '\n' <screen.txt | grep -q '^[0-9]* samples  [0-9]*/s  [0-9.]* [KMG]*iB/s' ||
        fail "no progress: $(tr '\r' '\n' <screen.txt | head -5)"
    for ((i = 0; i < 400; i++)); do cat bad.tsv; done >long.tsv # some seconds: the line is redrawn every 0.1 s
    script -qec "'$BIN/ccpack' -j 1 --resize short:40 -o shown --overwrite --images images long.tsv" \
        /dev/null >screen.txt || fail "on a terminal: $(cat screen.txt)"
    tr '\r' '\n' <screen.txt | grep -q '/s  .*s left  [0-9]* %  [0-9]* rejected' ||
        fail "no remaining time: $(tr '\r' '\n' <screen.txt | head -5)"
fi
