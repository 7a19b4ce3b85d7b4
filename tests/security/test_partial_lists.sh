# A server's list of files that continues at another place, at a link that is too long, or nowhere: an error, not a part of the dataset.
. "$SRC/tests/support/cli.sh"
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
mkdir tars
for i in 0 1 2; do
    "$TESTBIN/make_scenes" val 4 1 32 tars/$i.tar >scenes.txt
done
listed() { # listed HOW CODE TEXT PATTERN
    exec 3< <(exec python3 "$SRC/tests/support/hub_server.py" tars --token hf_secret --list "$1")
    server=$!
    read -r hub storage <&3
    expect "$2" env HF_TOKEN=hf_secret HF_ENDPOINT=http://127.0.0.1:$hub AWS_ENDPOINT_URL_S3=http://127.0.0.1:$storage AWS_ACCESS_KEY_ID=a \
        AWS_SECRET_ACCESS_KEY=b "$BIN/ccpack" -q -o new "$4"
    kill $server
    has err.txt "$3"
    [ "$2" = 0 ] || [ ! -e new ] || fail "a part of the files was packed"
}
trap 'kill "$server" 2>/dev/null || true' EXIT
listed elsewhere 65 "the list of files continues at another place" 'hf://datasets/owner/name/*.tar'
listed long 65 "the list of files continues at another place" 'hf://datasets/owner/name/*.tar'
listed nowhere 65 "a list without its continuation" 's3://bucket/*.tar'
