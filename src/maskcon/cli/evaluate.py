"""`maskcon evaluate`."""

from __future__ import annotations

import json

from maskcon.cli import options
from maskcon.cli.printing import echo


def evaluate(
    run: options.Run,
    as_json: options.Json = False,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
) -> None:
    """Embed the test images of a run with its encoder and compute recall@K.

    Example: `maskcon evaluate runs/embedded-teachcon-seed0 --json`
    """
    from maskcon.api import Run, score

    finished = Run.open(run)
    place = options.machine(data_root=data_root, download=download)
    result = {**finished.result, **score(finished, place, device=device)}
    if as_json:
        echo(json.dumps(result))
        return
    from maskcon.cli.terminal import print_result

    print_result(result, run)
