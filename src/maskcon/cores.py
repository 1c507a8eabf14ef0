"""Work that falls into independent parts, a part a core."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch

Part = TypeVar("Part")
Result = TypeVar("Result")


def in_order(
    work: Callable[[Part], Result], parts: Iterable[Part], device: torch.device
) -> Generator[Result, None, None]:
    """work(part) of every part, in order; on a CPU by as many threads as torch uses, each with one core.

    Cores that share the work of a layer wait for the slowest of them at each layer, which costs most of the speed where
    another program has a core as well. A part a core waits for nobody, and its result does not depend on their number.
    A few parts are worked on ahead of the one that is given out. Each is computed without gradients.

    >>> list(in_order(lambda number: number * number, range(4), torch.device("cpu")))
    [0, 1, 4, 9]
    """
    cores = torch.get_num_threads() if device.type == "cpu" else 1

    def quietly(part: Part) -> Result:
        with torch.no_grad():  # holds for the thread that asks
            return work(part)

    if cores == 1:
        yield from map(quietly, parts)
        return
    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(cores, initializer=torch.set_num_threads, initargs=(1,))
    try:
        for part in parts:
            waiting.append(pool.submit(quietly, part))
            if len(waiting) > cores:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(cores)  # threads that start later take the number set last, by whomever
