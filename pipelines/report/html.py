"""Pieces of HTML that the pages share."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


def html_table(head: Iterable[str], rows: Iterable[Iterable[str]], kind: str = "") -> str:
    """A table; its cells are HTML already."""
    top = "".join(f"<th>{escape(name)}</th>" for name in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<table class="{kind}"><tr>{top}</tr>{lines}</table>'
