"""Independent tasks in parallel processes.

concurrent.futures with three additions that it lacks: tasks are drawn only when a process is free,
SIGTERM reaches the processes so that they save their training states (joblib kills them), and they
end when the main process is killed.
"""

import argparse
import itertools
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

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
    if hasattr(os, "sched_getaffinity"):  # the CPUs this process may use; Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_parallel(function: Callable, tasks: Iterable[tuple], jobs: int) -> Iterator[tuple]:
    """Yield (index of the task, ``function(*task)``) for each task, as they finish.

    A task is drawn from ``tasks`` only when a process is free. With one job everything is computed
    in this process. ``function`` is a module's function; its arguments and results can be pickled.

    Raises RunError when a process is killed, and the exception of a task that fails. The other
    processes are then terminated and save their training states.
    """
    if jobs == 1:
        for index, task in enumerate(tasks):
            yield index, function(*task)
        return
    waiting = enumerate(tasks)
    others = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(jobs, context, _start_worker)
    running: dict[Future, int] = {}
    try:
        while True:
            for index, task in itertools.islice(waiting, jobs - len(running)):
                running[pool.submit(_run_task, function, task)] = index
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.result()
    except BrokenProcessPool:
        raise RunError("a process was killed (out of memory?); rerun to resume") from None
    finally:
        for worker in set(multiprocessing.active_children()) - others:
            worker.terminate()
        pool.shutdown()  # waits until the states are saved


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
