#!/bin/bash
# Every row of wrong_invocations.txt: a wrong command line ends at once with the exit code and the words that
# it names, in a short message on stderr; it neither crashes nor hangs nor leaves an output folder. Under sanitizers
# every fourth row.
set -u
PATH=$BIN:$PATH
table=$SRC/tests/cli/wrong_invocations.txt

"$TESTBIN/make_scenes" val 12 1 32 pairs.tar >/dev/null || exit 1
mkdir tars images empty || exit 1
cp pairs.tar tars/a.tar
cp pairs.tar tars/b.tar
tar xf pairs.tar -C images
for text in images/*.txt; do
    printf '%s\t%s.jpg\n' "$(cat "$text")" "$(basename "$text" .txt)"
done >pairs.tsv
: >empty.tar
: >empty.tsv
head -c 1500 /dev/urandom | tee arrays.npz sheet.xlsx >noise.bin
gzip -c pairs.tar >pairs.tar.gz
ccpack -q -o data pairs.tar && ccpack tokenizer -q data --vocab-size 64 2>/dev/null &&
    ccpack -q -o part --part 1/2 pairs.tar || exit 1
ccpack -q -o bare pairs.tar || exit 1
# What the programs take for a run and for a run without a checkpoint.
mkdir run new-run datasets
touch run/metrics.jsonl new-run/metrics.jsonl
echo '{"program":"ccstream-train","options":{"data":["data"],"out":null}}' | tee run/config.json >new-run/config.json
printf '\002\000\000\000\000\000\000\000{}' >run/last
cp -r data datasets/a
cp -r bare headless && rm headless/dataset.json
mkdir -p folders/circle && cp images/*0.jpg folders/circle && ccpack -q -o classes folders || exit 1

failures=0
rows=0
fail() {
    echo "FAILED: $command: $*"
    head -c 600 err.txt
    failures=$((failures + 1))
}
while IFS='|' read -r want command words; do
    case $want in '' | '#'*) continue ;; esac
    rows=$((rows + 1))
    [ -z "${CCS_SANITIZE:-}" ] || [ $((rows % 4)) = 0 ] || continue # a start is most of the time of each
    [ ! -e z ] || rm -rf z
    got=0
    eval "timeout 30 $command" >out.txt 2>err.txt </dev/null || got=$?
    [ "$got" = "$((want))" ] || fail "exit code $got, not $((want))"
    IFS= read -r -d '' message <err.txt || true # without a process for each check
    IFS=';' read -ra list <<<"$words"
    for word in "${list[@]}"; do
        read -r word <<<"$word"
        [[ $message == *"$word"* ]] || fail "no '$word' in its message"
    done
    [ -n "$message" ] || fail "no message"
    [[ $message =~ contract\ broken|Sanitizer|runtime\ error|%s ]] && fail "a crash"
    breaks=${message//[!$'\n']/}
    [ "${#breaks}" -le 30 ] || fail "a message of ${#breaks} lines"
    [ ! -e z ] || fail "an output folder is left"
done <"$table"
# Every command is known to the other programs.
programs="ccdump ccstream-eval ccbench ccpack"
[ -z "${CCS_SANITIZE:-}" ] || programs=ccbench # the table and the code are the same
for program in $programs; do
    other=ccdump
    [ "$program" != ccdump ] || other=ccbench
    # As --help lists them, or as its usage lines name them.
    for name in $("$program" --help | awk -v program="$program" '
            /^Commands:/ { list = 1; next }
            list && /^$/ { list = 0 }
            list { print $1 }
            $1 == program && $2 ~ /^[a-z]+$/ { print $2 }'); do
        command="$other $name"
        [ "$command" != "ccdump repair" ] || continue # an alias
        "$other" "$name" >out.txt 2>err.txt </dev/null
        grep -qF "did you mean '$program $name'" err.txt || fail "it does not name $program"
    done
done
[ "$rows" -ge 70 ] || {
    echo "FAILED: only $rows rows were read"
    failures=1
}
echo "$rows rows"
[ "$failures" = 0 ]
