#!/bin/bash
# Ranks that find each other by RANK, WORLD_SIZE and a folder, over Gloo: the checks of a group, how they meet, and what
# happens when one is lost.
set -eu
. "$SRC/tests/support/cli.sh"
. "$SRC/tests/support/gloo.sh"
export CCSTREAM_GLOO_MODULE=$BIN/libccstream_gloo.so MASTER_ADDR=127.0.0.1
one=$TESTBIN/one_rank

# Jobs that wait for timeouts: all at once, and the checks of a group meanwhile. They lose a rank in step 5.
for job in "1 stop" "2 hang" "1 hang-save" "0 stop-open" "0 fail" "0 end" "2 kill" "0 kill-first" "1 exit" "1 kill-close"; do
    how=${job#* }
    # A stopped process stays: a shell ends it when the others have ended.
    (
        rank=${job% *}
        mkdir "$how"
        began=$SECONDS
        pids=""
        for r in 0 1 2; do
            RANK=$r WORLD_SIZE=3 MEET_IN=$how "$one" lose "$how" "$rank" "${how%-first}" </dev/null >>"$how/out.txt" 2>>"$how/err.txt" &
            pids="$pids $!"
        done
        r=0
        for pid in $pids; do
            if [ "$r" != "$rank" ] || [[ $how != stop* && $how != hang* ]]; then
                code=0
                wait "$pid" || code=$?
                echo $code >"$how/code.$r"
            fi
            r=$((r + 1))
        done
        echo $((SECONDS - began)) >"$how/seconds"
        for pid in $pids; do
            kill -KILL "$pid" 2>/dev/null || :
        done
        wait
    ) &
done

# Ranks that never come are named by all that did.
(
    mkdir alone && cd alone
    RANK=1 WORLD_SIZE=4 MEET_IN=m "$one" open auto 2 2>1.txt &
    code=0
    RANK=0 WORLD_SIZE=4 MEET_IN=m "$one" open auto 2 2>0.txt || code=$?
    [ $code = 75 ] || fail "a rank that waits: exit code $code"
    code=0
    wait $! || code=$?
    [ $code = 75 ] || fail "a rank that waits: exit code $code"
    has 0.txt "rank 0 ends: of 4 ranks, rank 2, 3 has not joined m/ranks/join within 2 s"
    has 1.txt "rank 1 ends: "
    has 1.txt "joined m/ranks/join"
    [ ! -e m ] || fail "those that did not meet left $(find m)"
    RANK=2 WORLD_SIZE=3 MEET_IN=m "$one" open auto 1 2>2.txt || :
    has 2.txt "rank 2 ends: of 3 ranks, rank 0 has not joined m/ranks/join within 1 s"
) &
alone=$!

for world in 2 3 4; do
    export MEET_IN=here/m$world
    expect 0 gloo "$world" "$one" check
    [ ! -e here/m$world ] || fail "those that have met left $(find here)"
done

# What a launch leaves that was killed while it met: no later rank takes part in it.
export MEET_IN=old
for rank in 0 1; do
    RANK=$rank WORLD_SIZE=3 "$one" open auto 60 &
    eval "killed$rank=\$!"
done
until [ -e "$(echo old/ranks/meet-*/1)" ]; do
    sleep 0.02
done
# Meanwhile a second launch is refused, by the processes that have its ranks.
for rank in 0 1; do
    expect 73 env RANK=$rank WORLD_SIZE=3 "$one" open auto 60
    has err.txt "rank $rank of old/ranks/join is process"
    has err.txt "of another launch; one at a time may train a run"
done
# shellcheck disable=SC2154 # assigned by eval
kill -KILL "$killed0" "$killed1"
wait "$killed0" "$killed1" || :
echo "3 0000000000000000 meet-0000000000000000 nowhere - 1 1" >old/ranks/meet-0000000000000000 # not a folder
expect 0 gloo 3 "$one" check
[ "$(find old | sort | tr '\n' ' ')" = "old old/ranks old/ranks/meet-0000000000000000 " ] || fail "left: $(find old)"

# Another number of ranks, and another launch of torchrun, are not this one's.
mkdir -p other/ranks/meet-1
printf '3 0000000000000000 meet-1 nowhere - 1 1\n' >other/ranks/join
expect 0 env MEET_IN=other bash -c '. "$SRC/tests/support/gloo.sh"; gloo 2 "$1" check' - "$one"

# A link in the way is not followed.
mkdir -p planted/ranks
echo kept >kept
ln -s ../../kept planted/ranks/join
expect 0 env MEET_IN=planted bash -c '. "$SRC/tests/support/gloo.sh"; gloo 2 "$1" check' - "$one"
[ "$(cat kept)" = kept ] || fail "a planted link was followed"

# Variables that do not belong to a launch, and one of a single process.
expect 0 env -u MASTER_ADDR RANK=1 WORLD_SIZE=4 "$one" open auto
has err.txt "RANK is ignored: it belongs to an enclosing job, and torchrun did not start this process as one of several (there is no MASTER_ADDR)"
has out.txt "world 1"
expect 0 env RANK=0 WORLD_SIZE=1 "$one" open auto
has out.txt "world 1"
expect 64 env -u MEET_IN RANK=0 WORLD_SIZE=2 "$one" open auto
has err.txt "torchrun started 2 processes, but over Gloo they meet in the folder of the run; give --out RUN or --resume RUN"

# No module, and one of another build.
expect 69 env -u CCSTREAM_GLOO_MODULE RANK=0 WORLD_SIZE=2 "$one" open auto
has err.txt "torchrun started 2 processes, but this build has no Gloo module (libccstream_gloo.so next to the program); install libgloo-dev"
export CCSTREAM_GLOO_MODULE=$TESTBIN/module_of_another_build.so MEET_IN=m5
expect 69 gloo 2 "$one" open auto
has err.txt "another build"

wait $alone
wait
lost() { # lost RANK HOW TEXT CODE
    for other in 0 1 2; do
        [ "$other" = "$1" ] && continue
        grep -qE "rank $other ends: rank $1 \(host [^ ]*, pid [0-9]*\) $3" "$2/err.txt" ||
            { cat "$2/err.txt"; fail "rank $other did not name rank $1: $2"; }
        [ "$(cat "$2/code.$other")" = "$4" ] || { cat "$2/err.txt"; fail "$2: exit code of rank $other $(cat "$2/code.$other"), not $4"; }
    done
    [ "$(cat "$2/seconds")" -lt 50 ] || fail "$2: ended after $(cat "$2/seconds") s"
}
lost 2 kill "is gone: its process ended; last seen at step [0-9]+, in " 75
lost 0 kill-first "is gone: its process ended; last seen at step [0-9]+, in " 75
lost 1 kill-close "is gone: its process ended; last seen at step [0-9]+, in " 75
lost 1 exit "is gone: its process ended; last seen at step [0-9]+, in " 75
lost 0 fail "failed at step 5, in load: disk full" 75
lost 1 stop "(has not answered for [0-9]+ s, last seen at step [0-9]+, in .* \\(its process is stopped\\)|is in [a-z]+ at step [0-9]+, and rank [02] has waited for it)" 75
lost 0 stop-open "has not answered for [0-9]+ s \\(its process is stopped\\)" 75
lost 2 hang "is in load at step 5, and rank [01] has waited for it for [67] s" 75
lost 1 hang-save "is in save at step 5, and rank [02] has waited for it for [6-9] s; it does not compute" 75
[ "$(cat fail/code.0)" = 74 ] || fail "the rank that failed ends with $(cat fail/code.0)"
[ "$(cat end/code.0 end/code.1 end/code.2 | tr '\n' ' ')" = "0 0 0 " ] || { cat end/err.txt; fail "a group that ended"; }
