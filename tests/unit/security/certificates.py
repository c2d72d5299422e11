"""Certificates of a few days, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path

NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1"


def self_signed(folder: Path, name: str = "server", san: str = NAMES) -> tuple[Path, Path]:
    """Write NAME.pem and NAME.key into ``folder`` and return their paths."""
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-days", "3", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *files, "-subj", f"/CN={name}", "-addext", san], check=True, capture_output=True)
    return certificate, key
