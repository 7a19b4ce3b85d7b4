#!/bin/bash
# Runs one Python test in a fresh folder: run_python_test.sh PYTHON SCRIPT.
here=$(dirname "$0")
exec "$here/../support/run_shell_test.sh" /dev/stdin "$@" <<'END'
LD_PRELOAD=${CCSTREAM_TEST_PRELOAD:-} exec "$1" "$2"
END
