# Every program and subcommand: its option table is valid (a bad one ends every run with 70), --help is at
# most 100 columns wide and shows an example, unknown options are named.
# not under sanitizers: tables alone, which the release build tests
. "$SRC/tests/support/cli.sh"
# Words that are not the field's or that cannot be read alone, in the --help of a program: one line each.
records=$SRC/tools/cli/help_records.awk
rates='(bytes|pairs|images|requests|objects?|rows|lines|steps|once|one) an? (second|sample|image|line|row|host|epoch|rank|machine)'
homely="at a server|of (its|their) own|whatever|however (small|large|many)|beside|by hand|own pairs?|wrong pairs?|state of samples|step size|made if missing"
odd="(^|[^a-z])(anew|go(es)? by|greatest|pictures?|$rates|$homely)([^a-z]|$)|in the place of|to the bit|but for (last|round)"
lint() { # lint HELP...: prints what is wrong; 0 if anything is
    for help; do
        awk -f "$records" "$help"
    done >records.txt
    {
        awk -F '\t' '$1 ~ /^(option|entry|text|name)$/ { print $3 }' records.txt |
            grep -E "$odd|(^|[^t] )least( [^r]|[^a-z ]|$)" || true
        awk -F '\t' '$1 == "option" { print $3 }' records.txt | sed 's/ \[[^]]*\]$//' |
            grep -E '^(of|for|to|from|in|the same)([^a-z]|$)|; ?(0|NULL|false|true)$' || true
    } >lint.txt
    cat lint.txt
    [ -s lint.txt ]
}
mkdir helps # of every command, which are searched for words and long lines at the end
text_of() { # text_of FILE: in $text, after a line break
    IFS= read -r -d '' text <"$1" || true
    text=$'\n'$text
}
check() { # check PROGRAM [SUBCOMMAND]
    help="helps/${*##*/}"
    "$@" --help >"$help" 2>err.txt || { cat err.txt; fail "$* --help gave $?"; }
    [ ! -s err.txt ] || { cat err.txt; fail "$* --help writes to stderr"; }
    text_of "$help"
    [[ $text == *$'\nusage: '* ]] || fail "$* --help shows no usage"
    [ $# -gt 1 ] || [[ $text == *$'\nExamples:'* ]] || fail "$* --help shows no example"
    if [[ $text == *' COMMAND '* ]]; then
        return
    fi
    [[ $text == *--help* ]] || fail "$* --help does not name itself"
    code=0
    "$@" --no-such-option-here >out.txt 2>err.txt || code=$?
    [ "$code" = 64 ] || { cat err.txt; fail "$*: an unknown option gave $code, not 64"; }
    text_of err.txt
    [[ $text == *"'--no-such-option-here'"* ]] || fail "$*: the message does not name the option"
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
    for command in $(awk -v name="$name" '
            /^Commands:/ { list = 1; next }
            list && /^$/ { list = 0 }
            list && /^  [a-z]/ { print $1 }
            ($1 == name || $1 == "usage:") {
                word = $1 == "usage:" ? $3 : $2
                if (word ~ /^[a-z]+$/) { print word }
            }' "helps/$name" | sort -u); do
        [[ ! $command =~ ^(suite|debias)$ ]] || [ -x "$BIN/ccstudy" ] || continue # they start ccstudy
        check "$program" "$command"
    done
done
[ "$count" -gt 0 ] || fail "no programs in $BIN"

# --help LOSS has the loss's own defaults; --help all has what --help omits.
train=$BIN/ccstream-train
"$train" --help >help.txt
"$train" --help all >all.txt
text_of all.txt
all=$text
grep -q -- '--bias0' help.txt && fail "--help has the options of losses"
grep -q -- '--help LOSS: .*; --help all' <(tr -s ' \n' ' ' <help.txt) || fail "--help does not name the others"
for loss in $(sed -n '/^Losses:/,/^$/s/^  \([a-z][a-z0-9-]*\) .*/\1/p' help.txt); do
    "$train" --help "$loss" >"helps/$loss" 2>err.txt && [ ! -s err.txt ] || fail "--help $loss"
    text_of "helps/$loss"
    [[ $text == *$'\n'"ccstream-train --loss $loss"* ]] || fail "--help $loss does not name it"
    for option in $(grep -oE '^      --[a-z0-9-]+' "helps/$loss"); do
        [[ $all == *"$option "* ]] || fail "--help all lacks $option of $loss"
    done
done
long=$(awk 'length($0) > 100 { print FILENAME ": " $0 }' helps/*)
[ -z "$long" ] || fail "lines beyond 100 columns: $long"
if lint helps/* all.txt >found.txt; then
    for help in helps/* all.txt; do
        lint "$help" >found.txt && echo "$help: $(cat found.txt)"
    done
    fail "words in --help"
fi
"$train" --help siglip | grep -q -- '--bias0 .*default -10' || fail "siglip: no --bias0"
"$train" -h isogclr | grep -q -- '--tau-max .*default 0.05' || fail "isogclr: --tau-max is not its own"
"$train" --help isogclr | grep -q -- '--bias0' && fail "isogclr does not read --bias0"
echo "$count programs checked"
