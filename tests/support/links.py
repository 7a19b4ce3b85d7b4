#!/usr/bin/env python3
"""Checks the links of all Markdown pages below a folder: what a relative link names is there, inside the folder, and
has the heading after '#'. A page that is named in prose, as `PAGE.md`, is somewhere below the folder.

    links.py FOLDER     prints "N links of M pages"; or what is wrong, FILE:LINE: LINK, with exit code 1
"""
import os
import re
import sys

LINK = re.compile(r'\]\(\s*<?([^)\s>]+)>?(?:\s+"[^"]*")?\s*\)|^\[[^\]]+\]:\s*(\S+)|\b(?:href|src)="([^"]+)"')


def lines_of(path):
    """(number, line) outside of blocks of code."""
    fence = None
    with open(path, encoding="utf-8") as page:
        for number, line in enumerate(page, 1):
            mark = re.match(r" *(```+|~~~+)", line)
            if mark and fence is None:
                fence = mark.group(1)
            elif mark and line.strip() == fence:
                fence = None
            elif fence is None:
                yield number, line


def headings_of(path):
    """Anchors as GitHub makes them of headings, a repeated one with -1, -2, ..."""
    found = {}
    for _, line in lines_of(path):
        heading = re.match(r"#{1,6} +(.*?) *#*$", line.rstrip())
        if heading:
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.group(1))
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            found[slug] = count = found.get(slug, -1) + 1
            yield f"{slug}-{count}" if count else slug


def fault_of(link, page, top):
    name, _, anchor = link.partition("#")
    target = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
    if os.path.relpath(target, top).startswith(".."):
        return "leads out of the folder"
    if not os.path.exists(target):
        return "no such file"
    if anchor and not (target.endswith(".md") and anchor in headings_of(target)):
        return "no such heading"
    return None


def faults_of(page, top, names):
    """(number, link, fault or None) of every link of a page."""
    for number, line in lines_of(page):
        for name in re.findall(r"`(\w+\.md)`", line):
            yield number, name, None if name in names else "no such page"
        for found in LINK.finditer(re.sub(r"(`+)(?!`).*?\1", "", line)):
            link = next(filter(None, found.groups()))
            if not re.match(r"[a-z]+:", link):
                yield number, link, fault_of(link, page, top)


def main():
    top = os.path.abspath(sys.argv[1])
    pages = []
    for folder, folders, files in os.walk(top):
        folders[:] = [f for f in folders if f not in ("build", "site", "venv") and not f.startswith(".")]
        pages += sorted(os.path.join(folder, f) for f in files if f.endswith(".md"))
    names = {os.path.basename(page) for page in pages}
    links = [(page, *found) for page in pages for found in faults_of(page, top, names)]
    wrong = [link for link in links if link[3]]
    for page, number, link, fault in wrong:
        print(f"{os.path.relpath(page, top)}:{number}: {link}: {fault}")
    print(f"{len(links)} links of {len(pages)} pages")
    return bool(wrong) or not links


sys.exit(main())
