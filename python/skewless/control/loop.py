"""The loop: looks at every running query again and again, on a thread of its own, and lets its watch act.

Separate from the watch because it deals with what is common to all queries: which ones run, the thread, the
session's end. Nothing that goes wrong here reaches a user's thread, and only the end of the session, or
`stop`, ends the loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any, Protocol

from skewless.control.choice import Choice
from skewless.control.placer import Placer, PlacerGateway
from skewless.control.scaler import Scaler, ScalerGateway
from skewless.control.settings import Settings
from skewless.control.troubles import Backoff, Troubles
from skewless.control.watch import QueryGateway, Watch
from skewless.control.worker import Worker
from skewless.report.news import News
from skewless.report.records import QueryRecord
from skewless.report.status import Status

log = logging.getLogger("skewless")

KEPT_QUERIES = 20  # that have ended
STOP_SECONDS = 10.0
STOP_SLICE_SECONDS = 0.5
PLACE_SECONDS = 0.05  # that the loop waits for a placement; a solver goes on beside it
STEP_SECONDS = 10.0  # that the other queries wait for one that plans

_Trouble = (Exception, SystemExit)  # a policy that calls sys.exit() must not end the thread either


class LoopGateway(QueryGateway, PlacerGateway, ScalerGateway, Protocol):
    """What the loop asks of the JVM beyond single queries."""

    def wait(self, seconds: float, /) -> bool: ...
    def active(self) -> list[Any]: ...
    def alive(self) -> bool: ...
    def unwatch(self) -> None: ...
    def show_metrics(
        self, query_id: str, imbalance: float | None, pause_ms: float | None, errors: int, /
    ) -> bool: ...
    def show(self, news: str, /) -> bool: ...


class Loop:
    """`start` runs it on a daemon thread; tests call `step` instead. `status` may be called from any
    thread."""

    def __init__(
        self, gateway: LoopGateway, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.settings = settings
        self._gateway, self._clock = gateway, clock
        self._watches: dict[str, tuple[str, Watch]] = {}  # query id -> run id and its watch
        self._workers: dict[str, Worker] = {}  # by run id
        self._drawn: dict[str, QueryRecord] = {}  # by run id: as it stood after the last step that ended
        self._backoffs: dict[str, Backoff] = {}
        self._choice = Choice()
        self._metrics: dict[str, tuple[float | None, float | None, int]] = {}  # what each query's show
        self._news: News | None = News(self._words("the loop is running"))  # None: nobody keeps them
        self._polling = Backoff(clock)
        self._troubles = Troubles("the loop")
        self._stopping = threading.Event()
        self.placer = Placer(
            gateway,
            settings.placement_policy,
            settings.placement_name,
            settings.placement_pace,
            clock,
            self._stopping.is_set,
        )
        self._scaler = self._new_scaler()
        self._placing = Worker("skewless placement")
        self._one_placing = threading.Lock()  # the loop, or a thread that drains where no loop runs
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()  # guards the three below, all that other threads read
        self._records: tuple[QueryRecord, ...] = ()
        self._errors: dict[str, int] = {}
        self._over = ""

    # -- from any thread -------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="skewless", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """False from the moment on that it was asked to stop: it acts no more."""
        return self._thread is not None and self._thread.is_alive() and not self._stopping.is_set()

    @property
    def stopped(self) -> bool:
        return self._stopping.is_set()

    @property
    def choice(self) -> Choice:
        """Which queries the user wants balanced."""
        return self._choice

    def stop(self, timeout: float = STOP_SECONDS) -> None:
        """Asks the thread to end and waits for it; again does nothing. Published tables stay in force."""
        self._stopping.set()
        if self._thread is None:
            self._end_workers()
        if self._thread is None or self._thread is threading.current_thread():
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            log.warning(
                "the loop has not ended within %.0f s: a policy or a call to the JVM takes long; it ends "
                "after that",
                timeout,
            )

    def status(self) -> Status:
        with self._lock:
            records, errors, over = self._records, self._errors, self._over
        state = f"the loop is over: {over}" if over else "the loop is running"
        threshold = None if self.settings.by_hand else self.settings.limits.max_imbalance
        placing = self.placer.record if self._places or self.placer.record.plans else None
        return Status(self._words(state), records, errors, threshold, placing)

    def place(self) -> None:
        """One look at who holds what, on this thread: for somebody who drains where no loop runs."""
        self._place({str(query.id): query for query in self._gateway.active()})

    @property
    def _places(self) -> bool:
        return self.settings.placement_policy is not None or bool(self.placer.leaving)

    def _new_scaler(self) -> Scaler | None:
        policy, scale = self.settings.placement_policy, self.settings.scale
        if policy is None or scale is None:
            return None
        return Scaler(self._gateway, self.placer, policy, scale, self._clock)

    def _words(self, state: str) -> str:
        if self.settings.by_hand and self.settings.placement_policy is not None:
            return f"{state} (placement {self.settings.placement_name}; tables are published by hand)"
        if self.settings.by_hand:
            return "no loop: tables are published by hand (policy=None)"
        return f"{state} ({self.settings.words})"

    # -- on the loop's thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._pause()
                if not self.step():
                    return
            try:
                self._gateway.unwatch()
            except _Trouble as error:
                self._troubles.note(error)
            self._end("stopped")
        finally:
            self._end_workers()

    def _end_workers(self) -> None:
        self._placing.end()
        self.placer.end()
        if self._scaler is not None:
            self._scaler.stop()
        for worker in list(self._workers.values()):
            worker.end()

    def _pause(self) -> None:
        """Until there is news, or for `poll_seconds`; in slices, so that `stop` is heard."""
        until = time.monotonic() + self.settings.poll_seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            try:
                if self._gateway.wait(min(left, STOP_SLICE_SECONDS)):
                    return
            except _Trouble:
                self._stopping.wait(left)

    def step(self) -> bool:
        """One look at every running query; false when there will be no other, because the session is gone.
        Never raises."""
        try:
            if not self._gateway.alive():
                return self._session_gone()
            if self._polling.seconds_left == 0:
                self._look()
        except _Trouble as error:
            if not self._gateway.alive():
                return self._session_gone()
            self._troubles.note(error)
            self._polling.failed()
        self._record()
        return True

    def _look(self) -> None:
        active = {str(query.id): query for query in self._gateway.active()}
        self._polling.succeeded()
        for query_id, query in active.items():
            self._visit(query_id, query)
        for query_id, (_, watch) in self._watches.items():
            if watch.running and query_id not in active and self._is_idle(watch):
                watch.end("the query has ended")
        self._forget()
        if self._places and self._placing.busy_since is None:
            self._placing.run(lambda: self._place(active), PLACE_SECONDS)

    def _place(self, active: dict[str, Any]) -> None:
        """Never raises: a placement that fails leaves the wishes that were there."""
        with self._one_placing:
            try:
                chosen = {
                    i: query
                    for i, query in active.items()
                    if self.placer.leaving or self._choice.wants(query)
                }
                news = self.placer.step(chosen)
                if self._scaler is not None and not self._stopping.is_set():
                    self._scaler.step(news)
            except _Trouble as error:
                if self._gateway.alive():
                    self.placer.troubles.note(error)

    def _visit(self, query_id: str, query: Any) -> None:
        """Whatever goes wrong with one query stays with that query, and is tried again later."""
        backoff = self._backoffs.setdefault(query_id, Backoff(self._clock))
        if backoff.seconds_left > 0:
            return
        watch = self._watch(query_id, query)
        if not self._is_idle(watch):
            return
        watch.wanted = self._choice.wants(query)
        lost: list[BaseException] = []

        def step() -> None:
            try:
                watch.step()
                backoff.succeeded()
            except _Trouble as error:
                if not self._gateway.alive():
                    lost.append(error)
                    return
                watch.troubles.note(error)
                backoff.failed()
            self._drawn[watch.run_id] = watch.record()

        worker = self._workers.setdefault(watch.run_id, Worker(f"skewless {watch.title}"))
        if worker.run(step, STEP_SECONDS) and lost:
            raise lost[0]

    def _is_idle(self, watch: Watch) -> bool:
        worker = self._workers.get(watch.run_id)
        return worker is None or worker.busy_since is None

    def _watch(self, query_id: str, query: Any) -> Watch:
        run_id = str(query.runId)
        known_run, known = self._watches.get(query_id, ("", None))
        if known is not None and known_run == run_id:
            return known
        if known is not None and not self._is_idle(known):
            known.running, known = False, None  # its memory is in the hands of a policy that does not return
        if known is not None and known.running:
            known.end("the query was started again")
        self._free(known_run)
        self._metrics.pop(query_id, None)  # a new run has new metrics
        name = str(query.name or "")
        watch = Watch(
            query, query_id, name, self._gateway, self.settings, self._clock, known, self._stopping.is_set
        )
        self._watches[query_id] = run_id, watch
        return watch

    def _forget(self) -> None:
        ended = [query_id for query_id, (_, watch) in self._watches.items() if not watch.running]
        for query_id in ended[: max(0, len(ended) - KEPT_QUERIES)]:
            self._free(self._watches.pop(query_id)[0])
            self._backoffs.pop(query_id, None)
            self._metrics.pop(query_id, None)

    def _free(self, run_id: str) -> None:
        self._drawn.pop(run_id, None)
        if run_id in self._workers:
            self._workers.pop(run_id).end()

    def _record(self) -> None:
        records = tuple(self._drawing(watch) for _, watch in self._watches.values())
        for record in records:
            if record.running and not self.settings.by_hand:
                self._show_metrics(record)
        self._tell(records)
        with self._lock:
            self._records, self._errors = records, self._troubles.counts

    def _drawing(self, watch: Watch) -> QueryRecord:
        """What is known of a query; of one that is busy, how it stood before, and what it waits for."""
        worker = self._workers.get(watch.run_id)
        since = None if worker is None else worker.busy_since
        if since is None:
            return watch.record()
        before = self._drawn.get(watch.run_id) or QueryRecord(watch.query_id, watch.name, True, 0, 0, "")
        why = f"{watch.doing} since {datetime.fromtimestamp(since):%H:%M:%S}"
        return replace(before, running=watch.running, why=why)

    def _show_metrics(self, record: QueryRecord) -> None:
        """Keeps the query's metrics up to date: a call to the JVM only when something has changed."""
        last, pause = record.last_batch, record.swaps[-1].pause_ms if record.swaps else None
        now = (None if last is None else last.imbalance, pause, sum(record.errors.values()))
        if self._metrics.get(record.query_id) == now:
            return
        try:
            if self._gateway.show_metrics(record.query_id, *now):
                self._metrics[record.query_id] = now
        except _Trouble as error:
            if self._gateway.alive():
                self._troubles.note(error)

    def _tell(self, records: tuple[QueryRecord, ...]) -> None:
        """Sends the tab in Spark's UI what is new."""
        try:
            news = None if self._news is None else self._news.of(records)
            if news is not None and not self._gateway.show(news):
                self._news = None
        except _Trouble as error:
            if self._gateway.alive():
                self._troubles.note(error)

    def _session_gone(self) -> bool:
        for _, watch in self._watches.values():
            if watch.running and self._is_idle(watch):
                watch.end("the session has stopped", look=False)
            watch.running = False
        self._record()
        self._end("the session has stopped")
        return False

    def _end(self, why: str) -> None:
        with self._lock:
            self._over = self._over or why
        if self._news is not None:
            self._news.loop = self._words(f"the loop is over: {self._over}")
            self._tell(self._records)
