"""``kvtide-chaos``: the same faults from a shell, and ``expect`` for a pipeline."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kvtide_chaos.injector import Injector, InjectorError

app = typer.Typer(
    help="Faults on purpose, for staging: each ends after --for, or with Ctrl-C, and is then taken back.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
For = Annotated[str, typer.Option("--for", metavar="TIME", help="How long at most: 30s, 5m, 1h.")]
SAY_EVERY_SECONDS = 1.0


@app.command(epilog="Example: kvtide-chaos memory --rate 10MB/s --limit 1GiB --where cuda:0 --for 5m")
def memory(
    rate: Annotated[str, typer.Option(help="How fast: 10MB/s, 1GiB/m.")] = "10MB/s",
    limit: Annotated[str, typer.Option(help="How much at most.")] = "1GiB",
    where: Annotated[str, typer.Option(help="host, or a torch device such as cuda:0.")] = "host",
    lasting: For = "10m",
) -> None:
    """Hold more and more memory, of the host or of a device."""
    from kvtide_chaos.memory import MemoryLeakInjector

    injector = MemoryLeakInjector(rate, limit=limit, where=where, duration=lasting)
    _run(injector, lambda: f"{injector.leaked_bytes / 1e6:,.0f} MB held")


@app.command(epilog="Example: kvtide-chaos kv /run/chaos --rate 2blocks/s --limit 50")
def kv(
    directory: Annotated[Path, typer.Argument(help="What the engine was started with as KVTIDE_CHAOS_DIR.")],
    rate: Annotated[str, typer.Option(help="How fast: 2blocks/s, 30blocks/m.")] = "1block/s",
    limit: Annotated[int, typer.Option(min=1, help="How many blocks at most.")] = 100,
    lasting: For = "10m",
) -> None:
    """Let an engine lose KV blocks as its requests finish; they stay lost."""
    from kvtide_chaos.kv_blocks import KvBlockLeakInjector

    injector = KvBlockLeakInjector(directory, rate, limit=limit, duration=lasting)
    _run(
        injector,
        lambda: f"{injector.leaked_blocks} blocks leaked",
        lambda: (
            f"no block has leaked: does an engine run with KVTIDE_CHAOS_DIR={directory} and kvtide-chaos beside it, "
            "and do its requests finish?"
            if not injector.leaked_blocks
            else ""
        ),
    )


@app.command(epilog="Example: kvtide-chaos freeze 4711 --for 20s")
def freeze(pid: Annotated[int, typer.Argument(help="Which process.")], lasting: For = "30s") -> None:
    """Let a process stand still, and let it go on again."""
    from kvtide_chaos.freeze import FreezeInjector

    _run(FreezeInjector(pid, lasting), lambda: f"process {pid} stands still")


@app.command(epilog="Example: kvtide-chaos hang-ups http://127.0.0.1:8000 MODEL --rate 5requests/s --for 2m")
def hang_ups(
    url: Annotated[str, typer.Argument(help="An OpenAI-shaped server.")],
    model: Annotated[str, typer.Argument(help="The model's name there.")],
    rate: Annotated[str, typer.Option(help="How many: 5requests/s.")] = "2requests/s",
    lasting: For = "10m",
) -> None:
    """Ask for long answers and hang up in the middle."""
    from kvtide_chaos.hang_ups import HangUpInjector

    injector = HangUpInjector(url, model, rate, duration=lasting)
    _run(
        injector,
        lambda: (
            f"{injector.hung_up} hung up, {injector.refused} refused, {injector.failed} failed, "
            f"{injector.skipped} not sent because 16 were open"
        ),
        lambda: (
            f"nobody has hung up: {injector.refused} refused, {injector.failed} failed; is there an OpenAI-shaped "
            f"server at {url}, with the model {model}?"
            if not injector.hung_up
            else ""
        ),
    )


@app.command(epilog="Example: kvtide-chaos expect KvtideBlocksOrphaned --prometheus http://127.0.0.1:9090 --within 5m")
def expect(
    name: Annotated[str, typer.Argument(help="The alert's name.")],
    prometheus: Annotated[str | None, typer.Option(metavar="URL", help="Ask this Prometheus.")] = None,
    alertmanager: Annotated[str | None, typer.Option(metavar="URL", help="Ask this Alertmanager.")] = None,
    within: Annotated[str, typer.Option(help="How long to wait for it.")] = "5m",
    quiet: Annotated[bool, typer.Option("--quiet", help="Fail if it does fire within that time.")] = False,
) -> None:
    """Wait until an alert fires: exit 0 if it did, 1 if not."""
    from kvtide_chaos.alerts import AlertError, AlertWatch

    watch = AlertWatch(prometheus=prometheus, alertmanager=alertmanager)
    try:
        if quiet:
            watch.expect_quiet(name, lasting=within)
            typer.echo(f"{name} did not fire in {within}")
        else:
            alert = watch.expect(name, within=within)
            typer.echo(f"{name} fired after {alert.after_seconds:.0f} s: {alert.annotations.get('summary', '')}")
    except AlertError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None


@app.command(epilog="Example: kvtide-chaos load http://127.0.0.1:8000 --users 32 --for 5m")
def load(
    url: Annotated[str, typer.Argument(help="An OpenAI-shaped server.")],
    users: Annotated[int, typer.Option(min=1, help="Readers at once.")] = 32,
    lasting: For = "5m",
    model: Annotated[str, typer.Option(help="The model's name; empty: the server's first.")] = "",
    prompt_words: Annotated[int, typer.Option(min=1, help="Words of each prompt, +-50 %.")] = 1500,
    answer_tokens: Annotated[int, typer.Option(min=1, help="Tokens of each answer at most.")] = 256,
    p99: Annotated[str, typer.Option(help="Pass mark of a whole answer.")] = "5s",
    error_share: Annotated[float, typer.Option(help="Pass mark: failed / sent, refusals included.")] = 0.001,
    kvtide: Annotated[str, typer.Option(metavar="URL", help="kvtide's agent, asked for failed allocations.")] = "",
) -> None:
    """Send long texts with locust: exit 0 if all pass marks are met, 1 if not."""
    from kvtide_chaos import quantities

    if importlib.util.find_spec("locust") is None:
        raise ValueError("locust is not installed here: pip install 'kvtide-chaos[load]'")
    locustfile = Path(__file__).with_name("locustfile.py")
    options = {
        "--host": url,
        "--users": users,
        "--spawn-rate": max(1, users // 10),
        "--run-time": f"{quantities.seconds(lasting):.0f}s",
        "--model": model,
        "--prompt-words": prompt_words,
        "--answer-tokens": answer_tokens,
        "--p99-seconds": quantities.seconds(p99),
        "--error-share": error_share,
        "--kvtide": kvtide,
    }
    command = [sys.executable, "-m", "locust", "--locustfile", str(locustfile), "--headless", "--only-summary"]
    command += [f"{name}={value}" for name, value in options.items()]
    raise typer.Exit(subprocess.run(command, check=False).returncode)


def _run(injector: Injector, state: Callable[[], str], in_vain: Callable[[], str] = str) -> None:
    """``in_vain``: why nothing has come of it, empty where something has."""
    injector.start()
    try:
        while injector.running:
            time.sleep(SAY_EVERY_SECONDS)
            if injector.running:
                typer.echo(state())
    except KeyboardInterrupt:
        typer.echo("ending")
    finally:
        injector.stop()
    if why := in_vain():
        raise InjectorError(why)
    typer.echo("over: what can be taken back is taken back")


def main() -> None:
    """Entry point of ``kvtide-chaos``: a user's mistake is one line and exit code 2, a failed injector 1."""
    try:
        app()
    except (ValueError, OSError, RuntimeError) as error:
        typer.echo(f"kvtide-chaos: {error}", err=True)
        raise SystemExit(1 if isinstance(error, InjectorError) else 2) from None
