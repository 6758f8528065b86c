"""Hooks that keep the tables of contents small. Sphinx copies the contents of every page into the
sidebar of every page, then removes all but the titles. That takes a large part of a build's time.

* The sidebar is made from the titles alone.
* A page's own table of contents has no members of classes.
"""

from docutils import nodes
from sphinx import addnodes


def _leave_out_members(app, domain, objtype, contentnode):
    if objtype in ("method", "attribute", "property"):
        for signature in contentnode.parent.findall(addnodes.desc_signature):
            signature["_toc_name"] = ""


def _title_alone(contents):
    """A page's contents with its title, and the toctrees that list its children."""
    item = nodes.list_item()
    title = next(contents.findall(addnodes.compact_paragraph), None)
    if title is None:
        return contents
    item += title.deepcopy()
    toctrees = [toctree.deepcopy() for toctree in contents.findall(addnodes.toctree)]
    if toctrees:
        item += nodes.bullet_list("", *toctrees)
    return nodes.bullet_list("", item)


def _use_titles(app, pagename, templatename, context, doctree):
    """Replaces the function that makes the sidebar. Runs before the theme, which calls it."""
    toctree, env = context.get("toctree"), app.builder.env
    if toctree is None:
        return
    if not hasattr(app, "pagoda_titles"):
        app.pagoda_titles = {page: _title_alone(contents) for page, contents in env.tocs.items()}

    def from_titles(**arguments):
        if not arguments.get("titles_only"):
            return toctree(**arguments)
        contents, env.tocs = env.tocs, app.pagoda_titles
        try:
            return toctree(**arguments)
        finally:
            env.tocs = contents

    context["toctree"] = from_titles


def connect(app):
    app.connect("object-description-transform", _leave_out_members)
    app.connect("html-page-context", _use_titles, priority=100)
