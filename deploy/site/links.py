"""Links of the site's pages to what is on no page of it: code, examples, results.

They lead into the repository, where `repo_url` says which; without one the path is shown.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\.?/[^)\s#]*)(#[^)\s]*)?\)")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Called by mkdocs with the text of each page, before it is rendered."""
    del files
    return with_paths(markdown, page.file.src_uri, config.repo_url or "")


def with_paths(markdown: str, page: str, repository: str) -> str:
    """Return the text of a page, named relative to docs/, without relative links that leave docs/."""

    def shown(link: re.Match[str]) -> str:
        label, target, anchor = link.group(1, 2, 3)
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
        if path.startswith("docs/"):
            return link[0]
        if repository:
            return f"[{label}]({repository.rstrip('/')}/blob/main/{path}{anchor or ''})"
        return label if posixpath.basename(path) in label else f"{label} (`{path}`)"

    return LINK.sub(shown, markdown)
