"""The pieces that all parts of the page are made of, and their style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from agent.faces.lines import BAD, Line

STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.4rem;margin:.2rem 0}h2{font-size:1.1rem;margin:0}h3{font-size:1rem;margin:.6rem 0 0}
section{border:1px solid #8886;border-radius:.5rem;padding:.8rem 1rem;margin:1rem 0}
.bar{display:flex;height:1.2rem;border-radius:.3rem;overflow:hidden;background:#8883;margin:.5rem 0}
.bar span{display:block;overflow:hidden;text-align:center;font:600 .75rem/1.2rem system-ui;color:#000}
.key{display:inline-block;width:1rem;height:1rem;border-radius:.2rem;margin-right:.4rem;background:#8883;
text-align:center;font:600 .7rem/1rem system-ui;color:#000;vertical-align:.05rem}
.held{background:#0072b2}.cached{background:#56b4e9}.leak{background:#d55e00}.empty{background:#8883}
.light{color:#fff!important}.striped{background-image:repeating-linear-gradient(45deg,#fff6 0 3px,transparent 3px 7px)}
.verdict{border-left:.35rem solid #d55e00;padding:.3rem .8rem;margin:.6rem 0}
.warn{border-color:#e69f00}.resolved{border-color:#009e73}.quiet{opacity:.7}nav a{margin-right:1rem}
dl{display:grid;grid-template-columns:repeat(auto-fit,minmax(9rem,1fr));gap:.4rem;margin:.5rem 0}
.lines{display:block}.lines div{display:flex;gap:.8rem}.lines dt{flex:0 0 7rem;overflow-wrap:anywhere}
.lines div{margin:.15rem 0}.lines dd{overflow-wrap:anywhere;border-left:.35rem solid transparent;padding-left:.5rem}
.lines .bad{border-color:#d55e00}.lines .warn{border-color:#e69f00}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;margin:.5rem 0}
th,td{text-align:right;padding:0 .8rem;white-space:nowrap}
th:first-child,.named td:last-child,.named th:last-child{text-align:left}th:first-child{padding-left:0;font-weight:400}
tbody th{white-space:normal;overflow-wrap:anywhere;min-width:6rem}.named th{white-space:nowrap;min-width:0}
.lost{color:#d55e00;font-weight:600}
.tide{width:100%;height:auto;font:11px system-ui}.tide text{fill:currentColor;opacity:.75}
.tide .grid{stroke:#8886}.area-held{fill:#0072b2}.area-cached{fill:#56b4e9}.area-leak{fill:#d55e00}
dt{font-size:.85rem;opacity:.75}dd{margin:0;font-variant-numeric:tabular-nums}
@media(max-width:30rem){.lines div{display:block}.lines dt:empty{display:none}.tide{font-size:14px;overflow:visible}
section{padding:.6rem .7rem}th,td{padding:0 .35rem}}
"""
_CLASSES = {BAD: "bad", "yellow": "warn", "dim": "quiet"}  # of the terminal's styles


def section(title: str, *parts: str) -> str:
    """Return a box with a heading; ``parts`` are HTML."""
    return f"<section><h2>{escape(title)}</h2>{''.join(parts)}</section>"


def quiet(text: str) -> str:
    """Return a sentence that is not important, or nothing."""
    return f'<p class="quiet">{escape(text)}</p>' if text else ""


def lines(found: Iterable[Line]) -> str:
    """Return lines in two columns, with a label only where it changes; nothing for none."""
    rows, previous = [], ""
    for label, text, style in found:
        css = f' class="{_CLASSES[style]}"' if style in _CLASSES else ""
        rows.append(f"<div><dt>{escape(label if label != previous else '')}</dt><dd{css}>{escape(text)}</dd></div>")
        previous = label
    return f'<dl class="lines">{"".join(rows)}</dl>' if rows else ""


def table(head: Sequence[str], rows: Iterable[str], css: str = "") -> str:
    """Return a table; ``rows`` are HTML of :func:`row`. ``css``: ``named`` where the last column is text."""
    columns = "".join(f"<th scope=col>{escape(name)}</th>" for name in head)
    body = "".join(rows)
    return (
        f'<div class="wide"><table class="{css}"><thead><tr>{columns}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def row(head: str, cells: Iterable[str], *, key: str = "", css: str = "") -> str:
    """Return a row whose first cell is its heading; ``key`` is HTML before it, ``css`` a class."""
    row_class = f' class="{css}"' if css else ""
    data = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr{row_class}><th scope=row>{key}{escape(head)}</th>{data}</tr>"


def item(name: str, value: str, css: str = "") -> str:
    """Return a number with its name; ``css`` is the class of its part of a bar."""
    key = f'<span class="key {css}"></span>' if css else ""
    return f"<div><dt>{key}{escape(name)}</dt><dd>{escape(value)}</dd></div>"
