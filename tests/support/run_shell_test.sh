#!/bin/bash
# Runs one shell test in a fresh folder, which is removed at the end whatever happens.
# Usage: run_shell_test.sh SCRIPT [ARG...]. The script sees BIN, TESTBIN and SRC; exit 77 skips.
set -eu
script=$1
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/ccstream-test.XXXXXX")
trap 'chmod -R u+rwX "$work"; rm -rf "$work"' EXIT
cd "$work"
status=0
bash "$script" "$@" || status=$?
exit "$status"
