"""``kvtide snapshot``: what torch's allocator snapshots say, and what grew between them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.errors import KvtideError
from agent.plain import plain


def snapshot(
    files: Annotated[list[Path], typer.Argument(help="Snapshots: pickle or JSON, gzip or not; oldest first.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    html: Annotated[Path | None, typer.Option("--html", help="Write a page with a map and a flame graph.")] = None,
    max_mib: Annotated[int, typer.Option(min=1, max=1 << 20, help="The largest file to read, unpacked (MiB).")] = 1024,
) -> None:
    """Tell what torch's CUDA allocator held: fragmentation, who holds it, what never ended.

    With several files, also what grew from the first to the last. Runs nothing that a file contains.

    Examples: kvtide snapshot dump.pickle; kvtide snapshot before.pickle after.pickle;
    kvtide snapshot dump.pickle --html map.html
    """
    import msgspec

    from agent.snapshot.analyse import analyse
    from agent.snapshot.compare import compare
    from agent.snapshot.read import read

    snapshots = [read(path, max_mib << 20) for path in files]
    names = [plain(str(path)) for path in files]
    reports = [analyse(value, name) for value, name in zip(snapshots, names, strict=True)]
    comparison = compare(snapshots, names) if len(snapshots) > 1 else None
    if html is not None:
        from agent.snapshot.page import page

        try:
            html.write_text(page(snapshots[-1], reports[-1], comparison), encoding="utf-8")
        except OSError as error:
            raise KvtideError(f"{html}: can't be written: {error.strerror or error}") from None
    if as_json:
        typer.echo(msgspec.json.format(msgspec.json.encode({"reports": reports, "comparison": comparison})).decode())
        return

    from agent.faces.terminal import for_reports
    from agent.snapshot import changes, text

    console = for_reports()
    if comparison is not None:
        console.print(changes.render(comparison))
    console.print(text.render(reports[-1]))
    if html is not None:
        console.print(f"The page is in {html}", markup=False, highlight=False)
