#!/bin/bash
# Ranks over Gloo are killed at random moments, and every other rank names the lost one; gloo_kills.py has the rest.
. "$SRC/tests/support/gloo.sh"
HOWS=kill "$SRC/tests/e2e/gloo_kills.py" 3 5
