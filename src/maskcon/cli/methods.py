"""`maskcon methods`."""

from __future__ import annotations

import json

from maskcon.cli import options
from maskcon.cli.printing import echo


def methods(as_json: options.Json = False) -> None:
    """List the training methods with their labels and settings."""
    from maskcon.methods.registry import all_methods

    known = all_methods()
    if as_json:
        keys = ("name", "title", "summary", "labels", "uses_w", "uses_tau")
        echo(json.dumps([{key: getattr(method, key) for key in keys} for method in known]))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table("name", "labels", "settings", "what it does", box=None, pad_edge=False)
    for method in known:
        taken = [name for name, used in (("w", method.uses_w), ("tau", method.uses_tau)) if used]
        table.add_row(method.name, method.labels, ", ".join(taken) or "-", method.summary)
    Console().print(table)
