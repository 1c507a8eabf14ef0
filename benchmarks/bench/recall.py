"""The row `recall_eval`: recall@K against a faiss flat index and a full similarity matrix, and its memory."""

from __future__ import annotations

import torch
from torch import Tensor

from maskcon._utils.threads import usable_cores
from maskcon.retrieval import recall
from maskcon.retrieval.recall import recall_at_k

from .figures import Row
from .measure import BY_THE_CLOCK, ON_ONE_THREAD, Effort, in_fresh_process, in_turns, peak_extra_bytes

SMALL, MIDDLE, LARGE = 8_000, 25_000, 60_000
QUICK_SHARE = 10  # of each size
DIMENSION = 512
MILLION, MILLION_DIMENSION = 1_000_000, 128
QUICK_MILLION = 20_000
STRETCH_SECONDS, QUICK_STRETCH_SECONDS = 15.0, 1.0  # of the million
PEAK_SECONDS = 4.0  # memory is at its height long before
KS = (1, 2, 5, 10)


def recall_eval(effort: Effort) -> Row:
    """Our seconds over those of faiss with as many threads; lower is better."""
    share = QUICK_SHARE if effort.quick else 1
    row: Row = {}
    if not has_faiss():
        row["note"] = "faiss is not installed and was not compared; pip install 'maskcon[faiss]'"
    row |= _timed("8k", SMALL // share, threads=1, turns=effort.turns(3), matrix=True)
    row |= _timed("25k", MIDDLE // share, threads=1, turns=2)
    row |= _timed("25k_all_cores", MIDDLE // share, threads=usable_cores(), turns=1, matrix=True)
    row |= _timed("60k_all_cores", LARGE // share, threads=usable_cores(), turns=1)
    row["cores"] = usable_cores()
    extra = [
        in_fresh_process(
            f"{__name__}:a_stretch", count=count // share, dimension=DIMENSION, seconds=PEAK_SECONDS
        )["extra_mb"]
        for count in (MIDDLE, LARGE)
    ]
    seconds = QUICK_STRETCH_SECONDS if effort.quick else STRETCH_SECONDS
    million = in_fresh_process(
        f"{__name__}:a_stretch",
        threads=usable_cores() if effort.whole_million else 1,
        count=QUICK_MILLION if effort.quick else MILLION,
        dimension=MILLION_DIMENSION,
        seconds=None if effort.whole_million else seconds,
    )
    row["extra_mb"] = max(*extra, million["extra_mb"])
    return row | {f"million_{name}": value for name, value in million.items()}


def has_faiss() -> bool:
    try:
        import faiss  # noqa: F401  # an extra
    except ImportError:
        return False
    return True


def clustered(count: int, dimension: int) -> tuple[Tensor, Tensor]:
    """Clustered embeddings, about a hundred per label, with some errors at rank 1."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(max(2, count // 100), (count,), generator=generator)
    centres = torch.randn(int(labels.max()) + 1, dimension, generator=generator)
    embeddings = torch.randn(count, dimension, generator=generator)
    for part in torch.split(torch.arange(count), 65_536):  # no second array of this size
        embeddings[part] += 0.45 * centres[labels[part]]
    return embeddings, labels


def by_matrix(embeddings: Tensor, labels: Tensor) -> dict[int, float]:
    """Recall@K by topk of the whole similarity matrix."""
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    similarity = unit @ unit.T
    similarity.fill_diagonal_(-torch.inf)
    match = labels[similarity.topk(max(KS), dim=1).indices] == labels[:, None]
    return {k: match[:, :k].any(dim=1).float().mean().item() for k in KS}


def by_faiss(embeddings: Tensor, labels: Tensor) -> dict[int, float]:
    """Recall@K by the flat inner-product index of faiss."""
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    unit = torch.nn.functional.normalize(embeddings, dim=1).numpy()
    index = faiss.IndexFlatIP(unit.shape[1])
    index.add(unit)
    _, found = index.search(unit, max(KS) + 1)
    places = torch.from_numpy(found)
    match = (labels[places] == labels[:, None]) & (places != torch.arange(len(labels))[:, None])
    match = match[:, 1:]  # the nearest is the image itself: there are no duplicates
    return {k: match[:, :k].any(dim=1).float().mean().item() for k in KS}


def _timed(name: str, count: int, *, threads: int, turns: int, matrix: bool = False) -> Row:
    embeddings, labels = clustered(count, DIMENSION)
    work = {"ours": lambda: recall_at_k(embeddings, labels, KS)}
    if has_faiss():
        work["faiss"] = lambda: by_faiss(embeddings, labels)
    if matrix:
        work["matrix"] = lambda: by_matrix(embeddings, labels)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        recall_at_k(*clustered(1000, DIMENSION))  # to warm up: the whole would take too long
        clock = ON_ONE_THREAD if threads == 1 else BY_THE_CLOCK
        taken = in_turns(work, turns, clock=clock, warm_up=0)
    finally:
        torch.set_num_threads(before)
    row: Row = {f"seconds_{name}": taken.median("ours")}
    row[f"ratio_to_faiss_{name}"] = taken.ratio("ours", "faiss") if "faiss" in work else None
    if matrix:
        row[f"ratio_to_matrix_{name}"] = taken.ratio("ours", "matrix")
    return row


class _EnoughError(Exception):
    """The stretch is over."""


def a_stretch(count: int, dimension: int, seconds: float | None) -> dict[str, float | int | str]:
    """Peak memory and seconds of recall@K, projected from a stretch of `seconds` unless None. Runs in a fresh process.

    The stretch begins after the first passes, which compare images of one label, cost more and are a small part.
    """
    recall_at_k(*clustered(200, 8))  # memory of the libraries themselves is not counted
    embeddings, labels = clustered(count, dimension)
    clock = BY_THE_CLOCK if seconds is None else ON_ONE_THREAD
    begin, even_from = clock(), min(0.5, 6 * recall.BLOCK_ROWS / count)
    marks: list[
        tuple[float, float]
    ] = []  # seconds and share of the work: at the start of the stretch, at its end

    def watch(done: int, total: int) -> None:
        now = clock() - begin, done / total
        if seconds is None or now[1] < even_from or done == total:
            return
        if not marks:
            marks.append(now)
        elif now[0] - marks[0][0] >= seconds:
            marks.append(now)
            raise _EnoughError

    def work() -> None:
        try:
            recall_at_k(embeddings, labels, KS, progress=watch)
        except _EnoughError:
            return

    extra = peak_extra_bytes(work)
    figures: dict[str, float | int | str] = {"extra_mb": extra / 1e6, "embeddings": count}
    if len(marks) < 2:  # it came to its end
        return {**figures, "seconds": clock() - begin}
    (before, first), (after, last) = marks
    remark = (
        f"on one core, projected from {after - before:.0f} seconds with {100 * (last - first):.2g} % of the work; "
        "--whole-million measures all of it, on all cores"
    )
    return {
        **figures,
        "projected_seconds": before + (1 - first) * (after - before) / (last - first),
        "note": remark,
    }
