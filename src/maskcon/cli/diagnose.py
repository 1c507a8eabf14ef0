"""`maskcon diagnose`."""

from __future__ import annotations

import json

from maskcon.cli import options
from maskcon.cli.printing import echo

MARKS = {"good": "+", "doubtful": "?", "bad": "!", "unknown": " "}


def diagnose(
    run: options.Run,
    data_root: options.DataRoot = None,
    download: options.Download = False,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Say whether an embedding is fit to find kinds in, and what to change.

    Needs no fine labels.

    Example: `maskcon diagnose runs/photos-teachcon-seed0`
    """
    from maskcon.api import Run
    from maskcon.api.diagnosis import diagnose_run
    from maskcon.cli.progress import Meter

    place = options.machine(data_root=data_root, download=download, device=device)
    with Meter("embedding", "images") as meter:
        found = diagnose_run(Run.open(run), machine=place, progress=meter.show)
    if as_json:
        echo(json.dumps(found.as_json()))
        return
    echo(found.verdict)
    width = max(len(finding.question) for finding in found.findings)
    for finding in found.findings:
        echo(f"{MARKS[finding.state]} {finding.question:{width}}  {finding.answer}")
    for advice in found.advice:
        echo(f"> {advice}")
