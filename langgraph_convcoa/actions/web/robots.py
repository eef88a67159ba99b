"""What a site's robots.txt allows (RFC 9309), remembered for an hour."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from urllib.robotparser import RobotFileParser

import httpx

from langgraph_convcoa.actions.web.body import PageError

MAX_BYTES = 500_000
_KEPT_SECONDS = 3_600.0
_KEPT_SITES = 1_000
_NOTHING = ["User-agent: *", "Disallow: /"]


class Robots:
    """Answers from the robots.txt of each site, which is read once.

    Args:
        user_agent: Its part before the first slash is looked for in the rules.
    """

    def __init__(self, user_agent: str) -> None:
        self._agent = user_agent
        self._sites: OrderedDict[str, tuple[float, RobotFileParser]] = OrderedDict()

    async def allows(self, url: httpx.URL, read: Callable[[httpx.URL], Awaitable[tuple[int, bytes]]]) -> bool:
        """Whether a page may be read.

        Args:
            url: The page.
            read: Fetches robots.txt: (status, body).
        """
        place = url.copy_with(raw_path=b"/robots.txt", fragment=None)
        key = str(place)
        kept = self._sites.get(key)
        if kept is None or kept[0] < time.monotonic():
            kept = (time.monotonic() + _KEPT_SECONDS, await _rules(place, read))
            self._sites[key] = kept
            while len(self._sites) > _KEPT_SITES:
                self._sites.popitem(last=False)
        return kept[1].can_fetch(self._agent, str(url))


async def _rules(place: httpx.URL, read: Callable[[httpx.URL], Awaitable[tuple[int, bytes]]]) -> RobotFileParser:
    rules = RobotFileParser(str(place))
    try:
        status, body = await read(place)
    except (httpx.TransportError, PageError, TimeoutError):
        # A site whose rules cannot be asked for: RFC 9309 section 2.3.1.4.
        rules.parse(_NOTHING)
        return rules
    if 200 <= status < 300:
        rules.parse(body[:MAX_BYTES].decode("utf-8-sig", "replace").splitlines())
    elif status >= 500 or status == 429:
        rules.parse(_NOTHING)
    else:
        rules.parse([])
    return rules
