#!/usr/bin/env python3
"""Preprocessor of mdBook for links that work in the repository, but not in the site.

Links that leave docs/ lead to the repository, because the site contains docs/ only. mdBook names a README.md index.html.
"""
import json
import posixpath
import re
import sys

REPOSITORY = "https://github.com/troupe-dev/troupe/blob/main/"
LINK = re.compile(r"\]\(([^)\s:]+)\)")


def in_site(page, link):
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    if not path.startswith("docs/"):
        return REPOSITORY + path
    return re.sub(r"\bREADME\.md\b", "index.md", link)


def rewrite(items):
    for item in items:
        chapter = item.get("Chapter") if isinstance(item, dict) else None
        if chapter and chapter.get("source_path"):
            page = chapter["source_path"]
            chapter["content"] = LINK.sub(
                lambda match: match[0] if match[1].startswith("#") else f"]({in_site(page, match[1])})", chapter["content"]
            )
            rewrite(chapter["sub_items"])


if sys.argv[1:2] != ["supports"]:
    _, book = json.load(sys.stdin)
    rewrite(book["items"])
    json.dump(book, sys.stdout)
