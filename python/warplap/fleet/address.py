"""Addresses of a Ray cluster: one comes in; it is good, or the driver ends with what was expected."""

from __future__ import annotations

import ipaddress
import os
import socket
import sys


def check(address: str) -> None:
    """Whoever reaches Ray's ports runs code on every node: beyond this machine that needs a token."""
    if address in ("local", "auto") or os.environ.get("RAY_AUTH_MODE") == "token":
        return
    host = address.removeprefix("ray://").rsplit(":", 1)[0].strip("[]")
    try:
        near = all(ipaddress.ip_address(result[4][0]).is_loopback for result in socket.getaddrinfo(host, None))
    except (OSError, ValueError):
        near = False
    if not near:
        said = f"--address {address} is not this machine, and whoever reaches Ray's ports runs code there"
        sys.exit(f"{said}: expected RAY_AUTH_MODE=token and a token (ray get-auth-token --generate)")
