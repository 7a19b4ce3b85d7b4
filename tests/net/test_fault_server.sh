#!/bin/bash
# The server of the other tests of HTTP: answers, faults by query and by rate, counts.
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
exec python3 "$SRC/tests/net/check_fault_server.py"
