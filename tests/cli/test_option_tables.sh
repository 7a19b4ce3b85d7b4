# Every program and subcommand: its option table is valid (a bad one ends every run with 70), --help is at
# most 100 columns wide and shows an example, unknown options are named.
# not under sanitizers: tables alone, which the release build tests
. "$SRC/tests/support/cli.sh"
check() { # check PROGRAM [SUBCOMMAND]
    "$@" --help >help.txt 2>err.txt || { cat err.txt; fail "$* --help gave $?"; }
    [ ! -s err.txt ] || { cat err.txt; fail "$* --help writes to stderr"; }
    long=$(awk 'length($0) > 100' help.txt)
    [ -z "$long" ] || fail "$* --help has a line beyond 100 columns: $long"
    grep -q '^usage: ' help.txt || fail "$* --help shows no usage"
    [ $# -gt 1 ] || grep -q '^Examples:' help.txt || fail "$* --help shows no example"
    if grep -q ' COMMAND ' help.txt; then
        return
    fi
    grep -q -- '--help' help.txt || fail "$* --help does not name itself"
    code=0
    "$@" --no-such-option-here >out.txt 2>err.txt || code=$?
    [ "$code" = 64 ] || { cat err.txt; fail "$*: an unknown option gave $code, not 64"; }
    grep -q -- "'--no-such-option-here'" err.txt || fail "$*: the message does not name the option"
    [ ! -s out.txt ] || fail "$*: a usage error writes to stdout"
}

count=0
for program in "$BIN"/cc*; do
    [ -x "$program" ] || continue
    name=$(basename "$program")
    count=$((count + 1))
    "$program" --version >out.txt || fail "$name --version gave $?"
    grep -Eqx "$name [0-9]+\.[0-9]+\.[0-9]+ \(ccstream\)" out.txt ||
        { cat out.txt; fail "$name --version"; }
    check "$program"
    # The subcommands that --help lists, or that its usage lines name.
    cp help.txt main-help.txt
    for command in $(awk -v name="$name" '
            /^Commands:/ { list = 1; next }
            list && /^$/ { list = 0 }
            list && /^  [a-z]/ { print $1 }
            ($1 == name || $1 == "usage:") {
                word = $1 == "usage:" ? $3 : $2
                if (word ~ /^[a-z]+$/) { print word }
            }' main-help.txt | sort -u); do
        check "$program" "$command"
    done
done
[ "$count" -gt 0 ] || fail "no programs in $BIN"
echo "$count programs checked"
