"""A real systemd, booted in a container over this machine's own files, for what only a boot can show."""
