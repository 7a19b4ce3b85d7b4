"""A small Hugging Face Hub on loopback: hub_server.py FOLDER [--token T] [--seconds N] [--uses N] [--limit N] [--edges] [--moved FOLDER]
                                                          [--list HOW] [--page N] [--latency MS]

    GET /datasets/OWNER/NAME/resolve/REVISION/PATH   302 to an address at a storage server, another port, that ends
                                                     after --seconds or --uses; X-Linked-Size, X-Linked-ETag, X-Repo-Commit
    GET /api/datasets/OWNER/NAME/tree/REVISION       JSON, --page (2) entries a page, the next in Link
    GET /api/datasets/OWNER/NAME/revision/REVISION   the commit
    GET /bucket/?list-type=2 at the storage          as S3: XML, --page keys a page; /bucket/KEY is a file
    GET /stats                                       counts of requests; "leaks": headers with a token at the storage; "bytes" that it sent

FOLDER is the dataset. --token: without it 401, with another 403. --limit: of every N requests to /resolve/ one gets
429 with RateLimit and no Retry-After. --edges: the storage's own ETags differ from request to request.
--moved: once a file was asked for, main is another commit, with the files of that folder. --list: pages
after the first are `elsewhere`, at a link that is too `long`, or for S3 `nowhere`; `none`: there is no list.
--latency: of every answer. Prints the ports of the hub and the storage.
"""
import argparse
import functools
import hashlib
import http.server
import json
import os
import threading
import time
import urllib.parse

a = argparse.ArgumentParser()
a.add_argument("folder")
a.add_argument("--token")
a.add_argument("--seconds", type=float, default=3600)
a.add_argument("--uses", type=int, default=0)
a.add_argument("--limit", type=int, default=0)
a.add_argument("--list")
a.add_argument("--page", type=int, default=2)
a.add_argument("--latency", type=float, default=0)
a.add_argument("--edges", action="store_true")
a.add_argument("--commit", default="c" * 40)
a.add_argument("--moved")
o = a.parse_args()
counts = {"resolve": 0, "tree": 0, "storage": 0, "ended": 0, "limited": 0, "refused": 0, "leaks": 0, "moving": 0, "bytes": 0, "addresses": 0}
lock = threading.Lock()
uses = {}  # of each address


def count(name, more=1):
    with lock:
        counts[name] += more
        return counts[name]


@functools.cache
def sha256(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def commit_of(revision):
    if revision != "main":
        return revision
    return "d" * 40 if o.moved and counts["resolve"] > 0 else o.commit


class Base(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two writes

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", **headers):
        time.sleep(o.latency / 1000)
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


class Hub(Base):
    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        parts = urllib.parse.unquote(url.path).split("/")
        if url.path == "/stats":
            return self.answer(200, json.dumps(counts).encode())
        given = self.headers.get("Authorization")
        if o.token and given != "Bearer " + o.token:
            count("refused")
            return self.answer(403 if given else 401, b"gated")
        if url.path.startswith("/api/datasets/"):
            if parts[5] == "revision":
                return self.answer(200, json.dumps({"id": "x", "sha": commit_of(parts[6])}).encode())
            return self.tree(url)
        commit = commit_of(parts[5])
        number = count("resolve")
        if parts[5] != o.commit:
            count("moving")
        if o.limit and number % o.limit == 0:
            count("limited")
            return self.answer(429, b"", RateLimit='"resolvers";r=0;t=1', RateLimit_Policy='"resolvers";q=3000;w=300')
        path = os.path.join(o.moved if commit == "d" * 40 else o.folder, *parts[6:])
        if parts[4] != "resolve" or ".." in parts or not os.path.isfile(path):
            return self.answer(404, b"Entry not found")
        address = f"http://127.0.0.1:{storage.server_port}/{urllib.parse.quote('/'.join(parts[6:]))}?Signature={count('addresses')}&Commit={commit}&Expires={time.time() + o.seconds}"
        self.answer(302, b"", Location=address, X_Linked_Size=str(os.path.getsize(path)),
                    X_Linked_ETag='"' + sha256(path) + '"', X_Repo_Commit=commit)

    def tree(self, url):
        count("tree")
        if o.list == "none":
            return self.answer(403, b"no list")
        names = sorted(n for n in os.listdir(o.folder) if os.path.isfile(os.path.join(o.folder, n)))
        first = int(dict(urllib.parse.parse_qsl(url.query)).get("cursor", 0))
        page = [{"type": "file", "path": n, "size": os.path.getsize(os.path.join(o.folder, n)), "oid": "0" * 40,
                 "lfs": {"oid": sha256(os.path.join(o.folder, n))}} for n in names[first : first + o.page]]
        link = {}
        if first + o.page < len(names):
            port = self.server.server_port + (o.list == "elsewhere")
            link["Link"] = f'<http://127.0.0.1:{port}{url.path}?recursive=true&cursor={first + o.page}{"&x=" + "x" * 2000 if o.list == "long" else ""}>; rel="next"'
        self.answer(200, json.dumps(page).encode(), X_Repo_Commit=o.commit, **link)


class Storage(Base):
    def do_GET(self):
        number = count("storage")
        url = urllib.parse.urlsplit(self.path)
        if "Authorization" in self.headers or (o.token and o.token in str(self.headers) + self.path):
            count("leaks")
        query = dict(urllib.parse.parse_qsl(url.query))
        s3 = url.path.startswith("/bucket/")
        if s3 and "list-type" in query:
            return self.list_keys(query)
        with lock:
            uses[self.path] = uses.get(self.path, 0) + 1
            used = o.uses > 0 and uses[self.path] > o.uses
        if not s3 and (used or float(query.get("Expires", 0)) < time.time()):
            count("ended")
            return self.answer(403, b"expired")
        folder = o.moved if query.get("Commit") == "d" * 40 else o.folder
        path = os.path.join(folder, urllib.parse.unquote(url.path).removeprefix("/bucket").lstrip("/"))
        if not os.path.isfile(path):
            return self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
        file = open(path, "rb")
        size = os.fstat(file.fileno()).st_size
        etag = {"ETag": f'"edge-{number}"' if o.edges and not s3 else '"storage"'}
        asked = self.headers.get("Range")
        if not asked:
            count("bytes", size)
            return self.answer(200, file.read(), **etag)
        first, last = asked.split("=")[1].split("-")
        first, last = int(first), min(int(last or size - 1), size - 1)
        file.seek(first)
        count("bytes", last + 1 - first)
        self.answer(206, file.read(last + 1 - first), Content_Range=f"bytes {first}-{last}/{size}", **etag)


def list_keys(self, query):
    keys = sorted(n for n in os.listdir(o.folder) if n.startswith(query.get("prefix", "")))
    first = int(query.get("continuation-token", "0/+=").removesuffix("/+="))
    more = first + o.page < len(keys)
    page = "".join(f"<Contents><Key>{urllib.parse.quote_plus(k)}</Key><ETag>&quot;storage&quot;</ETag><Size>{os.path.getsize(os.path.join(o.folder, k))}</Size></Contents>"
                   for k in keys[first : first + o.page])
    self.answer(200, (f"<?xml version='1.0'?><ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{page}"
                      + (f"<NextContinuationToken>{first + o.page}/+=</NextContinuationToken>" if more and o.list != "nowhere" else "")
                      + "</ListBucketResult>").encode())


Storage.list_keys = list_keys
http.server.ThreadingHTTPServer.handle_error = lambda *args: None  # clients that hang up
hub = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
storage = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Storage)
threading.Thread(target=storage.serve_forever, daemon=True).start()
print(hub.server_port, storage.server_port, flush=True)
hub.serve_forever()
