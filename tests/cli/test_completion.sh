#!/bin/bash
# Tab in interactive shells, on a terminal of their own: a command, an option and its value, in the form `--option=value`
# too. Every file is read by its shell.
# not under sanitizers: tables alone, which the release build tests
. "$SRC/tests/support/cli.sh"
bash "$SRC/tools/make-pages" "$BIN" pages 0 2000-01-01
command -v script >/dev/null || {
    echo "skipped: script, of util-linux, is not installed"
    exit 77
}
script -qec true /dev/null >script.txt 2>&1 || {
    echo "skipped: $(tail -n 1 script.txt)"
    exit 77
}

typed='ccdump fin\t--form\tpn\t --format=jp\t x\n'
wanted='ran: find --format png --format=jpeg x'
types() { # types BEFORE SHELL...: runs the lines BEFORE in the shell, then what is typed
    before=$1
    shift
    { # the shell echoes "ready" when the lines were run: what is typed before may be lost
        printf '%s\necho re""ady\n' "$before"
        for _ in $(seq 300); do
            grep -q '^ready' terminal.txt 2>/dev/null && break
            sleep 0.1
        done
        printf "$typed"'exit\n'
    } | TERM=dumb HOME=$PWD timeout 60 script -qfc "$*" /dev/null >terminal.txt
    tr -d '\r' <terminal.txt >typed.txt
    rm terminal.txt
}
ran='ccdump() { echo "ran: $*"; }; PS1='
types ". ./pages/bash/ccdump; $ran" bash --norc --noprofile -i
has typed.txt "$wanted"
for file in pages/bash/*; do
    bash -n "$file"
done
if command -v zsh >/dev/null; then
    types "fpath=($PWD/pages/zsh \$fpath); autoload -U compinit; compinit -u -D; $ran" zsh -f -i
    grep '^ran: ' typed.txt >out.txt || fail "$(cat typed.txt)"
    has out.txt "find --format=png --format=jpeg x"
    for file in pages/zsh/*; do
        zsh -fn "$file"
    done
fi
if command -v fish >/dev/null; then
    export HOME=$PWD
    for words in "ccdump fin" "ccdump find --form" "ccdump find --format p"; do
        fish --no-config -c "source pages/fish/ccdump.fish; complete -C '$words'"
    done | cut -f 1 >out.txt
    for word in find --format png; do
        grep -qx -- "$word" out.txt || fail "no $word: $(cat out.txt)"
    done
    for file in pages/fish/*; do
        fish --no-execute "$file"
    done
fi
