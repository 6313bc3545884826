"""Writes the reference of the package as HTML. Fails if a public item has no docstring.

    python tools/reference.py DIRECTORY

The interpreter has the packages of requirements.txt.
"""

# The types of pdoc are incomplete.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pdoc
import pdoc.doc
import pdoc.render

# The modules that programs import. Their `__all__` names the public items.
MODULES = ("troupe", "troupe.events", "troupe.runner", "troupe.sync")
OTHER_MODULES = "!troupe[.](client|common|errors|registry|supervisor)"


def undocumented(namespace: pdoc.doc.Namespace[Any]) -> Iterator[str]:
    """Yields the names of the public items without a docstring."""
    for item in namespace.own_members:
        if item.name.startswith("_"):
            continue
        if not item.docstring:
            yield item.fullname
        if isinstance(item, pdoc.doc.Class):
            yield from undocumented(item)


def main(directory: str) -> None:
    """Checks the modules and writes their pages."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
    # Only the type stub defines this class.
    warnings.filterwarnings("ignore", message=".*AgentSupervisorServiceAsyncStub")
    missing = [name for module in MODULES for name in undocumented(pdoc.doc.Module.from_name(module))]
    if missing:
        sys.exit("\n".join(["items without a docstring:", *missing]))
    pdoc.render.configure(docformat="markdown", show_source=False)
    pdoc.pdoc(*MODULES, OTHER_MODULES, output_directory=Path(directory))


if __name__ == "__main__":
    main(sys.argv[1])
