#!/bin/bash
# by hand: two releases of HEAD, made in folders of different names and lengths at different times of day, have the same
# bytes: tarball, packages and list of libraries; the checksums are theirs. Ten minutes on two cores without a compiler
# cache. lintian, where it is installed, finds no error in the packages, but for the maintainer, whom the environment names.
#
# Usage: tests/check_reproducible.sh [CMAKE-OPTION...]
set -eu
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/a" "$work/a-longer-name"
export CCACHE_DISABLE=1
TMPDIR=$work/a tools/release --draft "$work/first" "$@" >/dev/null
TMPDIR=$work/a-longer-name tools/release --draft "$work/second" "$@"
if ! diff "$work/first/SHA256SUMS" "$work/second/SHA256SUMS"; then
    for file in "$work"/first/*.deb; do
        mkdir -p "$work/x" "$work/y"
        dpkg-deb -R "$file" "$work/x/$(basename "$file")"
        dpkg-deb -R "$work/second/$(basename "$file")" "$work/y/$(basename "$file")"
    done
    diff -rq "$work/x" "$work/y" || true
    echo "not reproducible"
    exit 1
fi
(cd "$work/second" && sha256sum --check --quiet SHA256SUMS && python3 -m json.tool ./*.spdx.json >/dev/null)
echo "reproducible: $(wc -l <"$work/first/SHA256SUMS") files of $(git rev-parse --short HEAD)"
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog "$work"/second/*.deb
fi
