"""The HTML pages in templates/, filled in with Jinja."""

import jinja2


def render(template: str, **context) -> str:
    """A page from a file in templates/; every value put into it is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("attention_dynamics.reporting"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(context)
