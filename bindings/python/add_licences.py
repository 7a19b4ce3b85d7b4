"""Puts the licences of the libraries inside a wheel into it, from the packages of Debian that they came from.

    python3 add_licences.py WHEEL

Each library in ccstream.libs must be that of an installed package; its /usr/share/doc/PACKAGE/copyright becomes
licenses/bundled/PACKAGE.txt, and the common licences that such a file names are copied beside it. The same wheel gives
the same bytes. CCSTREAM_DPKG: the system that has the packages (default: this one).
"""
import base64
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(os.environ.get("CCSTREAM_DPKG", "/"))
COMMON = ROOT / "usr/share/common-licenses"


def package_of(library):
    """auditwheel names libzstd.so.1.5.4 libzstd-0123abcd.so.1.5.4."""
    file = re.sub(r"-[0-9a-f]{8}(?=\.so)", "", library)
    found = subprocess.run(["dpkg-query", f"--admindir={ROOT}/var/lib/dpkg", "-S", f"*/{file}"], capture_output=True, text=True).stdout
    names = sorted({line.split(":")[0] for line in found.splitlines() if re.search(r"/lib/[^ ]*$", line)})
    if not names:
        sys.exit(f"add_licences: no package has {file}, which is in the wheel")
    return names[0]


def texts_of(package):
    """(name, bytes) of its licences."""
    copyright = (ROOT / "usr/share/doc" / package / "copyright").read_bytes()
    names = sorted(set(re.findall(rb"/usr/share/common-licenses/([A-Za-z0-9.+-]*[A-Za-z0-9])", copyright)))
    return [(f"{package}.txt", copyright), *((n.decode() + ".txt", (COMMON / n.decode()).read_bytes()) for n in names)]


def main(wheel):
    with zipfile.ZipFile(wheel) as old:
        parts = [(info, old.read(info)) for info in old.infolist()]
    libraries = [Path(info.filename).name for info, _ in parts if ".libs/" in info.filename and ".so" in info.filename]
    if not libraries:
        sys.exit("add_licences: there are no libraries in the wheel: was it repaired by auditwheel?")
    at = next(i for i, (info, _) in enumerate(parts) if info.filename.endswith(".dist-info/RECORD"))
    record, rows = parts.pop(at)
    folder = record.filename.rsplit("/", 1)[0] + "/licenses/bundled/"
    added = sorted({pair for library in libraries for pair in texts_of(package_of(library))})
    for name, data in added:
        info = zipfile.ZipInfo(folder + name, record.date_time)
        info.external_attr, info.compress_type = 0o100644 << 16, zipfile.ZIP_DEFLATED
        parts.append((info, data))
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        rows += f"{info.filename},sha256={digest},{len(data)}\n".encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        for info, data in [*parts, (record, rows)]:
            new.writestr(info, data)
    print(f"{len(libraries)} libraries, {len(added)} files of licences")


main(sys.argv[1])
