"""List names of the package by purpose, and link code on any page to their entries."""

import inspect
import pkgutil
import re
from collections import Counter

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.ext import autosummary
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode


class Names(SphinxDirective):
    """Add a summary and entries for names of a module. Text after a colon describes a constant.

    ```{api} theorykit.dynamics
    find_cycle
    FOLD: the name of a bifurcation
    ```
    """

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Let autosummary make the table and autodoc the entries."""
        table, entries = [".. autosummary::", "   :nosignatures:", ""], [""]
        for line in self.content:
            name, _, said = line.partition(":")
            name = f"{self.arguments[0]}.{name.strip()}"
            if said:
                entries += [f".. py:data:: {name}", "", f"   {said.strip()}", ""]
                continue
            table.append(f"   {name}")
            is_class = inspect.isclass(pkgutil.resolve_name(name))
            entries += [f".. auto{'class' if is_class else 'function'}:: {name}", "   :members:" * is_class, ""]
        lines = [*table, *entries] if len(table) > 4 else entries
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *lines, "```"]))


class NamesAreLinks(SphinxPostTransform):
    """Link code that is a name in the reference, such as `bpkr.solve`, or a call of one, to its entry."""

    default_priority = 5

    def run(self, **arguments) -> None:
        """Link the names on a page; Sphinx calls this for every page."""
        objects = self.env.get_domain("py").objects
        tops = {name: each for name, each in objects.items() if each.objtype in ("class", "exception", "function")}
        times = Counter(way for name in tops for way in _ways(name))
        places = {way: each for name, each in tops.items() for way in _ways(name) if times[way] == 1}
        for node in list(self.document.findall(nodes.literal)):
            place = places.get(node.astext().partition("(")[0].removeprefix("theorykit."))
            if place and not isinstance(node.parent, nodes.reference | nodes.title):
                to = place.docname, place.node_id
                node.replace_self(make_refnode(self.app.builder, self.env.docname, *to, node.deepcopy()))
        # Source pages link back to one package per module, also for names that another package shows.
        for _, _, used, package in filter(None, self.env._viewcode_modules.values()):
            for node in self.document.findall(addnodes.desc_signature):
                name = node.get("fullname")
                if used.get(name) == self.env.docname and f"{package}.{name}" not in objects:
                    node["ids"].append(f"{package}.{name}")


def _ways(name: str) -> list[str]:
    """List a name with fewer and fewer parent packages, and alone if it is not a common word."""
    parts = name.removeprefix("theorykit.").split(".")
    is_word = "_" not in parts[-1] and parts[-1].islower()
    return [".".join(parts[start:]) for start in range(len(parts) - is_word)]


class _Docstring(GoogleDocstring):
    """Docstring whose results are described in words, without a type before the first colon."""

    def _consume_returns_section(self, preprocess_types: bool = False) -> list[tuple[str, str, list[str]]]:
        return [("", "", self._dedent(self._consume_to_next_section()))]


def _docstring(app, what, name, value, options, lines: list[str]) -> None:
    """Escape bars outside code, and letters right after code, as in Markdown, and format the sections."""

    def kept(found: re.Match) -> str:
        code, letter = found.groups()
        return f"{code}\\ {letter}" if letter else code or r"\|"

    # Napoleon is not told the kind: it would read the text of a property before a colon as a type.
    escaped = [re.sub(r"(`+[^`]+`+)(\w)?|\|", kept, line) for line in lines]
    lines[:] = _Docstring(escaped, Config()).lines()


def _shorten(app, what, name, value, options, *texts: str | None) -> tuple[str | None, ...]:
    names = r"jaxlib\._jax\.(Array)|TypeAliasForwardRef\('(\w+)'\)"
    return tuple(text and re.sub(names, r"\1\2", text) for text in texts)


def setup(app: Sphinx) -> dict:
    """Register the extension with Sphinx."""
    autosummary.WELL_KNOWN_ABBREVIATIONS += ("Eq.", "Eqs.", "Fig.")
    app.add_directive("api", Names)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _shorten)
    app.add_post_transform(NamesAreLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
