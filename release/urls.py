"""The addresses of a release: those of the repository whose workflow builds it.

The project is where it is published, and nothing in the tree says where that is. GitHub tells a workflow; a build
elsewhere has no addresses, and one from an sdist those of the sdist.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from email.parser import HeaderParser
from pathlib import Path

from setuptools.command.egg_info import egg_info

_LINK = re.compile(r"(?P<image>!?)(?P<text>\[[^\]]*\])\((?P<path>(?!\w+:|#)[^)\s]+)\)")


def of_workflow(environment: Mapping[str, str]) -> dict[str, str]:
    """The addresses by their label; none outside of a workflow of GitHub.

    Args:
        environment: GITHUB_SERVER_URL is "https://github.com", GITHUB_REPOSITORY "owner/name".
    """
    server, name = environment.get("GITHUB_SERVER_URL", ""), environment.get("GITHUB_REPOSITORY", "")
    if not server or not name:
        return {}
    repository = f"{server}/{name}"
    return {
        "Repository": repository,
        "Documentation": f"{repository}/blob/HEAD/docs/README.md",
        "Issues": f"{repository}/issues",
        "Changelog": f"{repository}/blob/HEAD/CHANGELOG.md",
    }


def of_sdist(information: Path) -> dict[str, str]:
    """The addresses in the PKG-INFO of an unpacked sdist; none without the file."""
    if not information.is_file():
        return {}
    lines = HeaderParser().parsestr(information.read_text(encoding="utf-8")).get_all("Project-URL", [])
    return dict(line.split(", ", 1) for line in lines)


def absolute(markdown: str, repository: str) -> str:
    """A page of the repository as it can be read elsewhere: its links lead into the repository."""

    def moved(link: re.Match[str]) -> str:
        kind = "raw" if link["image"] else "blob"
        return f"{link['image']}{link['text']}({repository}/{kind}/HEAD/{link['path']})"

    return _LINK.sub(moved, markdown)


class EggInfo(egg_info):
    """Writes the metadata, with the addresses of the project where they are known."""

    def run(self) -> None:
        """Writes them."""
        metadata = self.distribution.metadata
        urls = of_sdist(Path("PKG-INFO")) or of_workflow(os.environ)
        if urls:
            metadata.project_urls = urls
            metadata.long_description = absolute(metadata.long_description or "", urls["Repository"])
        super().run()
