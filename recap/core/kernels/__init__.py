"""Compiled kernels over flat arrays. No configuration, no torch, no state but the arrays handed in.

Every kernel has a readable twin in ``tests/reference`` (or a one-line definition in its docstring),
and property tests hold the two equal. One file per subject, and no file calls another's kernels:
numba's on-disk cache looks at the time stamp of the file a kernel stands in, so an edited helper
elsewhere would go unnoticed. The cache also pickles the tuple classes that kernels take: delete
``__pycache__`` after renaming one of them.
"""

from __future__ import annotations

from recap.core.kernels.recycling import (
    BAD_ID,
    BAD_TOKEN,
    MAX_VOCAB,
    NODE,
    OFFER,
    OK,
    Fusion,
    Memory,
    Rows,
    Settings,
    Table,
    Workspace,
    find_row,
    fuse,
    gather,
    pair_key,
    refresh,
    rehash_rows,
    row_confidence,
    search,
    seed,
    triple_key,
)
from recap.core.kernels.suffix import (
    extend_automaton,
    match_followed_by,
    match_with,
    rehash_edges,
    reset_automaton,
    suffix_path,
)
from recap.core.kernels.trees import ancestor_mask, is_tree, longest_accepted, path_to

__all__ = [
    "BAD_ID",
    "BAD_TOKEN",
    "MAX_VOCAB",
    "NODE",
    "OFFER",
    "OK",
    "Fusion",
    "Memory",
    "Rows",
    "Settings",
    "Table",
    "Workspace",
    "ancestor_mask",
    "extend_automaton",
    "find_row",
    "fuse",
    "gather",
    "is_tree",
    "longest_accepted",
    "match_followed_by",
    "match_with",
    "pair_key",
    "path_to",
    "refresh",
    "rehash_edges",
    "rehash_rows",
    "reset_automaton",
    "row_confidence",
    "search",
    "seed",
    "suffix_path",
    "triple_key",
]
