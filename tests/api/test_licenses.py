"""What is bundled comes with its licenses."""

from __future__ import annotations

import re
import tomllib
from fnmatch import fnmatch
from importlib.resources import files
from pathlib import Path

_PAGE = files("htagraph.reports.page")
_SCRIPT = _PAGE.joinpath("plotly-cartesian.min.js").read_text("utf-8")
_LICENSES = _PAGE.joinpath("plotly-LICENSE").read_text("utf-8")
_NAMED = re.findall(r"^(\S+) ([\d.]+) \(([\w.-]+)\)$", _LICENSES, re.MULTILINE)
"""Package, version and license. plotly's own build that is not minified, ``plotly-cartesian.js``
of the same release, names in comments which files of which packages it consists of."""


def test_each_package_in_the_bundled_script_has_its_license():
    """Of this version of plotly.js; some packages name themselves in the script, others cannot."""
    version = re.search(r"plotly\.js \(cartesian - minified\) v([\d.]+)", _SCRIPT)
    said = _SCRIPT.partition("/*! Bundled license information:")[2]
    itself = set(re.findall(r"^((?:@[\w-]+/)?[\w.-]+)/\S+:$", said, re.MULTILINE))
    names = [name for name, _, _ in _NAMED]

    assert version is not None
    assert ("plotly.js", version[1], "MIT") in _NAMED
    assert {"ieee754", "polybooljs", "native-promise-only"} <= itself <= set(names)
    assert len(names) == len(set(names)) == 72
    assert _LICENSES.count("Copyright") >= len(names)


def test_the_package_carries_them_and_names_each_license():
    """`.ci/package` asks the same of the wheel."""
    root = Path(__file__).parents[2]
    project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    own = ["LICENSE", "htagraph/reports/page/plotly-LICENSE"]
    licenses = {"Apache-2.0", *(one for _, _, one in _NAMED)}

    assert all((root / file).is_file() for file in own)
    assert all(any(fnmatch(file, glob) for glob in project["license-files"]) for file in own)
    assert set(project["license"].split(" AND ")) == licenses
