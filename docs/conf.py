"""The docs site: ``sphinx-build -W docs build/docs``; ``-D nb_execution_mode=off`` leaves the lessons unexecuted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from pages import alone, linked, write_pages

project = "gpusim"
author = "the gpusim developers"
extensions = ["myst_nb"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
html_theme = "furo"
html_title = "gpusim"
html_static_path: list[str] = []
exclude_patterns = ["_build"]

myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 3
nb_execution_mode = "force"
nb_execution_timeout = 240
nb_execution_raise_on_error = True
nb_merge_streams = True
# what only tests read
nb_remove_code_source = False
suppress_warnings = ["myst.header", "misc.highlighting_failure", "mystnb.unknown_mime_type"]

write_pages(Path(__file__).parent / "generated", Path(__file__).parent.parent)


def setup(app: Any) -> None:
    """Links to files of the tree become links to the pages that are made from them."""
    app.connect("source-read", lambda _, name, source: source.__setitem__(0, alone(name, linked(name, source[0]))))
