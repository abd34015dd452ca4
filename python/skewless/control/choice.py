"""Which queries a user wants balanced.

Separate from the loop because it is set on a user's thread and read on the loop's.
"""

from __future__ import annotations

import threading
from typing import Any

from skewless.errors import QueryError


class Choice:
    """All queries, until the user says which; queries go by id or name, so that one may be named before it
    starts.

    >>> choice = Choice()
    >>> choice.exclude("clicks")
    >>> choice.wants_names({"clicks"}), choice.wants_names({"visits"})
    (False, True)
    >>> choice.balance_only("clicks")
    >>> choice.wants_names({"clicks"}), choice.wants_names({"visits"})
    (True, False)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._only: set[str] | None = None
        self._excluded: set[str] = set()

    def balance_only(self, *queries: Any) -> None:
        """These and no others, whatever was said before."""
        with self._lock:
            self._only, self._excluded = {_name(query) for query in queries}, set()

    def exclude(self, *queries: Any) -> None:
        with self._lock:
            self._excluded |= {_name(query) for query in queries}

    def wants(self, query: Any) -> bool:
        return self.wants_names({str(query.id), str(query.name or "")})

    def wants_names(self, names: set[str]) -> bool:
        with self._lock:
            return not names & self._excluded and (self._only is None or bool(names & self._only))


def _name(query: Any) -> str:
    if isinstance(query, str) and query:
        return query
    if not hasattr(query, "runId"):
        raise QueryError(
            f"a streaming query or its name is needed, not {query!r}. Give what writeStream.start() "
            "returned, or the text given to queryName."
        )
    return str(query.id)
