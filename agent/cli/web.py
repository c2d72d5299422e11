"""``kvtide web``: the web configuration file, and the hashes in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from agent.errors import ConfigError

app = typer.Typer(help="Check the file of TLS and users, or make a hash for it.", no_args_is_help=True)

MOST_BYTES = 72  # more of a password bcrypt does not look at


@app.command()
def check(file: Annotated[Path, typer.Argument(help="The file that http.web_config_file names.")]) -> None:
    """Say whether a web configuration file is right, its certificates included. Exit code 2: it is not.

    Example: kvtide web check /etc/kvtide/web.yaml
    """
    from agent.plain import plain
    from agent.retained import count_of
    from agent.web.settings import CLIENT_AUTH, load

    settings = load(file).settings
    asked = {mode: word for word, mode in CLIENT_AUTH.items()}
    tls = f"TLS, client_auth_type {asked[settings.tls.verify_mode]}" if settings.tls is not None else "no TLS"
    typer.echo(plain(f"{file}: right; {tls}; {count_of(len(settings.users), 'user')}"))


@app.command("hash")
def hash_(
    cost: Annotated[int, typer.Option(min=8, max=14, help="Doubles the time of a check with each step.")] = 10,
) -> None:
    """Ask for a password (or read one line of standard input) and print its bcrypt hash for basic_auth_users.

    Examples: kvtide web hash; kvtide web hash < password.txt
    """
    import getpass
    import sys

    import bcrypt

    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise ConfigError("the two are not the same")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not 0 < len(password.encode()) <= MOST_BYTES:
        raise ConfigError(f"a password has 1 to {MOST_BYTES} bytes")
    typer.echo(bcrypt.hashpw(password.encode(), bcrypt.gensalt(cost)).decode())
