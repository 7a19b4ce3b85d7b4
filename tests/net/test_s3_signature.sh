#!/bin/bash
# Signatures of requests to S3 are those of a signer of its own; check_s3_signature.py --botocore, by
# hand, also compares with botocore's.
command -v python3 >which.txt || { echo "skipped: no python3"; exit 77; }
exec python3 "$SRC/tests/net/check_s3_signature.py" "$TESTBIN/request_names"
