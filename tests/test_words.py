"""Words of our own that the literature has words for are gone from messages, help and pages, and from names of files.

What still has one is listed in `LEFT`, by file, and leaves that list when it is renamed; nothing is added.
"""

from __future__ import annotations

import re

from tests.test_messages import GAP, PACKAGE, ROOT, sentences

SAID = {  # in what users read: not this, but that
    r"of what is around it": "fusing its neighbours would save",
    r"blocks of rows and columns": "the tiling of the matrix product",
    r"would have to hold too much": "too many live values",
    r"too little in common for what it would cost": "too little input to be worth fusing",
    r"no longer chain": "chains at most … matrix products",
    r"keeps? from step to step": "the state of the loop",
    r"may be split": "shardable",
    r": whole: ": "replicated: ",
    r"devices (would )?meet in": "a collective in every step",
    r"the device finds out": "data-dependent trip count",
    r"lanes go apart": "divergent branches",
    r"times that\b": "1.00x the minimum",
    r"what a bug of ours raises": "internal compiler errors",
    r"by nature": "by design",
    r"whoever is faster": "whichever is faster",
    r"(has|have) no place in a kernel": "is not supported in a kernel",
    r"wanted at too many places to be": "too many consumers to be recomputed",
}
NAMED = {  # in names of files: not this, but that
    "again": "a recomputation", "ahead": "software pipelining", "alike": "companions of a fusion", "apart": "separate",
    "because": "reasons", "before": "predecessors", "brought": "broadcast", "deeds": "events", "door": "shim",
    "doubts": "warnings", "handed": "forwarded", "held": "live", "last": "final values", "mistakes": "internal errors",
    "rings": "semirings", "stretches": "segments", "swept": "scanned", "sweep": "scan", "sweeps": "scans",
    "told": "reported", "wishes": "requests",
}  # fmt: skip
LEFT = frozenset(
    {
        *(f"emit/{each}.py" for each in ("ahead", "held", "sweeps")),
        *(f"graph/{each}.py" for each in ("brought", "sweeps")),
        *(f"normalize/loops/{each}.py" for each in ("ahead", "handed", "last", "products_apart", "rings")),
        *(f"normalize/loops/{each}.py" for each in ("sums_apart", "sweep")),
        *(f"plan/partition/{each}.py" for each in ("alike", "apart", "before", "long_sweeps")),
        "autodiff/stretches.py",
        "mistakes.py",
        "rules/sweeps.py",
    }
)
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests" / "cli" / "help.txt")
INTERNAL = ("docs/design.md", "docs/loops.md", "docs/glossary.md")  # which say how, to those who change it


def test_what_users_read_has_the_words_of_the_literature() -> None:
    read = list(sentences())
    for page in PAGES:
        name = str(page.relative_to(ROOT))
        if name not in INTERNAL:
            read += [(f"{name}:{number}", line) for number, line in enumerate(page.read_text().splitlines(), 1)]
    found = [
        f"{place}: say {new!r}, not {text.replace(GAP, '…')!r}"
        for old, new in SAID.items()
        for place, text in read
        if re.search(old, text)
    ]
    assert not found, "\n".join(found)


def test_files_have_names_of_the_literature() -> None:
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if set(path.stem.strip("_").split("_")) & NAMED.keys()
    }
    assert found == LEFT
