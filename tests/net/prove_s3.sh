#!/bin/bash
# By hand: a dataset at another implementation of S3, moto (pip install 'moto[server]'), under keys that need percent-encoding.
#
#   tests/net/prove_s3.sh BIN DATASET     BIN: folder of the programs; DATASET: of several shards, below some 100 MB, as moto is slow
#
# It is verified, has the batches of the folder with and without a cache, a subset has the same files, and errors have moto's
# codes. Signatures are tests/net/test_s3_signature.sh's: moto does not check them.
set -eu
bin=$(cd "$1" && pwd)
data=$(cd "$2" && pwd)
work=$(mktemp -d "${TMPDIR:-/tmp}/prove-s3.XXXXXX")
trap '[ -z "${server:-}" ] || kill "$server"; rm -rf "$work"' EXIT
cd "$work"
unset AWS_PROFILE AWS_SESSION_TOKEN AWS_ENDPOINT_URL AWS_ENDPOINT_URL_S3
export AWS_ACCESS_KEY_ID=key AWS_SECRET_ACCESS_KEY=secret AWS_REGION=us-east-1 AWS_CONFIG_FILE=/dev/null
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
python3 -m moto.server -p "$port" >moto.txt 2>&1 &
server=$!
python3 - "$port" "$data" <<'PYTHON'
import boto3, botocore, os, sys, time
s3 = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{sys.argv[1]}", region_name="us-east-1")
for _ in range(100):
    try:
        s3.create_bucket(Bucket="bucket")
        break
    except botocore.exceptions.EndpointConnectionError:
        time.sleep(0.2)
for name in os.listdir(sys.argv[2]):
    if os.path.isfile(f"{sys.argv[2]}/{name}"):
        s3.upload_file(f"{sys.argv[2]}/{name}", "bucket", f"a b/c=d+e@f,g/{name}")
PYTHON
url="s3://bucket/a b/c=d+e@f,g"
at="--endpoint http://127.0.0.1:$port"
"$bin/ccdump" verify $at "$url"
digest() { "$bin/ccbench" loader "$@" --size 32 --batch-size 32 --digest --no-limit --json | grep -o '"digest":"[^"]*"'; }
near=$(digest "$data")
[ "$(digest "$url" $at)" = "$near" ] || { echo "other batches"; exit 1; }
[ "$(digest "$url" $at --cache cache)" = "$near" ] || { echo "other batches through a cache"; exit 1; }
grep -q 'list-type=2.*prefix=a' moto.txt || { echo "the sizes of shards are not those of the bucket's list"; exit 1; }
"$bin/ccpack" subset -q "$url" $at --where 'id < 50' -o far
"$bin/ccpack" subset -q "$data" --where 'id < 50' -o near
diff -r far near
says() { # says WORDS LOCATION
    ! "$bin/ccdump" info $at "$2" 2>err.txt && grep -q "$1" err.txt || { cat err.txt; exit 1; }
}
says NoSuchKey s3://bucket/none
says NoSuchBucket s3://no-such-bucket/none
echo "the dataset of the folder, in everything that was compared"
