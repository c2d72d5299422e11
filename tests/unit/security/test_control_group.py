"""Who may connect as an engine may not order: the control socket has a group of its own."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from agent.config import LinkConfig
from agent.control.listen import ControlSocket

OTHER = next(each for each in grp.getgrall() if each.gr_gid != os.getegid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file to any group")
@pytest.mark.parametrize(("control_group", "gid"), [(None, os.getegid()), (OTHER.gr_name, OTHER.gr_gid)])
def test_it_is_not_the_engines_group(tmp_path: Path, control_group: str | None, gid: int) -> None:
    link = LinkConfig(socket=tmp_path / "agent.sock", group=OTHER.gr_name, control_group=control_group)
    control = ControlSocket(link)
    status = control.path.stat()
    assert (status.st_gid, status.st_mode & 0o777) == (gid, 0o660)
    control.close()


def test_a_group_that_is_not_there_is_said(tmp_path: Path) -> None:
    control = ControlSocket(LinkConfig(socket=tmp_path / "agent.sock", control_group="no-such-group"))
    assert control.listener is None
    assert "there is no group no-such-group" in control.problem
