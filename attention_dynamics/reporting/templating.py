"""The HTML pages in templates/, filled in with Jinja."""

import re

import jinja2
from markupsafe import Markup, escape


def render(template: str, **context) -> str:
    """A page from a file in templates/; every value put into it is escaped.

    The filter ``raised`` shows exponents, such as uf in β^uf, as superscripts.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attention_dynamics.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["raised"] = lambda text: Markup(
        re.sub(r"(?<=[αβ])\^(\w+)", r"<sup>\1</sup>", str(escape(text)))
    )
    return environment.get_template(template).render(context)
