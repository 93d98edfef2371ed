"""The site: `sphinx-build -W --keep-going -b html docs docs/_build`. Nothing of it asks the network for anything."""

import importlib.util
import re
import sys
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

import quantarray  # noqa: E402  (after the path to it)

if importlib.util.find_spec("torch") is None:  # the reference reads names and docstrings, which need none of it
    with mock(["torch"]):
        import quantarray.torch

project = "quantarray"
author = "the quantarray developers"
copyright = "the quantarray developers, BSD-3-Clause"
version = release = quantarray.__version__


extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_copybutton", "api", "sources"]
exclude_patterns = ["_build", "_ext"]
nitpick_ignore_regex = [(r"py:.*", r".*")]

# Pages are Markdown that reads well without the site: `#anchors` are those of headings, links go from file to file
myst_heading_anchors = 4

# Signatures without types: docstrings name shapes and dtypes, and overloads would be ten lines each
autodoc_typehints = "none"
autodoc_member_order = "bysource"
add_module_names = False
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
smartquotes = False  # "same" is an argument
highlight_language = "text"
pygments_style = "friendly"

html_theme = "pydata_sphinx_theme"
html_title = f"quantarray {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_sidebars = {"index": []}
# Buttons copy what is typed: neither prompts nor results
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": "quantarray"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "friendly",
    "pygments_dark_style": "github-dark",
}


def escape_powers(app: Sphinx, name: str, source: list[str]) -> None:
    """Keep Markdown from reading 2**n .. 2**m as bold in pages that are generated as plain text."""
    if name in ("array-api", "type-rules"):
        parts = re.split(r"(`[^`]+`)", source[0])
        source[0] = "".join(part if part[:1] == "`" else part.replace("**", r"\*\*") for part in parts)


def setup(app: Sphinx) -> None:
    app.connect("source-read", escape_powers)
