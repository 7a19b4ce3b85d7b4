"""A list of URLs of the images in a folder: fetch_list.py FOLDER PORT ROWS [SHARE-OF-FAULTS]

The faults are those that a server always repeats, so that every run of a list has the same end. Their
rows are printed on stdout, as ROW REASON.
"""
import os
import random
import sys

folder, port, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
share = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
faults = [("404", "http-404"), ("503:0", "http-503"), ("reset", "partial"), ("half", "partial"),
          ("html", "not-an-image"), ("noai", "noai"), ("redirect_loop", "refused"),
          ("redirect_file", "refused"), ("garbage", "protocol"), ("huge_headers", "protocol"),
          ("empty", "partial"), ("chunked", ""), ("redirect_other", ""), ("gzip", ""), ("latency:30", "")]
images = sorted(name for name in os.listdir(folder) if name.endswith(".jpg"))
draw = random.Random(1)
with open("list.tsv", "w", encoding="utf-8") as out:
    for row in range(rows):
        query = f"row={row}"
        if draw.random() < share:
            fault, reason = faults[draw.randrange(len(faults))]
            query += f"&fault={fault}"
            if reason:
                print(row, reason)
        out.write(f"caption {row}\thttp://127.0.0.1:{port}/{images[row % len(images)]}?{query}\n")
