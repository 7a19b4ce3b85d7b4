# No program, library or module of the build, nor what is installed from it, searches the current folder for libraries:
# an empty or relative entry of RUNPATH or RPATH would.
. "$SRC/tests/support/cli.sh"
command -v readelf >/dev/null || { echo "skipped: no readelf"; exit 77; }
build=$(dirname "$BIN")
DESTDIR=$PWD/installed cmake --install "$build" >install.txt 2>&1 || fail "cmake --install: $(tail -1 install.txt)"

bad_entries() { # bad_entries FILE: its search path, if an entry is empty or does not begin with / or $ORIGIN
    readelf -dW "$1" 2>/dev/null | sed -n 's/.*(R\(UN\)\?PATH).*\[\(.*\)\]$/\2/p' |
        grep -E '^$|^:|::|:$|(^|:)([^/$:]|\$([^O{]|O[^R]|\{[^O]))' | sed "s|^|$1: |"
}
count=0
for file in $(find "$build/bin" "$build/lib" "$build/python" "$TESTBIN" "$build/tests/emulated" installed \
    -type f \( -perm -100 -o -name '*.so*' \) 2>/dev/null); do
    readelf -h "$file" >/dev/null 2>&1 || continue
    count=$((count + 1))
    bad_entries "$file" >>bad.txt || true
done
[ "$count" -gt 20 ] || fail "only $count files were looked at"
[ ! -s bad.txt ] || { cat bad.txt; fail "the current folder is searched for libraries"; }

# The check can fail.
printf 'int main(void) { return 0; }\n' >a.c
for path in "" :/usr/lib /usr/lib: lib ./lib '$LIB/x'; do
    cc a.c -o a -Wl,-rpath,"/x:$path" 2>/dev/null || continue
    [ -n "$(bad_entries ./a)" ] || fail "the entry '$path' is not seen"
done
cc a.c -o a -Wl,-rpath,'/usr/lib:$ORIGIN/../lib'
[ -z "$(bad_entries ./a)" ] || fail "a good search path is refused"

# What a stranger planted in the current folder is not loaded.
module=$BIN/libccstream_mpi.so
if [ -e "$module" ]; then
    printf '#include <unistd.h>\n__attribute__((constructor)) static void f(void) { (void)!write(1, "PLANTED\\n", 8); }\n' >x.c
    nm -D --undefined-only "$module" | awk '$2 ~ /^MPI_/ { print "int " $2 "(void) { return 1; }" }
        $2 ~ /^ompi_/ { print "char " $2 "[4096];" }' >>x.c
    for name in $(readelf -dW "$module" | sed -n 's/.*(NEEDED).*\[\(libmpi.*\)\]$/\1/p'); do
        cc -w -shared -fPIC -Wl,-soname,"$name" -o "$name" x.c
    done
    "$BIN/ccstream-train" --transport mpi --data nowhere --out r >out.txt 2>&1 || true
    hasnt out.txt PLANTED
fi

# Libraries that are opened by name while a program runs: the loader tries no relative name for them, and loads none from here.
mkdir opened
cd opened
printf '#include <unistd.h>\n__attribute__((constructor)) static void f(void) { (void)!write(1, "PLANTED\\n", 8); }\n' >x.c
for name in libcurl.so.4 libcurl-gnutls.so.4 libcuda.so.1 libnccl.so.2 libcudnn.so.9 libgloo.so.0; do
    cc -shared -fPIC -Wl,-soname,"$name" -o "$name" x.c
done
cp libnccl.so.2 libccstream_gloo.so
cp libnccl.so.2 libccstream_mpi.so
cp libnccl.so.2 libccstream_cuda.so
opens() { # opens COMMAND...
    env -u LD_LIBRARY_PATH LD_DEBUG=libs LD_DEBUG_OUTPUT="$PWD/tried" "$@" >out.txt 2>err.txt || true
    hasnt out.txt PLANTED
    cat tried.* >>all.txt
    rm tried.*
}
opens "$BIN/ccdump" info http://127.0.0.1:1/d
has all.txt libcurl
opens "$BIN/ccstream-train" --list-devices
[ ! -e "$BIN/libccstream_cuda.so" ] || has all.txt libcuda.so.1
opens "$BIN/ccstream-train" --transport gloo --data nowhere --out r
[ ! -x "$TESTBIN/test_kernels_cuda_nccl" ] || { opens "$TESTBIN/test_kernels_cuda_nccl" --case the_library_has_all_functions && has all.txt libnccl; }
! grep -E 'trying file=[^/]' all.txt || fail "the current folder is searched for libraries that are opened by name"
cd ..

# No other place of the source opens libraries, and none by a relative path.
(cd "$SRC" && grep -rlE '\b(dl|dlm)open\(' formats augment net pack loader kernels train tools bindings --include='*.c' --include='*.cpp' --include='*.h') |
    sort >opens.txt
printf '%s\n' formats/base/module_file.c kernels/cuda/ranks/nccl.c kernels/cuda_module.c net/curl_library.c >known.txt
cmp opens.txt known.txt || fail "another file opens libraries: say in docs/gpu.md or docs/remote.md where they are searched"

# Libraries of the CUDA module that the loader does not find: from the folders that variables name, never a relative one.
folder=venv/lib/python3.11/site-packages/nvidia/cu99/lib
mkdir -p stubs "$folder"
echo 'int f(void) { return 0; }' >f.c
echo 'int f(void); int g(void) { return f(); }' >g.c
cc -shared -fPIC -o stubs/libcuda.so.1 f.c
cc -shared -fPIC -Wl,-soname,libccsabsent.so.1 -o "$folder/libccsabsent.so.1" f.c
cc -shared -fPIC -o module.so g.c -Wl,--no-as-needed "$folder/libccsabsent.so.1"
cp "$folder/libccsabsent.so.1" .
mkdir lib
cp "$folder/libccsabsent.so.1" lib/
export CCSTREAM_CUDA_MODULE=$PWD/module.so LD_LIBRARY_PATH=$PWD/stubs
for variable in CUDA_HOME=. VIRTUAL_ENV=venv CUDNN_ROOT=; do
    expect 0 env "$variable" "$BIN/ccstream-train" --list-devices
    has out.txt "libccsabsent.so.1 is not found; add its folder to LD_LIBRARY_PATH, or set CUDA_HOME"
done
for variable in "CUDA_HOME=$PWD" "VIRTUAL_ENV=$PWD/venv"; do
    expect 0 env "$variable" "$BIN/ccstream-train" --list-devices
    has out.txt "module.so is not a module of ccstream"
done
