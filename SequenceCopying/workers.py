"""Independent pieces of work in side-by-side processes, of one thread each as a rule."""

import argparse
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait

from attention_dynamics.cli import InputError, RunError, Terminated, count, terminate

# Seconds that a process is given to write its training state, when it is to end.
_PATIENCE = 30


def add_jobs_option(group: argparse._ArgumentGroup) -> None:
    """Add ``--jobs`` to a group; None when it is not given, see :func:`default_jobs`."""
    group.add_argument(
        "--jobs",
        type=count,
        default=None,
        help="processes side by side (default: as many as there are CPUs; 1 on mps and cuda)",
    )


def default_jobs(device: str) -> int:
    """How many processes share the device of this type."""
    if device != "cpu":
        return 1
    if hasattr(os, "sched_getaffinity"):  # the CPUs this process may use; Linux only
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def side_by_side(function: Callable, tasks: Iterable[tuple], jobs: int) -> Iterator[tuple]:
    """Yield (number of the task, ``function(*task)``) for each task, as they finish.

    A task is taken from ``tasks`` only when a process is free for it. With one job everything is
    computed here. ``function`` is one of a module, and what it takes and returns can be pickled.

    Raises RunError when a task fails or its process is killed; the others are ended then. An
    InputError of a task is raised as it is.
    """
    if jobs == 1:
        for number, task in enumerate(tasks):
            yield number, function(*task)
        return
    waiting = enumerate(tasks)
    context = multiprocessing.get_context("spawn")
    workers: dict[Connection, multiprocessing.process.BaseProcess] = {}
    busy: dict[Connection, int] = {}  # the task of each worker
    try:
        while True:
            idle = [connection for connection in workers if connection not in busy]
            while (idle or len(workers) < jobs) and (given := next(waiting, None)):
                connection = idle.pop() if idle else _start(context, function, workers)
                busy[connection] = given[0]
                try:
                    connection.send(given[1])
                except OSError:
                    raise _killed(given[0], workers[connection]) from None
            if not busy:
                return
            for connection in wait(list(busy)):
                number = busy.pop(connection)
                try:
                    result, error = connection.recv()
                except (EOFError, OSError):
                    raise _killed(number, workers[connection]) from None
                if error is not None:
                    raise error
                yield number, result
    finally:
        for connection, worker in workers.items():
            connection.close()
            worker.terminate()
        for worker in workers.values():
            worker.join(_PATIENCE)  # it writes its training state
            worker.kill()
            worker.join()


def _start(context, function: Callable, workers: dict) -> Connection:
    ours, theirs = context.Pipe()
    worker = context.Process(target=_work, args=(theirs, function), daemon=True)
    worker.start()
    theirs.close()  # so that the end of the process is the end of the connection
    workers[ours] = worker
    return ours


def _killed(number: int, worker) -> RunError:
    worker.join()
    how = f"exit code {worker.exitcode}"
    if worker.exitcode < 0:
        how = f"killed by {signal.Signals(-worker.exitcode).name}"
    return RunError(f"the process of task {number} ended before its result ({how})")


def _work(connection: Connection, function: Callable) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one ends it
    signal.signal(signal.SIGTERM, terminate)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        while True:
            task = connection.recv()
            try:
                answer = (function(*task), None)
            except (InputError, RunError) as error:
                answer = (None, error)
            except Exception as error:
                line = (str(error).strip() or "no message").splitlines()[0]
                answer = (None, RunError(f"a process failed with {type(error).__name__}: {line}"))
            connection.send(answer)
    except (EOFError, OSError, Terminated):  # the connection is closed, or this process is ended
        return


def _end_with_parent() -> None:
    """End this process with the one that started it, even when that one is killed."""
    wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
