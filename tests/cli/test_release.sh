#!/bin/bash
# What tools/release refuses, before it builds anything. tests/check_reproducible.sh makes releases, by hand.
. "$SRC/tests/support/cli.sh"
command -v git >/dev/null || {
    echo "skipped: git is not installed"
    exit 77
}
mkdir -p tree/tools
cp "$SRC/tools/release" tree/tools/
echo 'project(ccstream VERSION 0.3.1 LANGUAGES C)' >tree/CMakeLists.txt
git init -q tree
changes() { # changes HEADING: the newest of CHANGELOG.md, committed
    printf '# Changes\n\n## %s\n' "$1" >tree/CHANGELOG.md
    git -C tree add -A
    git -C tree -c user.name=x -c user.email=x@x commit -q --allow-empty -m x
}
changes "0.3.1 (unreleased)"
expect 65 tree/tools/release out
has err.txt "CHANGELOG.md says '## 0.3.1 (unreleased)'"
changes 0.3.0
expect 65 tree/tools/release --draft out
has err.txt "begins with '## 0.3.0', CMakeLists.txt has version 0.3.1"
changes 0.3.1
echo >>tree/CHANGELOG.md
expect 65 tree/tools/release out
has err.txt "changes that are not committed"
expect 64 tree/tools/release
expect 0 tree/tools/release --help
has out.txt "Usage: tools/release"

# A failed build says why, and leaves the source tarball of the commit.
changes 0.3.1
expect 65 tree/tools/release out
has err.txt "the build failed; all of it is in"
tar -tzf out/ccstream-0.3.1.tar.gz >out.txt
has out.txt "ccstream-0.3.1/tools/release"
