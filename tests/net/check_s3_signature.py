"""Compares the signatures of requests to S3 with a signer that shares no code with ours.

    check_s3_signature.py REQUEST_NAMES [--keys N] [--seed N] [--botocore]

REQUEST_NAMES (tests/net/request_names.c) requests N random keys of a bucket from fault_server.py,
which records what arrives. The expected Authorization header is computed here, from Amazon's
description of signature version 4; with --botocore (package botocore) a client of botocore makes
the same request at the same time of the clock, and both its URL and its header must be ours.
"""

import argparse
import datetime
import hashlib
import hmac
import json
import os
import random
import subprocess
import sys
import urllib.parse
import urllib.request

ACCESS, SECRET, TOKEN = "AKIDEXAMPLE", "wJalr/XUtn+FEMI=", "to/ken+=="
REGION, BUCKET = "eu-west-1", "bucket-1"
SPECIAL = list("=+@ ,~-._!$&'()*:;?#[]%\"<>\\^`{|}\t") + ["é", "ü", "日", "本", "🙂", "%2F", "%20"]
PLAIN = "abcXYZ019"


def random_key(draw):
    while True:
        parts = []
        for _ in range(draw.randint(1, 4)):
            parts.append("".join(draw.choice(SPECIAL if draw.random() < 0.5 else PLAIN)
                                 for _ in range(draw.randint(1, 12))))
        if not {".", ".."} & set(parts):
            return "/".join(parts)


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def expected_by_hand(target, headers, key):
    """The Authorization header of a GET with these headers, of which all x-amz- ones are signed."""
    encoded = urllib.parse.quote(f"/{BUCKET}/{key}", safe="/-._~")
    if target != encoded:
        return f"the path {encoded}"
    signed = sorted(name for name in headers if name == "host" or name.startswith("x-amz-"))
    canonical = "\n".join(["GET", encoded, "", *(f"{name}:{headers[name]}" for name in signed), "",
                           ";".join(signed), headers["x-amz-content-sha256"]])
    moment = headers["x-amz-date"]
    scope = f"{moment[:8]}/{REGION}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()])
    secret = b"AWS4" + SECRET.encode()
    for part in scope.split("/"):
        secret = sign(secret, part)
    return (f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, SignedHeaders={';'.join(signed)}, "
            f"Signature={sign(secret, text).hex()}")


class Botocore:
    """A client whose requests are caught before they are sent."""

    def __init__(self, endpoint, token):
        import botocore.auth
        import botocore.awsrequest
        import botocore.config
        import botocore.session
        self.auth = botocore.auth
        self.sent = None
        self.client = botocore.session.Session().create_client(
            "s3", region_name=REGION, endpoint_url=endpoint, aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET, aws_session_token=token,
            config=botocore.config.Config(signature_version="s3v4", s3={"addressing_style": "path"},
                                          response_checksum_validation="when_required"))

        def catch(request, **_):
            self.sent = request
            return botocore.awsrequest.AWSResponse(request.url, 200, {}, self)

        self.client.meta.events.register("before-send.s3.GetObject", catch)

    @staticmethod
    def stream():
        return iter([b""])

    def expected(self, target, headers, key):
        moment = datetime.datetime.strptime(headers["x-amz-date"], "%Y%m%dT%H%M%SZ")
        self.auth.get_current_datetime = lambda *_, **__: moment
        self.client.get_object(Bucket=BUCKET, Key=key)
        path = "/" + self.sent.url.split("/", 3)[3]
        if path != target:
            return f"the path {path}"
        authorization = self.sent.headers["Authorization"]
        return authorization.decode() if isinstance(authorization, bytes) else authorization


def received(program, server_script, keys, token):
    """The endpoint, and [(target, headers)] of the requests for the keys, in their order."""
    os.makedirs("empty", exist_ok=True)
    server = subprocess.Popen([sys.executable, server_script, "empty"], stdout=subprocess.PIPE)
    try:
        endpoint = f"http://127.0.0.1:{int(server.stdout.readline())}"
        environment = {"AWS_ACCESS_KEY_ID": ACCESS, "AWS_SECRET_ACCESS_KEY": SECRET,
                       "AWS_REGION": REGION, "PATH": os.environ["PATH"]}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            environment[name] = os.environ.get(name, "")
        if token:
            environment["AWS_SESSION_TOKEN"] = token
        subprocess.run([program, f"s3://{BUCKET}", endpoint], env=environment, check=True,
                       input="".join(key + "\0" for key in keys).encode())
        with urllib.request.urlopen(endpoint + "/stats") as response:
            last = json.load(response)["last"]
    finally:
        server.terminate()
        server.wait()
    return endpoint, [(request["target"], request["headers"]) for request in last]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--keys", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--botocore", action="store_true")
    options = parser.parse_args()
    draw = random.Random(options.seed)
    keys = [random_key(draw) for _ in range(options.keys)]
    server = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fault_server.py")
    wrong = 0
    for token in (None, TOKEN):
        endpoint, requests = received(options.program, server, keys, token)
        assert len(requests) == len(keys), f"{len(requests)} requests of {len(keys)}"
        other = Botocore(endpoint, token) if options.botocore else None
        for key, (target, headers) in zip(keys, requests):
            assert headers.get("x-amz-security-token") == token
            wanted = [expected_by_hand(target, headers, key)]
            wanted += [other.expected(target, headers, key)] if other else []
            for one in wanted:
                if headers.get("authorization") != one:
                    wrong += 1
                    print(f"{key!r}: {target}\n  {headers.get('authorization')}\n  instead of {one}")
    signers = "hand and botocore" if options.botocore else "hand"
    print(f"{2 * len(keys)} requests, with and without session token: {wrong} differ from signatures by {signers}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
