"""Sphinx configuration of the site. `make site` prepares the sources first (see make_site.py); it needs no network."""

from __future__ import annotations

from typing import Any

from detoklens.version import __version__

project = "detoklens"
author = "The detoklens developers"
copyright = "the detoklens developers, MIT licence"
version = release = __version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton", "sphinx_design"]
exclude_patterns = ["made/home/*", "made/questions.md", "extra"]

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # notebooks are committed with their outputs, which the tests reproduce
nb_merge_streams = True
suppress_warnings = ["misc.highlighting_failure"]  # a notebook's `!command` is not Python

default_role = "code"  # docstrings use single backticks for code
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_use_ivar = True  # attributes as a list; those with a page entry have one already
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
nitpicky = True
# Types in signatures have no page on this site: arrays with axis names, polars, matplotlib, internal modules.
nitpick_ignore_regex = [(r"py:.*", r"(?!detoklens\.\w+$).*")]

html_theme = "furo"
html_title = "detoklens"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_extra_path = ["extra"]
html_show_sourcelink = False
html_copy_source = False
html_last_updated_fmt = None

copybutton_prompt_text = r"\$ |>>> "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True


def plain_prose(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Escape globs and |norms| in docstrings, which are prose, not markup; examples stay as they are."""
    lines[:] = [line if line.startswith(">>>") else line.replace("*", r"\*").replace("|", r"\|") for line in lines]


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", plain_prose, priority=400)  # before napoleon, which writes markup
