"""Settings of Sphinx. ``make docs`` builds the site: tools/build_site.py gathers its pages and runs Sphinx on them."""

import sys
from pathlib import Path

import symloss

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))

project = "symloss"
author = "the symloss authors"
copyright = f"2026, {author}"
release = symloss.__version__
html_title = f"symloss {release}"

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design", "sphinx_copybutton"]
extensions += ["sphinx_hooks"]  # ours, in tools/

smartquotes_action = "D"  # dashes only: quotes stay as they are written
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # the anchors that GitHub makes, so that page.md#a-heading works there and here
suppress_warnings = ["myst.header"]  # a page that symloss report wrote begins with a heading of level 2

# The libraries of adapters take half a minute to import, and not all of them are installed everywhere.
autodoc_mock_imports = ["cleanlab", "keras", "lightgbm", "lightning", "mmengine", "sentence_transformers"]
autodoc_mock_imports += ["transformers", "trl", "xgboost"]
# scikit-learn adds methods to estimators, such as set_fit_request, whose docstrings refer to its own site.
requests = ("fit", "partial_fit", "predict", "predict_proba", "score")
autodoc_default_options = {"exclude-members": ", ".join(f"set_{each}_request" for each in requests)}
autodoc_typehints_format = "short"
short = ("AnyCriterion", "AnyLoss", "AnyMarginFunction", "ArrayLike", "LossName", "Prior", "ScoreMap", "Temperature")
autodoc_type_aliases = {name: name for name in short}  # not what they stand for, which is long
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 88
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_theme_options = {"navigation_with_keys": True}
html_static_path = ["style"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_search_summary = False  # a page that is opened as a file may not fetch other pages
copybutton_prompt_text = ">>> "
copybutton_exclude = ".linenos, .gp, .go"
