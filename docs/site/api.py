"""Render the reference with autodoc, from Markdown docstrings and the signatures written in the source.

Names of the package in code anywhere on the site become links to their entries.
"""

import ast
import inspect
import pkgutil
import re
import textwrap
from collections import Counter
from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.ext.viewcode import viewcode_anchor
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx.util.nodes import make_refnode


class Names(SphinxDirective):
    """Add entries for names of a module. Text after a colon describes a name without a docstring.

    ```{api} theorykit.dynamics
    find_cycle
    FOLD: the name of a bifurcation
    ```
    """

    has_content = True
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Make a table of the names and let autodoc make their entries."""
        names = [
            (f"{self.arguments[0]}.{name.strip()}", said.strip())
            for name, _, said in (line.partition(":") for line in self.content)
        ]
        table = [".. list-table::", "   :widths: auto", "   :class: names", ""]
        for name, said in names:
            summary = said or (inspect.getdoc(pkgutil.resolve_name(name)) or "").partition("\n\n")[0]
            shown = f":py:obj:`{name.rpartition('.')[2]} <{name}>`"
            table += [f"   * - {shown}", f"     - {_escaped(' '.join(summary.split()))}"]
        entries = [*(table if len(names) > 1 else ()), "", *(_entry(name, said) for name, said in names)]
        return self.parse_text_to_nodes("\n".join(["```{eval-rst}", *entries, "```"]))


def _entry(name: str, said: str) -> str:
    value = pkgutil.resolve_name(name)
    if said:
        is_short = isinstance(value, str | float | tuple) and len(repr(value)) < 90
        return f".. py:data:: {name}\n" + f"   :value: {value!r}\n" * is_short + f"\n   {said}\n"
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        return f".. {kind}:: {name}\n   :members:\n"
    return f".. autofunction:: {name}\n"


def _docstring(app, what, name, value, options, lines: list[str]) -> None:
    """Format the sections of a docstring."""
    # Napoleon is not told the kind: it would read the text of a property before a colon as a type.
    lines[:] = GoogleDocstring([_escaped(line) for line in lines], Config()).lines()


def _escaped(line: str) -> str:
    """Escape bars outside code, and letters right after code."""

    def kept(found: re.Match) -> str:
        code, letter = found.groups()
        return f"{code}\\ {letter}" if letter else code or r"\|"

    return re.sub(r"(`+[^`]+`+)(\w)?|\|", kept, line)


def _signature(app, what, name, value, options, signature, returned) -> tuple[str, str | None] | None:
    """Return parameters and return annotation as in the source, or None to keep the signature from autodoc."""
    if what == "class":
        return _constructor(value), None
    node = _definition(inspect.unwrap(value)) if what in ("function", "method") else None
    if node is None:
        return None
    return _parameters(node, bound=what == "method"), ast.unparse(node.returns) if node.returns else None


def _definition(value: object) -> ast.AST | None:
    try:
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(value))).body
    except (TypeError, OSError, SyntaxError, ValueError):
        return None
    return node if isinstance(node, ast.FunctionDef | ast.ClassDef) else None


def _parameters(node: ast.FunctionDef, bound: bool) -> str:
    arguments = node.args
    if bound and arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments.args = arguments.args[1:]
    return f"({ast.unparse(arguments)})"


def _constructor(cls: type) -> str:
    """Return the parameters of a written constructor, or else the fields of a generated one."""
    if inspect.isabstract(cls) or issubclass(cls, BaseException):
        return ""
    node = _definition(cls)
    written = [each for each in (node.body if node else ()) if getattr(each, "name", "") == "__init__"]
    if written:
        return _parameters(written[0], bound=True)
    try:
        parameters = inspect.signature(cls).parameters.values()
    except (TypeError, ValueError):
        return ""
    annotations = dict(_annotations(cls))
    shown = []
    for each in parameters:
        annotation = f": {annotations[each.name]}" if each.name in annotations else ""
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        shown.append(f"{'*' if each.kind is each.VAR_POSITIONAL else ''}{each.name}{annotation}{default}")
    return f"({', '.join(shown)})"


def _default(value: object) -> str:
    plain = value is None or isinstance(value, str | bool | int | float) or value == ()
    return repr(value) if plain else "..."


def _annotations(cls: type) -> Iterator[tuple[str, str]]:
    for each in reversed(cls.__mro__):
        node = _definition(each) if each.__module__.startswith("theorykit") else None
        for field in node.body if node else ():
            if isinstance(field, ast.AnnAssign):
                yield field.target.id, ast.unparse(field.annotation)


def _skip(app, what, name, value, skip, options) -> bool | None:
    """Skip the fields of named tuples, which have no docstrings."""
    return True if type(value).__name__ == "_tuplegetter" else None


def _set_source_anchors(app: Sphinx, doctree: nodes.document) -> None:
    """Let pages of source code link back to entries of names that several public modules export.

    Viewcode links to one public module per source module. These links use the source module, which each entry names in
    a second anchor.
    """
    sources = app.env._viewcode_modules
    for link in doctree.findall(viewcode_anchor):
        module = link["reftarget"].removeprefix("_modules/").replace("/", ".")
        sources[module] = (*sources[module][:3], module)
        anchor = f"{module}.{link['refid']}"
        link.parent["ids"] += [anchor] * (anchor not in link.parent["ids"])


class NamesAreLinks(SphinxPostTransform):
    """Link code that is a name in the reference, such as `bpkr.solve`, or a call of one, to its entry."""

    default_priority = 5

    def run(self, **arguments) -> None:
        """Link the names on a page; Sphinx calls this for every page."""
        places = _places(self.env)
        for node in list(self.document.findall(nodes.literal)):
            name = node.astext().partition("(")[0].removeprefix("theorykit.")
            inside = node.parent
            while inside is not None and not isinstance(inside, nodes.reference | nodes.title):
                inside = inside.parent
            if inside is None and name in places:
                page, anchor = places[name]
                link = make_refnode(self.app.builder, self.env.docname, page, anchor, node.deepcopy(), name)
                node.replace_self(link)


def _places(env) -> dict[str, tuple[str, str]]:
    """Map every unambiguous way to write a name to its page and anchor."""
    objects = env.get_domain("py").objects
    inner = ("method", "property", "attribute")
    tops = {name: entry for name, entry in objects.items() if not entry.aliased and entry.objtype not in inner}
    ways = Counter(way for name in tops for way in _ways(name))
    return {way: (e.docname, e.node_id) for name, e in tops.items() for way in _ways(name) if ways[way] == 1}


def _ways(name: str) -> list[str]:
    """List a name with fewer and fewer parent packages; also alone if it is a class or has several words."""
    parts = name.removeprefix("theorykit.").split(".")
    alone = [parts[-1]] if "_" in parts[-1] or parts[-1][0].isupper() else []
    return [".".join(parts[start:]) for start in range(len(parts) - 1)] + alone


def setup(app: Sphinx) -> dict:
    """Register the extension with Sphinx."""
    app.add_directive("api", Names)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-read", _set_source_anchors, priority=600)  # after viewcode
    app.add_post_transform(NamesAreLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
