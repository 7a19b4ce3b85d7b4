#!/bin/bash
# Prints the commands of a page as one script: its blocks ```sh, and those ```shell, before which a comment says what they
# need:
#   <!-- not run: REASON -->    the test of the pages does not run the next block
#   <!-- run with PROGRAM -->   it does where there is that program
# Headings become comments. A block ```bash is a file, which the page names.
#
# Usage: tests/run_docs.sh PAGE [--without-data]
#        tests/run_docs.sh --not-run PAGE...
#    --without-data    only what the test runs
#    --not-run         PAGE:LINE: REASON of every block of commands that it does not run; exit code 1 if one has no reason
#
# A bare Debian with the packages, by hand: bash -eux <(tests/run_docs.sh docs/tutorial.md)
set -eu
list=
[ "$1" != --not-run ] || list=1 && shift "${list:-0}"
[ "$list" ] || set -- "$1" without="${2:-}"
awk -v list="$list" '
    BEGIN { if (!list) { without = ARGV[2]; sub(/^without=/, "", without); ARGC = 2 } }
    function program_is_there(name) { return system("command -v " name " >/dev/null") == 0 }
    !inside && /^<!-- (not run: |run with )/ { mark = $0; sub(/^<!-- /, "", mark); sub(/ -->$/, "", mark); next }
    !inside && /^#/ && !list { print "# " $0 }
    /^```/ && inside { inside = 0; next }
    /^```/ {
        inside = 1
        kind = substr($0, 4)
        runs = kind == "sh" || (kind == "shell" && without == "") ||
               (kind == "shell" && mark ~ /^run with / && program_is_there(substr(mark, 10)))
        if (list && (mark ~ /^not run: / || kind ~ /^(shell|yaml)$/)) {
            print FILENAME ":" FNR ": " (mark == "" ? "no reason" : mark)
            failed = failed || mark == ""
        }
        mark = ""
        next
    }
    inside && !list && runs
    inside && list && kind == "" && /^(cc(pack|dump|bench|study|stream-[a-z]+)|cmake|ctest|apt|apt-get|pip|mpirun|tools\/[a-z-]+) / {
        print FILENAME ":" FNR ": a command in a block without a kind: " $0
        failed = 1
    }
    END { exit failed }' "$@"
