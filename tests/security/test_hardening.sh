# Programs, libraries and modules of a hardened build are position-independent, have tables of functions that cannot be written, a
# protected stack, and call the checked functions of the C library.
. "$SRC/tests/support/cli.sh"
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
build=$(dirname "$BIN")
grep -q '^CCS_HARDEN:.*=ON$' "$build/CMakeCache.txt" || { echo "skipped: not built with CCS_HARDEN, as by the preset release"; exit 77; }

lacks() { # lacks FILE: what it has not
    readelf -hldW "$1" >headers.txt 2>/dev/null
    readelf -sW --dyn-syms "$1" >symbols.txt 2>/dev/null
    grep -q 'Type:.*DYN' headers.txt || echo PIE
    grep -q GNU_RELRO headers.txt || echo RELRO
    grep -qE 'BIND_NOW|FLAGS_1.*NOW' headers.txt || echo "-z now"
    ! grep -q 'GNU_STACK.*E ' headers.txt || echo "a stack without code"
    grep -q __stack_chk_fail symbols.txt || echo "stack protector"
    case $1 in *.so*) ;; *) grep -qE '__[a-z_]+_chk(@|$)' symbols.txt || echo FORTIFY ;; esac # a module may call none
}
count=0
for file in "$BIN"/* "$build"/lib/libccstream.so.* $(find "$build/python" -name '*.so'); do
    [ -f "$file" ] && [ ! -L "$file" ] && readelf -h "$file" >/dev/null 2>&1 || continue
    count=$((count + 1))
    missing=$(lacks "$file" | paste -sd,)
    [ -z "$missing" ] || echo "$file: $missing" >>bad.txt
done
[ "$count" -ge 4 ] || fail "only $count files were looked at"
[ ! -s bad.txt ] || { cat bad.txt; fail "a build product is not hardened"; }

# The check can fail.
printf '#include <stdio.h>\nint main(int n, char **v) { char b[9]; sprintf(b, "%%s", v[n - 1]); return puts(b); }\n' >a.c
cc a.c -o a -no-pie -U_FORTIFY_SOURCE -fno-stack-protector -Wl,-z,lazy,-z,norelro -w
[ "$(lacks ./a | paste -sd,)" = "PIE,RELRO,-z now,stack protector,FORTIFY" ] || fail "the check sees only $(lacks ./a | paste -sd,)"
