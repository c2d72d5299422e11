"""A report as one page that needs nothing from outside; it can be mailed, printed, and attached to a ticket."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from agent.plain import plain
from agent.report.document import Block, Box, Document, Heading, Items, Lead, Picture, Quiet, Table

STYLE = """
:root{color-scheme:light}
body{font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:62rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:1.6rem 0 .3rem;border-bottom:1px solid #ccc}
h3{font-size:1rem;margin:1rem 0 .2rem}.quiet{color:#666;font-size:.9rem}svg{max-width:100%;height:auto}
.lead p{font-size:1.1rem;margin:.3rem 0}.box{border-left:.35rem solid #999;padding-left:.7rem;margin:.8rem 0}
.box h3,.box p{margin:.1rem 0}.page,.harm{border-color:#d55e00}.warn{border-color:#e69f00}.good{border-color:#009e73}
table{border-collapse:collapse;font-size:.9rem}th,td{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0}
td:first-child{white-space:nowrap}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td{overflow-wrap:anywhere}.wide{overflow-x:auto}
@media screen and (max-width:40rem){td{overflow-wrap:break-word}.wide svg{max-width:none;width:40rem}}
@media print{h2{break-after:avoid}svg,.box,tr{break-inside:avoid}}
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def render(document: Document) -> str:
    """Return the page. All text is escaped; no script runs in it and no address in it is ever fetched."""
    title = _text(document.title)
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1"><style>{STYLE}</style></head><body>',
        f"<h1>{title}</h1>",
        *map(_block, document.blocks),
        "</body></html>\n",
    ]
    return "\n".join(parts)


def _block(block: Block) -> str:
    match block:
        case Heading(text, small):
            return f"<h3>{_text(text)}</h3>" if small else f"<h2>{_text(text)}</h2>"
        case Lead(lines):
            return f'<div class="lead">{"".join(f"<p>{_text(line)}</p>" for line in lines)}</div>'
        case Quiet(text):
            return f'<p class="quiet">{_text(text)}</p>'
        case Box(weight, title, text, small):
            below = f'<p class="quiet">{_text(small)}</p>' if small else ""
            return f'<div class="box {weight}"><h3>{_text(title)}</h3><p>{_text(text)}</p>{below}</div>'
        case Picture(svg):
            return f'<div class="wide">{svg}</div>'
        case _:
            return _items(block) if isinstance(block, Items) else _table(block)


def _items(items: Items) -> str:
    if not items.lines:
        return _block(Quiet(items.none))
    kind = "ol" if items.numbered else "ul"
    return f"<{kind}>{''.join(f'<li>{_text(line)}</li>' for line in items.lines)}</{kind}>"


def _table(table: Table) -> str:
    if not table.rows:
        return _block(Quiet(table.none))

    def row(kind: str, cells: Sequence[str]) -> str:
        marks = (" class=n" if place in table.numbers else "" for place in range(len(cells)))
        return "".join(f"<{kind}{mark}>{_text(cell)}</{kind}>" for mark, cell in zip(marks, cells, strict=True))

    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in table.rows)
    head = f"<thead><tr>{row('th', table.head)}</tr></thead>" if any(table.head) else ""
    return f'<div class="wide"><table>{head}<tbody>{body}</tbody></table></div>'


def _text(text: str) -> str:
    return escape(plain(text))
