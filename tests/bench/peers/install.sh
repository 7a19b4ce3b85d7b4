#!/bin/bash
# Installs peers from PyPI, each in a Python environment of its own, WORK/venv/NAME, by the versions and hashes of requirements/NAME.txt,
# and says which could not be installed.
#
#   tests/bench/peers/install.sh WORK [NAME...]
#
# Without NAME: all of requirements. PyTorch, of several gigabytes, is in WORK/venv/torch, whose packages the other environments see too;
# a peer that needs other versions of them gets its own. FFCV is built by pip, which needs libopencv-dev, libturbojpeg0-dev and pkg-config.
# Exit code 1 if a peer could not be installed; WORK/pip-NAME.log has pip's words.
set -eu
[ $# -ge 1 ] || { sed -n '2,9p' "$0"; exit 64; }
here=$(cd "$(dirname "$0")" && pwd)
work=$1
shift
if [ $# = 0 ]; then
    for file in "$here"/requirements/*.txt; do set -- "$@" "$(basename "$file" .txt)"; done
fi
mkdir -p "$work/venv"

install() { # install NAME
    local venv=$work/venv/$1
    [ -e "$venv/installed" ] && return 0
    [ -f "$here/requirements/$1.txt" ] || { echo "$1: not a peer: requirements has no $1.txt" >&2; return 1; }
    python3 -m venv "$venv"
    if [ "$1" != torch ] && grep -q '^torch==' "$here/requirements/$1.txt"; then
        install torch || return 1
        echo "$(cd "$work" && pwd)"/venv/torch/lib/python3*/site-packages >"$(echo "$venv"/lib/python3*/site-packages)/torch.pth"
    fi
    : >"$work/pip-$1.log"
    # without isolation, what builds packages has to be there first
    if grep -E '^(packaging|setuptools|wheel)==' "$here/requirements/$1.txt" >"$work/pip-$1.txt"; then
        "$venv/bin/pip" install -q --require-hashes -r "$work/pip-$1.txt" >>"$work/pip-$1.log" 2>&1 || true
    fi
    if "$venv/bin/pip" install -q --no-build-isolation --require-hashes -r "$here/requirements/$1.txt" >>"$work/pip-$1.log" 2>&1; then
        touch "$venv/installed"
    else
        echo "$1: pip could not install it: $(grep -m 1 -i error "$work/pip-$1.log" || tail -n 1 "$work/pip-$1.log")" >&2
        return 1
    fi
}
failed=0
for name in "$@"; do
    install "$name" || failed=1
done
exit $failed
