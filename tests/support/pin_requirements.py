"""Requirements with versions and SHA-256 for Linux on x86-64 and this Python, as `pip install --require-hashes -r FILE` needs them:
what pip would install now for the names of the first line of FILE, `# NAME...`. Without FILE's other lines being read.

    python3 tests/support/pin_requirements.py FILE...
"""
import json
import subprocess
import sys

for path in sys.argv[1:]:
    with open(path) as f:
        head = f.readline()
    report = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-",
                             *head.lstrip("#").split()], check=True, stdout=subprocess.PIPE).stdout
    lines = sorted("%s==%s --hash=sha256:%s\n" % (i["metadata"]["name"].lower(), i["metadata"]["version"],
                                                 i["download_info"]["archive_info"]["hashes"]["sha256"])
                   for i in json.loads(report)["install"])
    with open(path, "w") as f:
        f.writelines([head, *lines])
