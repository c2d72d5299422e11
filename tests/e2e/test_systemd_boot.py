"""The agent under a real systemd: installed, started, stuck and killed, reloaded, upgraded; a unit that it restarts.

One boot; each test looks at what the script has printed under its name.
"""

from __future__ import annotations

import os
import shutil

import pytest

from tests.bed.boot.machine import Machine, missing
from tests.bed.boot.wheels import ROOT, wheels

SECONDS = 600.0
PYTHON = "/usr/bin/python3"  # one below /root or /home the sandbox hides
# A busy machine may give a healthy agent nothing to run for seconds.
DROP_IN = "[Service]\nWatchdogSec=8\nTimeoutAbortSec=1\nRestartSec=0.2\n"
ENGINE = "[Service]\nExecStart=/bin/sleep infinity\nUser=engine\nSupplementaryGroups=kvtide-engines\n"
SCRIPT = r"""
until_() { for _ in $(seq 600); do eval "$1" && return 0; sleep 0.1; done; echo "never: $1"; return 1; }
show() { systemctl show -P "$1" kvtide.service; }
exec 2>&1

echo "## started"
echo "$(show ActiveState) $(show SubState) $(show Type) $(show Result)"
show StatusText
stat -c '%n %a %U %G' /run/kvtide /run/kvtide/* /var/lib/kvtide
ps -o user=,comm= -p "$(show MainPID)"
kvtide status || journalctl -q --no-pager -u kvtide.service

echo "## reached"
for who in engine stranger kvtide; do
    for what in agent.key agent.sock control.sock; do
        setpriv --reuid $who --init-groups --regid $who test -r /run/kvtide/$what && echo "$who may $what"
    done
done

echo "## stuck"
kvtide actions off "a test" >/dev/null && echo "off"
before=$(show MainPID)
kill -STOP "$before"
until_ '[ "$(show MainPID)" != '"$before"' ] && [ "$(show ActiveState)" = active ]' && echo "another process"
[ "$(show NRestarts)" -ge 1 ] && echo "restarted"
kvtide status >/dev/null && echo "answers"
journalctl -q --no-pager -u kvtide.service | grep -o 'Watchdog timeout.*' | head -1
grep -aqs "switched off by root: a test" /var/lib/kvtide/actions.db* && echo "journal kept"

echo "## reloaded"
systemctl reload kvtide.service && echo "done, $(show ActiveState)"
echo "profile: nonsense" > /etc/kvtide/policy.yaml
echo "policy: /etc/kvtide/policy.yaml" >> /etc/kvtide/agent.yaml
systemctl restart kvtide.service || echo "refused"
echo "$(show ActiveState) $(show ExecMainStatus)"
echo "profile: textbook" > /etc/kvtide/policy.yaml
systemctl reset-failed kvtide.service; systemctl start kvtide.service && echo "mended"

echo "## upgraded"
PIP_NO_COMPILE=1 WHEELS=/wheels /kvtide/deploy/install.sh install >/dev/null && echo "installed"
tail -1 /etc/kvtide/agent.yaml
show ActiveState
kvtide status --json | grep -o '"profile": "[a-z]*"' | head -1

echo "## supervised"
before=$(systemctl show -P MainPID engine.service)
/opt/kvtide/bin/python - "$before" <<'PYTHON'
import asyncio, sys
from agent.supervisor.base import RefusedError, Target
from agent.supervisor.systemd import SystemdSupervisor

async def main():
    engine = SystemdSupervisor("engine.service", 120.0)
    target = Target(engine="llama", instance="a", host="h", pid=int(sys.argv[1]), started_at=0.0)
    try:
        await SystemdSupervisor("kvtide.service", 120.0).restart(target)
    except RefusedError as error:
        print("refused:", error)
    await engine.restart(target)

asyncio.run(main())
PYTHON
until_ '[ "$(systemctl show -P MainPID engine.service)" != '"$before"' ]' && echo "engine restarted"

echo "## removed"
/kvtide/deploy/install.sh uninstall
systemctl is-active kvtide.service
ls -d /opt/kvtide /etc/kvtide/agent.yaml /var/lib/kvtide 2>&1
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the script has printed, by heading."""
    if why := missing():
        pytest.skip(f"no systemd can be booted: {why}")
    with Machine(tmp_path_factory.mktemp("boot"), f"kvtide-test-{os.getpid()}") as machine:
        shutil.copytree(wheels(), machine.root / "wheels")
        for part in ("deploy", "constraints"):
            shutil.copytree(ROOT / part, machine.root / "kvtide" / part)
        for user in ("engine", "stranger"):
            machine.chroot("useradd", "--system", "--user-group", user)
        machine.chroot("/kvtide/deploy/install.sh", "install", WHEELS="/wheels", PYTHON=PYTHON)
        machine.chroot("usermod", "-aG", "kvtide-engines", "engine")
        units = machine.root / "etc/systemd/system"
        (units / "kvtide.service.d").mkdir()
        (units / "kvtide.service.d/test.conf").write_text(DROP_IN)
        (units / "engine.service").write_text(ENGINE)
        (units / "kvtide.service.d/engine.conf").write_text("[Unit]\nWants=engine.service\n")
        output = machine.boot(SCRIPT, SECONDS)
    return {part.partition("\n")[0]: part.partition("\n")[2] for part in output.split("## ")[1:]}


def test_it_is_ready_as_its_own_user_with_the_modes_that_it_should_have(told: dict[str, str]) -> None:
    lines = told["started"].splitlines()
    assert lines[0] == "active running notify success"
    assert lines[1] == "engines: none; nothing is wrong"
    for line in (
        "/run/kvtide 755 kvtide kvtide",
        "/run/kvtide/agent.key 640 kvtide kvtide-engines",
        "/run/kvtide/agent.sock 660 kvtide kvtide-engines",
        "/run/kvtide/control.sock 660 kvtide kvtide",
        "/var/lib/kvtide 750 kvtide kvtide",
        "kvtide   kvtide",
    ):
        assert line in lines
    assert "No engine is connected at /run/kvtide/agent.sock." in told["started"]


def test_engines_may_connect_and_not_order_and_strangers_neither(told: dict[str, str]) -> None:
    assert told["reached"].splitlines() == [
        "engine may agent.key",
        "engine may agent.sock",
        "kvtide may agent.key",
        "kvtide may agent.sock",
        "kvtide may control.sock",
    ]


def test_a_main_loop_that_stands_still_is_killed_and_started_again(told: dict[str, str]) -> None:
    lines = told["stuck"].splitlines()
    assert lines[:4] == ["off", "another process", "restarted", "answers"]
    assert lines[4].startswith("Watchdog timeout")
    assert lines[5] == "journal kept"


def test_a_reload_is_told_and_a_wrong_configuration_is_not_tried_for_ever(told: dict[str, str]) -> None:
    lines = told["reloaded"].splitlines()
    assert lines[0] == "done, active"
    assert "refused" in lines
    assert "failed 2" in lines
    assert lines[-1] == "mended"


def test_an_upgrade_keeps_the_configuration(told: dict[str, str]) -> None:
    assert told["upgraded"].splitlines() == [
        "installed",
        "policy: /etc/kvtide/policy.yaml",
        "active",
        '"profile": "textbook"',
    ]


def test_a_unit_is_restarted_where_the_engine_is_in_it_and_only_there(told: dict[str, str]) -> None:
    lines = told["supervised"].splitlines()
    assert lines[0].startswith("refused: process ")
    assert lines[0].endswith(" of llama is not seen in unit kvtide.service")
    assert lines[1] == "engine restarted"


def test_what_is_a_persons_stays_when_it_is_removed(told: dict[str, str]) -> None:
    assert told["removed"].splitlines() == [
        "Kept: /etc/kvtide, /var/lib/kvtide and the user kvtide; purge removes the folders.",
        "inactive",
        "ls: cannot access '/opt/kvtide': No such file or directory",
        "/etc/kvtide/agent.yaml",
        "/var/lib/kvtide",
    ]
