"""``kvtide dashboards``: Grafana's boards. Build them, check them, push them to a Grafana."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from agent.cli.as_json import AsJson, say
from agent.errors import ConfigError, KvtideError

if TYPE_CHECKING:
    from agent.cli.grafana import Grafana

app = typer.Typer(help="Build Grafana's boards, check them, or push them to a Grafana.", no_args_is_help=True)

TOKEN = "KVTIDE_GRAFANA_TOKEN"  # noqa: S105 - the name of a variable, not a token
_POLICY = typer.Option(metavar="PROFILE|FILE", help="Whose thresholds the boards show: a profile or a policy file.")
_URL = typer.Option(help="The Grafana, with its path: https://grafana.example.")
_TOKEN_FILE = typer.Option(help=f"File with a service account's token; else the environment's {TOKEN}.")
_CA_FILE = typer.Option(help="Certificates to trust, in PEM.")
_TIMEOUT = typer.Option(min=1, max=600, help="Seconds for one answer.")
_FOLDER = typer.Option(metavar="UID", help='Uid of the folder, made where it is not there; "" is none.')


@app.command()
def build(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where to write them.")] = Path("kvtide-dashboards"),
    policy: Annotated[str, _POLICY] = "default",
    *,
    as_json: AsJson = False,
) -> None:
    """Write the boards as JSON, and Grafana's provisioning files beside them.

    Examples: kvtide dashboards build; kvtide dashboards build --out /etc/grafana/kvtide --policy mine.yaml
    """
    make = _builder()
    files = _files(make, policy)
    written = make.write(out, files)
    if as_json:
        say({"folder": str(out), "files": len(files), "written": list(written)})
        return
    typer.echo(f"{out}: {len(written)} files written, {len(files) - len(written)} were as they should be")


@app.command()
def check(  # noqa: PLR0917 - each is an option
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A folder that was built; default: the boards that ship.")
    ] = None,
    policy: Annotated[str, _POLICY] = "default",
    url: Annotated[str | None, _URL] = None,
    token_file: Annotated[Path | None, _TOKEN_FILE] = None,
    ca_file: Annotated[Path | None, _CA_FILE] = None,
    timeout: Annotated[float, _TIMEOUT] = 10.0,
    as_json: AsJson = False,
) -> None:
    """Say whether boards in a folder, or with --url those in a Grafana, are as they would be built. Exit code 1: no.

    Examples: kvtide dashboards check --out /etc/grafana/kvtide; kvtide dashboards check --url https://grafana.example
    """
    if url is not None and out is not None:
        raise ConfigError("--out and --url: give one of the two")
    if url is not None:
        with _grafana(url, token_file, ca_file, timeout) as grafana:
            differ = [uid for uid, board in _boards(policy).items() if _state(grafana, uid, board, None) != "as it is"]
        where = grafana.shown
    else:
        make = _builder()
        files = make.boards(_policy(policy)) if out is None else _files(make, policy)
        differ = make.stale(make.BUILT if out is None else out, files)
        where = "the boards that ship" if out is None else str(out)
    if as_json:
        say({"where": where, "right": not differ, "differ": list(differ)})
        raise typer.Exit(int(bool(differ)))
    if differ:
        raise KvtideError(f"{where}: not as built: {', '.join(differ)}")
    typer.echo(f"{where}: as built")


@app.command()
def push(  # noqa: PLR0917 - each is an option
    url: Annotated[str, _URL],
    token_file: Annotated[Path | None, _TOKEN_FILE] = None,
    folder: Annotated[str, _FOLDER] = "kvtide",
    policy: Annotated[str, _POLICY] = "default",
    message: Annotated[str, typer.Option(help="What the boards' history says.")] = "",
    ca_file: Annotated[Path | None, _CA_FILE] = None,
    timeout: Annotated[float, _TIMEOUT] = 10.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Save the boards in a Grafana, over those of the same uid; what is there as it should be is left alone.

    Examples: kvtide dashboards push --url https://grafana.example --token-file token;
    KVTIDE_GRAFANA_TOKEN=... kvtide dashboards push --url http://127.0.0.1:3000 --dry-run
    """
    from engine_hooks import __version__

    boards = _boards(policy)
    said = message or f"kvtide {__version__}"
    with _grafana(url, token_file, ca_file, timeout) as grafana:
        lacks = bool(folder) and not grafana.has_folder(folder)
        done: dict[str, str] = {}
        if lacks:
            if not as_json:
                typer.echo(f"folder {folder}: {'would be made' if dry_run else 'made'}")
            if not dry_run:
                grafana.make_folder(folder, folder)
        for uid, board in boards.items():
            state = _state(grafana, uid, board, folder)
            if state != "as it is" and not dry_run:
                grafana.save(board, folder, said)
            done[uid] = state
            if as_json:
                continue
            would = "would be " if dry_run and state != "as it is" else ""
            typer.echo(f"{grafana.shown}/d/{uid}: {would}{'left ' if state == 'as it is' else ''}{state}")
        if as_json:
            say({"where": grafana.shown, "dry_run": dry_run, "folder_made": lacks, "boards": done})


def _state(grafana: Grafana, uid: str, board: dict[str, Any], folder: str | None) -> str:
    """Return what has to be done about a board there. ``folder``: where it has to be; None: anywhere."""
    from agent.cli.grafana import same

    found = grafana.board(uid)
    if found is None:
        return "created"
    there, place = found
    return "as it is" if same(board, there) and folder in (None, place) else "updated"


def _grafana(url: str, token_file: Path | None, ca_file: Path | None, timeout: float) -> Grafana:
    from agent.cli.grafana import Grafana

    return Grafana(url, _token(token_file), timeout=timeout, ca_file=ca_file)


def _token(file: Path | None) -> str:
    import os

    where = TOKEN if file is None else f"--token-file {file}"
    try:
        token = os.environ.get(TOKEN, "") if file is None else file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {error.strerror if isinstance(error, OSError) else 'it is not text'}") from None
    token = token.strip()
    if not token:
        raise ConfigError(f"{where}: there is no token in it; a service account of that Grafana has one")
    if not token.isascii() or not token.isprintable():
        raise ConfigError(f"{where}: that is no token")
    return token


def _boards(policy: str) -> dict[str, dict[str, Any]]:
    """Return the boards by uid: those that ship, which need no SDK, unless another policy is asked for."""
    import json

    import dashboards

    if policy == "default":
        folder = Path(dashboards.__file__).parent / "built"
        texts = [file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.json"))]
    else:
        texts = list(_builder().boards(_policy(policy)).values())
    found = [json.loads(text) for text in texts]
    return {board["uid"]: board for board in found}


def _files(make: Any, policy: str) -> dict[str, str]:
    provisioned = {f"provisioning/{name}": text for name, text in make.provisioned().items()}
    return {**make.boards(_policy(policy)), **provisioned}


def _policy(name: str) -> Any:
    from agent.policy.file import choose

    return choose(name)


def _builder() -> Any:
    """Return the module that builds boards; its SDK is an extra of the package."""
    try:
        from dashboards import build as builder
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "grafana_foundation_sdk":
            raise
        raise KvtideError("building boards needs Grafana's SDK: pip install 'kvtide[dashboards]'") from None
    return builder
