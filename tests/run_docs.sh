#!/bin/bash
# Prints the commands of a page as one script: its blocks that begin with ```sh, and those that begin with ```shell, which
# need the network, a server or a checkout.
#
# Usage: tests/run_docs.sh PAGE [--without-data]
#   --without-data    without the blocks ```shell
#
# A bare Debian with the packages, by hand: bash -eux <(tests/run_docs.sh docs/tutorial.md)
set -eu
awk -v without="${2:-}" '
    /^```/ { inside = /^```sh$/ || (/^```shell$/ && without == ""); next }
    inside' "$1"
