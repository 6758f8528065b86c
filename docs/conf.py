"""Sphinx's configuration of the manual. docs/build.sh runs it with the package pagoda and this
folder on the path."""

import gc
import os
import pathlib
import runpy

from sphinx.ext.autodoc.mock import _MockObject

import contents
import docstrings

HERE = pathlib.Path(__file__).resolve().parent
VERSION = runpy.run_path(str(HERE.parent / "clients" / "python" / "src" / "pagoda" / "version.py"))["VERSION"]

# A build makes millions of nodes and ends soon. A search of them for garbage takes a fifth of its
# time.
gc.disable()

project = "Pagoda"
version = release = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
root_doc = "index"

# The anchors of headings are GitHub's, down to the deepest level of the tree.
myst_heading_anchors = 6
myst_enable_extensions = []

# Text in single backticks of a docstring is a link if it names something, and code otherwise.
default_role = "py:obj"
add_module_names = False
python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {
    "members": True, "imported-members": True, "undoc-members": True, "show-inheritance": True,
    # A class also shows the members of its internal base classes, but not those of these classes.
    "inherited-members": "object,BaseException,Exception,PagodaError,int,Enum,IntEnum,ReprEnum,tuple,Generic,ABC,_MockObject",
}
# The engines that the connectors run in. They are not packages of Debian.
autodoc_mock_imports = ["vllm", "sglang", "lmcache", "torch", "ml_dtypes", "huggingface_hub"]
# Sphinx 5.3's stand-in for a type has no `|`, and annotations such as `torch.Tensor | None` use it.
_MockObject.__or__ = _MockObject.__ror__ = lambda self, other: self

html_theme = "furo"
html_title = f"Pagoda {VERSION}"
html_static_path = [os.fspath(HERE / "static")]
html_css_files = ["pagoda.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False


def setup(app):
    contents.connect(app)
    docstrings.connect(app)
    return {"parallel_read_safe": True}
