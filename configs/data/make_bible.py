#!/usr/bin/env python3
"""Makes bible-train.txt and bible-validation.txt beside this file.

Needs the program `bible` (Debian: bible-kjv and bible-kjv-text). README.md says where the text comes from.
One verse a line without its number, an empty line between chapters.
"""
import pathlib
import re
import subprocess

TRAIN = ("Genesis", "Exodus", "1Samuel", "Psalms", "Matthew", "Luke")
VALIDATION = ("John",)


def read_book(book):
    # References past the end mean the last verse. -f: "Ge1:1 In the beginning ...", one verse a line.
    command = ["bible", "-f", f"{book}1:1-{book}150:200"]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=True).stdout.decode("ascii")


def clean(text):
    lines, last = [], None
    for line in text.splitlines():
        if not line.strip():
            continue
        chapter, verse = re.fullmatch(r"\w+?(\d+):\d+ (.*)", line.strip()).groups()
        if last not in (None, chapter):
            lines.append("")
        last = chapter
        lines.append(" ".join(verse.split()))
    return "\n".join(lines) + "\n"


def main():
    here = pathlib.Path(__file__).parent
    for split, books in (("train", TRAIN), ("validation", VALIDATION)):
        (here / f"bible-{split}.txt").write_text("\n".join(clean(read_book(book)) for book in books), encoding="ascii")


main()
