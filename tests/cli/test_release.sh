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

# A whole release of a small project: its checksums, signed as they are made and later; who has the public key checks them.
command -v ssh-keygen >/dev/null && command -v cpack >/dev/null && command -v dpkg-deb >/dev/null && command -v file >/dev/null || {
    echo "signatures were not tried: no ssh-keygen, cpack, dpkg or file"
    exit 0
}
cat >tree/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(ccstream VERSION 0.3.1 LANGUAGES NONE)
install(FILES CHANGELOG.md DESTINATION share)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "$ENV{DEBEMAIL}")
include(CPack)
CMAKE
cat >tree/CMakePresets.json <<'PRESETS'
{"version": 6, "configurePresets": [{"name": "package", "binaryDir": "${sourceDir}/build/package"}],
 "buildPresets": [{"name": "package", "configurePreset": "package"}]}
PRESETS
changes 0.3.1
ssh-keygen -q -t ed25519 -N '' -f key
ssh-keygen -q -t ed25519 -N '' -f other
signed() { # signed FOLDER: by `key`
    (cd "$1" && ssh-keygen -Y verify -f "$OLDPWD/keys" -I release -n ccstream-release -s SHA256SUMS.sig <SHA256SUMS && sha256sum -c --quiet SHA256SUMS)
}
echo "release $(cat key.pub)" >keys
export DEBEMAIL=x@x DEBFULLNAME=x
expect 65 tree/tools/release --sign nosuch out
has err.txt "'nosuch' is no SSH key"
expect 0 tree/tools/release out
has err.txt "SHA256SUMS is not signed"
lines out/SHA256SUMS 3
expect 0 tree/tools/release --sign key signed
expect 0 signed signed
expect 0 tree/tools/release --sign key out/SHA256SUMS
expect 0 signed out
expect 0 tree/tools/release --sign other out/SHA256SUMS
expect 255 signed out
cp signed/SHA256SUMS.sig out/ && echo >>out/SHA256SUMS
expect 255 signed out
echo x >>signed/ccstream-0.3.1.tar.gz
expect 1 signed signed
expect_message 65 "the files are not those of" tree/tools/release --sign key signed/SHA256SUMS
