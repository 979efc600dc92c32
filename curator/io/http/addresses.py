"""URLs as a request needs them, and which addresses belong to the public internet.

Not `yarl` or `ada-url`: these repair what can be read in two ways, and a host that two readers see
differently gets round a check.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit, urlunsplit

from urllib3.util import parse_url

NAT64 = ipaddress.ip_network("64:ff9b::/96")  # RFC 6052: IPv6 addresses that stand for IPv4 ones


def normalised(url: str) -> str:
    """A URL as it goes over the wire: no fragment or password, the host in ASCII, all else that is not ASCII
    as %XX of its UTF-8.

    Hosts are encoded by IDNA 2003, which Python has.

    Raises:
        ValueError: it is none that http or https can ask for.
    """
    parts = urlsplit(url.strip())
    scheme = parts.scheme.lower()
    if scheme not in ("http", "https"):
        raise ValueError(f"{scheme or 'no scheme'}: only http and https are fetched")
    if not parts.hostname:
        raise ValueError("there is no host")
    host = parts.hostname
    for _ in range(2):  # what becomes a dot the first time is one the second time
        # a UnicodeError is a ValueError: an empty label, one of over 63 letters
        host = host.encode("idna").decode("ascii")
    netloc = (f"[{host}]" if ":" in host else host) + ("" if parts.port is None else f":{parts.port}")
    parsed = parse_url(urlunsplit((scheme, netloc, parts.path or "/", parts.query, "")))
    # a backslash or the like, which some take for the end of the host
    if (parsed.host or "").strip("[]") != host:
        raise ValueError(f"the host {host!r} can be read in two ways")
    return parsed.url


def host_of(url: str) -> str:
    """Host and port of a URL; the empty string if it has none or cannot be read."""
    try:
        return urlsplit(url.strip()).netloc.rpartition("@")[2].lower()
    except ValueError:
        return ""


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the public internet: not this machine, its network, a cloud's
    metadata, a test range.

    An IPv6 address that stands for an IPv4 one counts as that one.
    Source: the IANA special-purpose address registries, as Python's `ipaddress` has them.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo and ip.teredo[1])
        if ip in NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner:
            return inner.is_global and not inner.is_multicast
    return ip.is_global and not ip.is_multicast
