"""Workers that only evaluate: this process for one, spawned processes for more. Results come in the order of the tasks.

A spawned worker builds its evaluator once (it loads the workloads there) and keeps it.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from types import TracebackType

from features.errors import PolicyError
from policies.policy import Policy
from policies.search.cases import Case, CaseScore, Evaluator, EvaluatorFactory
from policies.search.detail import Detail

Task = tuple[Policy, Case]

_EVALUATOR: Evaluator | None = None


class WorkerPool:
    """Evaluates tasks; use it as a context manager. `workers` 1 evaluates in this process."""

    def __init__(self, factory: EvaluatorFactory, workers: int) -> None:
        if workers < 1:
            raise PolicyError("`workers >= 1` must hold", value=workers)
        self._factory = factory
        self._workers = workers
        self._local: Evaluator | None = None
        self._processes: ProcessPoolExecutor | None = None

    def __enter__(self) -> WorkerPool:
        if self._workers == 1:
            self._local = self._factory.build()
        else:
            self._processes = ProcessPoolExecutor(
                self._workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_begin,
                initargs=(self._factory,),
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._processes is not None:
            self._processes.shutdown(wait=True, cancel_futures=True)
        self._local = self._processes = None

    def scores(self, tasks: Iterable[Task]) -> Iterator[CaseScore]:
        """The tasks' scores, in their order, as they come. Tasks may come slowly: the first ones are under way then."""
        if self._processes is not None:
            return self._processes.map(_evaluate, tasks)
        if self._local is None:
            raise PolicyError("a worker pool works inside its `with` block only")
        local = self._local
        return (local(policy, case) for policy, case in tasks)

    def details(self, tasks: Sequence[Task]) -> Iterator[Detail]:
        """The tasks' replays looked at closely, in their order, as they come."""
        if self._processes is not None:
            return self._processes.map(_look, tasks)
        if self._local is None:
            raise PolicyError("a worker pool works inside its `with` block only")
        local = self._local
        return (local.detail(policy, case) for policy, case in tasks)

    def by_policy(self, policies: Sequence[Policy], cases: Sequence[Case]) -> Iterator[tuple[CaseScore, ...]]:
        """Every policy's scores on all cases, in order."""
        flat = self.scores([(policy, case) for policy in policies for case in cases])
        for _ in policies:
            yield tuple(next(flat) for _ in cases)


def _begin(factory: EvaluatorFactory) -> None:
    """In a new worker: Ctrl-C is for the coordinator to handle, and a worker ends with it, even if that was killed."""
    global _EVALUATOR
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_coordinator, daemon=True).start()
    _EVALUATOR = factory.build()


def _end_with_coordinator() -> None:
    coordinator = multiprocessing.parent_process()
    if coordinator is not None:
        coordinator.join()
        os._exit(1)


def _evaluate(task: Task) -> CaseScore:
    assert _EVALUATOR is not None, "the initializer ran"
    policy, case = task
    return _EVALUATOR(policy, case)


def _look(task: Task) -> Detail:
    assert _EVALUATOR is not None, "the initializer ran"
    policy, case = task
    return _EVALUATOR.detail(policy, case)
