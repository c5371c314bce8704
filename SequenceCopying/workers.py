"""Independent tasks in parallel processes.

concurrent.futures with two additions that it lacks: SIGTERM reaches the processes so that they save
their training states (joblib kills them), and they end when the main process is killed.
"""

import argparse
import itertools
import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing

from tqdm import tqdm

from attention_dynamics.cli import RunError, Terminated, count, terminate


def add_jobs_option(group: argparse._ArgumentGroup) -> None:
    """Add ``--jobs`` to a group; None when it is not given, see :func:`default_jobs`."""
    group.add_argument(
        "--jobs",
        type=count,
        default=None,
        help="number of parallel processes (default: the number of CPUs; 1 on mps and cuda)",
    )


def default_jobs(device: str) -> int:
    """The number of processes that share a device of this type."""
    if device != "cpu":
        return 1
    # the CPUs this process may use; Linux only
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def run_parallel(function: Callable, tasks: Iterable[tuple], jobs: int) -> Iterator:
    """Yield ``function(*task)`` for each task, in their order.

    At most twice as many tasks as ``jobs`` are drawn ahead. With one job everything is computed in
    this process. ``function`` is a module's function; its arguments and results can be pickled.

    Raises RunError when a process is killed, and the exception of a task that fails; the other
    processes are then terminated and save their training states.
    """
    if jobs == 1:
        yield from itertools.starmap(function, tasks)
        return
    waiting, running = iter(tasks), deque()
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _start_worker)
    try:
        while True:
            for task in itertools.islice(waiting, 2 * jobs - len(running)):
                running.append(pool.submit(_run_task, function, task))
            if not running:
                return
            yield running.popleft().result()
    except BrokenProcessPool:
        raise RunError("a process was killed (out of memory?); rerun to resume") from None
    finally:
        for worker in multiprocessing.active_children() if running else []:
            worker.terminate()
        pool.shutdown()  # waits until the states are saved


def run_all(function: Callable, tasks: list[tuple], jobs: int, unit: str) -> list:
    """The results of :func:`run_parallel`; their number is shown in a progress bar."""
    with closing(run_parallel(function, tasks, jobs)) as results:
        return list(tqdm(results, total=len(tasks), unit=unit, disable=not sys.stderr.isatty()))


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the main process terminates its workers
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _run_task(function: Callable, task: tuple) -> object:
    signal.signal(signal.SIGTERM, terminate)
    try:
        return function(*task)
    except Terminated:
        os._exit(143)  # concurrent.futures would start the next task
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _end_with_parent() -> None:
    """End this process with the main process, even when that is killed."""
    multiprocessing.parent_process().join()
    os._exit(1)
