# Every program and subcommand: its option table is valid (a bad one ends every run with 70), --help is at
# most 100 columns wide and shows an example, unknown options are named.
# not under sanitizers: tables alone, which the release build tests
. "$SRC/tests/support/cli.sh"
# Words that are not the field's or that cannot be read alone, in the --help of a program: one line each.
records=$SRC/tools/cli/help_records.awk
rates='(bytes|pairs|images|requests|objects?|rows|lines|steps|once|one) an? (second|sample|image|line|row|host|epoch|rank|machine)'
homely="at a server|of (its|their) own|whatever|however (small|large|many)|beside|by hand|own pairs?|wrong pairs?|state of samples|step size|made if missing"
odd="(^|[^a-z])(anew|go(es)? by|greatest|pictures?|$rates|$homely)([^a-z]|$)|in the place of|to the bit|but for (last|round)"
lint() { # lint HELP: prints what is wrong; 0 if anything is
    awk -f "$records" "$1" >records.txt
    {
        awk -F '\t' '$1 ~ /^(option|entry|text|name)$/ { print $3 }' records.txt |
            grep -E "$odd|(^|[^t] )least( [^r]|[^a-z ]|$)" || true
        awk -F '\t' '$1 == "option" { print $3 }' records.txt | sed 's/ \[[^]]*\]$//' |
            grep -E '^(of|for|to|from|in|the same)([^a-z]|$)|; ?(0|NULL|false|true)$' || true
    } >lint.txt
    cat lint.txt
    [ -s lint.txt ]
}
check() { # check PROGRAM [SUBCOMMAND]
    "$@" --help >help.txt 2>err.txt || { cat err.txt; fail "$* --help gave $?"; }
    [ ! -s err.txt ] || { cat err.txt; fail "$* --help writes to stderr"; }
    long=$(awk 'length($0) > 100' help.txt)
    [ -z "$long" ] || fail "$* --help has a line beyond 100 columns: $long"
    found=$(lint help.txt) && fail "$* --help: words: $found"
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

# The lint finds a bad text in every place, and only there.
for bad in 'momentum, drawn anew' 'rows a host in the place of 2' 'of sgdm and lars' 'the same for rows' 'the least' 'a limit; 0' \
    'the picture' 'requests a second' 'repeats to the bit' 'tars at a server' 'an average of its own' 'the own pair' 'the state of samples'; do
    printf 'ccx: is a test\n\nusage: ccx [options]\n\nOptions:\n      --mode N    %s [1..2, default 1]\n' "$bad" >bad.txt
    lint bad.txt >/dev/null || fail "the lint does not see: $bad"
done
sed '$s/N .*/N  at least 2 requests per second; 0: off [default 0]/' bad.txt >good.txt
lint good.txt && fail "the lint sees something in a good text"

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
        [[ ! $command =~ ^(suite|debias)$ ]] || [ -x "$BIN/ccstudy" ] || continue # they start ccstudy
        check "$program" "$command"
    done
done
[ "$count" -gt 0 ] || fail "no programs in $BIN"

# --help LOSS has the loss's own defaults; --help all has what --help omits.
train=$BIN/ccstream-train
"$train" --help >help.txt
"$train" --help all >all.txt
found=$(lint all.txt) && fail "--help all: words: $found"
grep -q -- '--bias0' help.txt && fail "--help has the options of losses"
grep -q -- '--help LOSS: .*; --help all' <(tr -s ' \n' ' ' <help.txt) || fail "--help does not name the others"
for loss in $(sed -n '/^Losses:/,/^$/s/^  \([a-z][a-z0-9-]*\) .*/\1/p' help.txt); do
    "$train" --help "$loss" >one.txt 2>err.txt && [ ! -s err.txt ] || fail "--help $loss"
    grep -q "^ccstream-train --loss $loss" one.txt || fail "--help $loss does not name it"
    [ -z "$(awk 'length($0) > 100' one.txt)" ] || fail "--help $loss has a line beyond 100 columns"
    found=$(lint one.txt) && fail "--help $loss: words: $found"
    for option in $(grep -oE '^      --[a-z0-9-]+' one.txt); do
        grep -q -- "$option " all.txt || fail "--help all lacks $option of $loss"
    done
done
"$train" --help siglip | grep -q -- '--bias0 .*default -10' || fail "siglip: no --bias0"
"$train" -h isogclr | grep -q -- '--tau-max .*default 0.05' || fail "isogclr: --tau-max is not its own"
"$train" --help isogclr | grep -q -- '--bias0' && fail "isogclr does not read --bias0"
echo "$count programs checked"
