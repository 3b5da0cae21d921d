"""Whether an address stays on this machine, where nobody can listen in on the way."""

import ipaddress


def is_loopback(host: str) -> bool:
    """Report whether `host`, a name or an address with or without brackets, is this machine's loopback.

    A name other than ``localhost`` is not, wherever it resolves to today.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
