"""Kernels of three token tries over flat arrays: one node store, three ways to grow and to read it.

count trie        `baselines.lookahead`: branches with a prompt and an output count
suffix tree       `baselines.suffix_decoding`: path-compressed, counts of all substrings
n-gram automaton  `baselines.racer`: a bounded trie with failure links, least recent leaves reused

nodes: int32[n, fields], one row per node; node 0 is the root. Children form a doubly linked list
       (the first child's ``PREV`` is the last child) and are also found by (parent, token).
slots: int32[power of two], open addressing over (parent, token): node + 1, or 0 where free. At most
       half of it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numba import njit

if TYPE_CHECKING:
    from numpy.typing import NDArray

# As in `recap.core.kernels.recycling`: no reference counting, hence no allocation.
compiled = njit(cache=True, _nrt=False)

# node, all tries
PARENT, TOKEN, CHILD, NEXT, PREV = range(5)
# node, count trie: only children of the root (the "trees") use these
TREE_NODES, TREE_OUTPUTS, TREE_UPDATED = range(5, 8)
# node, suffix tree: occurrences, and the edge label text[REF : REF + LENGTH]
COUNT, LENGTH, REF = range(5, 8)
# node, n-gram automaton: STAMP changes whenever the row is reused for another node
FREQ, DEPTH, FAIL, FAIL_STAMP, STAMP, OLDER, NEWER = range(5, 12)

# header, all tries
NUM_NODES, FREE = range(2)
# header, count trie
NUM_UPDATED, NUM_TOUCHED = range(2, 4)
# header, suffix tree
NUM_TOKENS, NUM_ACTIVE = range(2, 4)
# header, n-gram automaton
CURSOR, CURSOR_STAMP, NEWEST, OLDEST = range(2, 6)

# counts of the count trie
PROMPT, OUTPUT = range(2)
PROMPT_WEIGHT, OUTPUT_WEIGHT = 1.0 - 1e-4, 1e-4
# A shorter match must beat a longer one by more than this.
MARGIN = 1e-6


class CountTrie(NamedTuple):
    """header int64[4], nodes int32[n, 8], slots, counts float64[n, 2], touched int32[t]."""

    header: NDArray[np.int64]
    nodes: NDArray[np.int32]
    slots: NDArray[np.int32]
    counts: NDArray[np.float64]
    touched: NDArray[np.int32]


class SuffixTree(NamedTuple):
    """header int64[4], nodes int32[n, 8], slots, text int32[t], active int32[depth]."""

    header: NDArray[np.int64]
    nodes: NDArray[np.int32]
    slots: NDArray[np.int32]
    text: NDArray[np.int32]
    active: NDArray[np.int32]


class Automaton(NamedTuple):
    """header int64[6], nodes int32[n, 12], slots."""

    header: NDArray[np.int64]
    nodes: NDArray[np.int32]
    slots: NDArray[np.int32]


class Draft(NamedTuple):
    """Room for a draft without its root, int32[r] each; parent -1 is the root."""

    tokens: NDArray[np.int32]
    parents: NDArray[np.int32]
    depths: NDArray[np.int32]


class Heap(NamedTuple):
    """Room for a priority queue: items of (score, key, node, offset, parent) and their order."""

    scores: NDArray[np.float64]
    keys: NDArray[np.int64]
    items: NDArray[np.int32]
    order: NDArray[np.int32]


class RavelWork(NamedTuple):
    """Room for `query_trie`: children int32[depth, nodes], three int32[depth], largest
    float64[min_output].
    """

    children: NDArray[np.int32]
    ends: NDArray[np.int32]
    nexts: NDArray[np.int32]
    parents: NDArray[np.int32]
    largest: NDArray[np.float64]


class Speculation(NamedTuple):
    """Room for `speculate`: matches int32[depth, 2], two drafts, a heap.

    best: the draft of the call; spare: the one being built; scores: float64[1], of the best one.
    """

    matches: NDArray[np.int32]
    best: Draft
    spare: Draft
    scores: NDArray[np.float64]
    heap: Heap


# --- the node store -------------------------------------------------------------------------------


@compiled
def _home(parent, token, mask):
    key = (np.uint64(parent) << np.uint64(32)) ^ np.uint64(token)
    return np.int64((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) & mask


@compiled
def _find(nodes, slots, parent, token):
    """The child of ``parent`` that begins with ``token``, or -1."""
    mask = len(slots) - 1
    at = _home(parent, token, mask)
    while slots[at] != 0:
        node = np.int64(slots[at] - 1)
        if nodes[node, PARENT] == parent and nodes[node, TOKEN] == token:
            return node
        at = (at + 1) & mask
    return np.int64(-1)


@compiled
def _index(nodes, slots, node):
    mask = len(slots) - 1
    at = _home(nodes[node, PARENT], nodes[node, TOKEN], mask)
    while slots[at] != 0:
        at = (at + 1) & mask
    slots[at] = node + 1


@compiled
def _unindex(nodes, slots, node):
    """Take the node out of the table and close the gap, so that no mark is left behind."""
    mask = len(slots) - 1
    at = _home(nodes[node, PARENT], nodes[node, TOKEN], mask)
    while slots[at] != node + 1:
        at = (at + 1) & mask
    gap = at
    at = (at + 1) & mask
    while slots[at] != 0:
        other = slots[at] - 1
        home = _home(nodes[other, PARENT], nodes[other, TOKEN], mask)
        if ((at - home) & mask) >= ((at - gap) & mask):
            slots[gap] = slots[at]
            gap = at
        at = (at + 1) & mask
    slots[gap] = 0


@compiled
def reindex(header, nodes, slots):
    """Fill empty ``slots``, after a growth. Rows on the free list have parent -2."""
    for node in range(1, header[NUM_NODES]):
        if nodes[node, PARENT] != -2:
            _index(nodes, slots, node)


@compiled
def _insert_before(nodes, node, parent, following):
    """Link ``node`` before its sibling ``following``, or last where that is -1."""
    first = nodes[parent, CHILD]
    nodes[node, NEXT] = following
    if first < 0:
        nodes[parent, CHILD] = node
        nodes[node, PREV] = node
        return
    if following < 0:
        last = nodes[first, PREV]
        nodes[last, NEXT] = node
        nodes[node, PREV] = last
        nodes[first, PREV] = node
        return
    nodes[node, PREV] = nodes[following, PREV]
    nodes[following, PREV] = node
    if following == first:
        nodes[parent, CHILD] = node
    else:
        nodes[nodes[node, PREV], NEXT] = node


@compiled
def _unlink(nodes, node):
    parent, following, previous = nodes[node, PARENT], nodes[node, NEXT], nodes[node, PREV]
    first = nodes[parent, CHILD]
    if node == first:
        nodes[parent, CHILD] = following
    else:
        nodes[previous, NEXT] = following
    if following >= 0:
        nodes[following, PREV] = previous
    elif node != first:
        nodes[first, PREV] = previous


@compiled
def _take_place(nodes, old, new):
    """Put ``new`` where ``old`` stands among its siblings; ``old`` is left dangling."""
    parent, following, previous = nodes[old, PARENT], nodes[old, NEXT], nodes[old, PREV]
    first = nodes[parent, CHILD]
    nodes[new, PARENT] = parent
    nodes[new, NEXT] = following
    nodes[new, PREV] = new if previous == old else previous
    if old == first:
        nodes[parent, CHILD] = new
    else:
        nodes[previous, NEXT] = new
    if following >= 0:
        nodes[following, PREV] = new
    elif old != first:
        nodes[first, PREV] = new


@compiled
def _allocate(header, nodes):
    node = header[FREE]
    if node >= 0:
        header[FREE] = nodes[node, NEXT]
    else:
        node = header[NUM_NODES]
        header[NUM_NODES] = node + 1
    nodes[node, CHILD] = -1
    return node


@compiled
def _release(header, nodes, node):
    """Give a row back that is neither linked nor indexed any more."""
    nodes[node, PARENT] = -2
    nodes[node, NEXT] = header[FREE]
    header[FREE] = node


@compiled
def _add_child(header, nodes, slots, parent, token):
    node = _allocate(header, nodes)
    nodes[node, PARENT] = parent
    nodes[node, TOKEN] = token
    _insert_before(nodes, node, parent, -1)
    _index(nodes, slots, node)
    return node


@compiled
def _delete_leaf(header, nodes, slots, node):
    _unindex(nodes, slots, node)
    _unlink(nodes, node)
    _release(header, nodes, node)


@compiled
def reset_trie(header, nodes, slots):
    """One root and nothing else."""
    slots[:] = 0
    header[:] = 0
    header[NUM_NODES] = 1
    header[FREE] = -1
    nodes[0, :] = 0
    nodes[0, PARENT] = -1
    nodes[0, CHILD] = -1


# --- count trie -----------------------------------------------------------------------------------


@compiled
def insert_branches(trie, sequence, num_starts, length, kind):
    """For each of the first ``num_starts`` tokens, count the ``length`` tokens that follow it.

    kind: PROMPT or OUTPUT. The arrays must have room for ``num_starts * (length + 1)`` more nodes,
    and for the prompt's as many touched ones.
    """
    for start in range(num_starts):
        stop = min(start + 1 + length, len(sequence))
        _insert_branch(trie, sequence, start, stop, kind)


@compiled
def _insert_branch(trie, sequence, start, stop, kind):
    header, nodes, slots, counts = trie.header, trie.nodes, trie.slots, trie.counts
    tree = _find(nodes, slots, 0, sequence[start])
    if tree < 0:
        tree = _add_child(header, nodes, slots, 0, sequence[start])
        nodes[tree, TREE_NODES] = 0
        nodes[tree, TREE_OUTPUTS] = 0
        nodes[tree, TREE_UPDATED] = 0
    if nodes[tree, TREE_UPDATED] == 0:
        nodes[tree, TREE_UPDATED] = 1
        header[NUM_UPDATED] += 1
    node = tree
    for position in range(start + 1, stop):
        child = _find(nodes, slots, node, sequence[position])
        if child < 0:
            child = _add_child(header, nodes, slots, node, sequence[position])
            counts[child, PROMPT] = 0.0
            counts[child, OUTPUT] = 0.0
            nodes[tree, TREE_NODES] += 1
            if kind == OUTPUT:
                nodes[tree, TREE_OUTPUTS] += 1
        if kind == PROMPT and counts[child, PROMPT] == 0.0:
            trie.touched[header[NUM_TOUCHED]] = child
            header[NUM_TOUCHED] += 1
        counts[child, kind] += 1.0
        node = child


@compiled
def forget_prompt(trie, keep_nodes):
    """Clear the prompt counts; nodes that no output has confirmed go, unless ``keep_nodes``."""
    header, nodes, slots, counts = trie.header, trie.nodes, trie.slots, trie.counts
    for at in range(header[NUM_TOUCHED] - 1, -1, -1):  # children before their parents
        node = trie.touched[at]
        counts[node, PROMPT] = 0.0
        if keep_nodes or counts[node, OUTPUT] > 0.0:
            continue
        parent = nodes[node, PARENT]
        tree = parent
        while nodes[tree, PARENT] != 0:
            tree = nodes[tree, PARENT]
        nodes[tree, TREE_NODES] -= 1
        _delete_leaf(header, nodes, slots, node)
        if parent == tree and nodes[tree, CHILD] < 0:
            header[NUM_UPDATED] -= nodes[tree, TREE_UPDATED]
            _delete_leaf(header, nodes, slots, tree)
    header[NUM_TOUCHED] = 0


@compiled
def squeeze(trie, max_nodes, max_outputs):
    """Decay every updated tree that exceeds a cap: counts above 1 are halved, other nodes go."""
    nodes = trie.nodes
    tree = nodes[0, CHILD]
    while tree >= 0:
        over = nodes[tree, TREE_NODES] > max_nodes or nodes[tree, TREE_OUTPUTS] > max_outputs
        if nodes[tree, TREE_UPDATED] and over:
            kept = _decay(trie, tree)
            nodes[tree, TREE_NODES] = kept
            nodes[tree, TREE_OUTPUTS] = kept
        nodes[tree, TREE_UPDATED] = 0
        tree = nodes[tree, NEXT]
    trie.header[NUM_UPDATED] = 0


@compiled
def _decay(trie, tree):
    nodes, counts = trie.nodes, trie.counts
    kept = 0
    node = np.int64(nodes[tree, CHILD])
    while node >= 0:
        if counts[node, OUTPUT] > 1.0:
            counts[node, OUTPUT] *= 0.5
            kept += 1
            node = _next_in_preorder(nodes, node, tree)
        else:
            following = _behind(nodes, node, tree)
            _delete_all(trie.header, nodes, trie.slots, node)
            node = following
    return kept


@compiled
def _behind(nodes, node, top):
    """The next node in preorder outside the sub-trie of ``node``, or -1 behind that of ``top``."""
    while node != top:
        if nodes[node, NEXT] >= 0:
            return np.int64(nodes[node, NEXT])
        node = np.int64(nodes[node, PARENT])
    return np.int64(-1)


@compiled
def _next_in_preorder(nodes, node, top):
    child = np.int64(nodes[node, CHILD])
    return child if child >= 0 else _behind(nodes, node, top)


@compiled
def _delete_all(header, nodes, slots, top):
    node = top
    while True:
        while nodes[node, CHILD] >= 0:
            node = np.int64(nodes[node, CHILD])
        parent = np.int64(nodes[node, PARENT])
        _delete_leaf(header, nodes, slots, node)
        if node == top:
            return
        node = parent


@compiled
def query_trie(trie, query, max_nodes, max_depth, min_output, work, draft):
    """Draft behind the suffixes of ``query``, longest first; the number of drafted nodes.

    The first suffix that yields ``max_depth`` ids (the root included) ends the search; until then a
    shorter suffix replaces what a longer one found. ``max_nodes`` counts the root.
    """
    size = 0
    for start in range(len(query)):
        tree = _find(trie.nodes, trie.slots, 0, query[start])
        if tree < 0:
            continue
        top = tree
        for at in range(start + 1, len(query)):
            top = _find_live(trie, top, query[at])
            if top < 0:
                break
        size = 0
        if top >= 0:
            threshold = _output_threshold(trie, top, max_nodes, min_output, work)
            size = _ravel(trie, top, max_nodes - 1, max_depth, threshold, work, draft)
        if size + 1 >= max_depth:
            break
    return size


@compiled
def _is_live(counts, node):
    return counts[node, PROMPT] > 0.0 or counts[node, OUTPUT] > 0.0


@compiled
def _find_live(trie, node, token):
    child = _find(trie.nodes, trie.slots, node, token)
    return child if child >= 0 and _is_live(trie.counts, child) else np.int64(-1)


@compiled
def _output_threshold(trie, top, max_nodes, min_output, work):
    """0 where the live nodes below ``top`` fit; otherwise the ``min_output``-th largest output
    count.

    A node's count is never above its parent's, so what cannot enter the largest is not descended.
    """
    nodes, counts = trie.nodes, trie.counts
    if not _overflows(trie, top, max_nodes):
        return 0.0
    if min_output == 0:
        return np.inf
    largest, size = work.largest, 0
    node = np.int64(nodes[top, CHILD])
    while node >= 0:
        count = counts[node, OUTPUT]
        if not _is_live(counts, node) or (size == min_output and count <= largest[size - 1]):
            node = _behind(nodes, node, top)
            continue
        at = size if size < min_output else size - 1
        size = min(size + 1, min_output)
        while at > 0 and largest[at - 1] < count:
            largest[at] = largest[at - 1]
            at -= 1
        largest[at] = count
        node = _next_in_preorder(nodes, node, top)
    return largest[min_output - 1] if size == min_output else 0.0


@compiled
def _overflows(trie, top, limit):
    """Whether more than ``limit`` live nodes are below ``top``."""
    live = 0
    node = np.int64(trie.nodes[top, CHILD])
    while node >= 0 and live <= limit:
        if _is_live(trie.counts, node):
            live += 1
            node = _next_in_preorder(trie.nodes, node, top)
        else:
            node = _behind(trie.nodes, node, top)
    return live > limit


@compiled
def _heaviest_children(trie, node, limit, threshold, children):
    """Fill ``children`` with at most ``limit`` ones, by descending weight, then by age; their
    number.
    """
    nodes, counts = trie.nodes, trie.counts
    size = 0
    child = nodes[node, CHILD]
    while child >= 0:
        if counts[child, OUTPUT] >= threshold:
            weight = _weight(counts, child)
            at = size
            while at > 0 and _weight(counts, children[at - 1]) < weight:
                if at < limit:
                    children[at] = children[at - 1]
                at -= 1
            if at < limit:
                children[at] = child
                size = min(size + 1, limit)
        child = nodes[child, NEXT]
    return size


@compiled
def _weight(counts, node):
    return PROMPT_WEIGHT * counts[node, PROMPT] + OUTPUT_WEIGHT * counts[node, OUTPUT]


@compiled
def _ravel(trie, top, limit, max_depth, threshold, work, draft):
    """Write at most ``limit`` nodes below ``top`` in preorder, heavier children first."""
    children, ends, nexts, parents = work.children, work.ends, work.nexts, work.parents
    size, depth = 0, 0
    nexts[0] = 0
    ends[0] = _heaviest_children(trie, top, limit, threshold, children[0])
    parents[0] = -1
    while depth >= 0 and size < limit:
        if nexts[depth] == ends[depth]:
            depth -= 1
            continue
        node = children[depth, nexts[depth]]
        nexts[depth] += 1
        draft.tokens[size] = trie.nodes[node, TOKEN]
        draft.parents[size] = parents[depth]
        draft.depths[size] = depth + 1
        size += 1
        if depth + 1 < max_depth and size < limit:
            depth += 1
            nexts[depth] = 0
            ends[depth] = _heaviest_children(trie, node, limit - size, threshold, children[depth])
            parents[depth] = size - 1
    return size


# --- suffix tree ----------------------------------------------------------------------------------


@compiled
def append_tokens(tree, tokens):
    """Append to the current sequence: every suffix of it, up to the depth, gains its next token.

    ``active[m]`` is the node at whose end the suffix of m + 1 tokens ends. The arrays must have
    room: 2 nodes per token of text.
    """
    header, active = tree.header, tree.active
    for i in range(len(tokens)):
        end = header[NUM_TOKENS] + 1
        tree.text[end - 1] = tokens[i]
        header[NUM_TOKENS] = end
        num_active = min(header[NUM_ACTIVE] + 1, len(active))
        header[NUM_ACTIVE] = num_active
        for m in range(num_active - 1, 0, -1):
            node = np.int64(active[m - 1])
            if tree.nodes[node, COUNT] == 1:  # nothing else ends or continues here
                tree.nodes[node, LENGTH] += 1
                active[m] = node
            else:
                active[m] = _advance(tree, node, tokens[i], end)
        active[0] = _advance(tree, np.int64(0), tokens[i], end)


@compiled
def _advance(tree, node, token, end):
    """The node of a suffix that ended at ``node``, one token on. ``end``: of the text."""
    nodes, slots = tree.nodes, tree.slots
    child = _find(nodes, slots, node, token)
    if child < 0:
        child = _add_child(tree.header, nodes, slots, node, token)
        nodes[child, COUNT] = 1
        nodes[child, LENGTH] = 1
        nodes[child, REF] = end - 1
        return np.int64(child)
    if node != 0 and nodes[node, COUNT] == nodes[child, COUNT] + 1:
        return _absorb(tree, node, child, end)
    if nodes[child, LENGTH] > 1:
        child = _split(tree, child, token, end)
    nodes[child, COUNT] += 1
    nodes[child, REF] = end - 1
    _rise(nodes, child)
    return np.int64(child)


@compiled
def _absorb(tree, node, child, end):
    """All other occurrences of ``node`` continue into ``child``: take its first token over."""
    nodes, slots = tree.nodes, tree.slots
    _unindex(nodes, slots, child)
    if nodes[child, LENGTH] > 1:
        nodes[node, LENGTH] += 1
        nodes[node, REF] = end - nodes[node, LENGTH]
        nodes[child, LENGTH] -= 1
        nodes[child, REF] += 1
        nodes[child, TOKEN] = tree.text[nodes[child, REF]]
        _index(nodes, slots, child)
        return np.int64(node)
    _unindex(nodes, slots, node)
    _take_place(nodes, node, child)
    nodes[child, TOKEN] = nodes[node, TOKEN]
    nodes[child, COUNT] += 1
    nodes[child, LENGTH] = nodes[node, LENGTH] + 1
    nodes[child, REF] = end - nodes[child, LENGTH]
    _index(nodes, slots, child)
    _release(tree.header, nodes, node)
    return np.int64(child)


@compiled
def _split(tree, child, token, end):
    """A node of its own for the first token of ``child``'s edge; returns it."""
    nodes, slots = tree.nodes, tree.slots
    _unindex(nodes, slots, child)
    middle = _allocate(tree.header, nodes)
    _take_place(nodes, child, middle)
    nodes[middle, TOKEN] = token
    nodes[middle, COUNT] = nodes[child, COUNT]
    nodes[middle, LENGTH] = 1
    nodes[middle, REF] = end - 1
    _index(nodes, slots, middle)
    nodes[child, PARENT] = middle
    nodes[child, LENGTH] -= 1
    nodes[child, REF] += 1
    nodes[child, TOKEN] = tree.text[nodes[child, REF]]
    _insert_before(nodes, child, middle, -1)
    _index(nodes, slots, child)
    return middle


@compiled
def _rise(nodes, node):
    """Restore the order of siblings, by descending count, after ``node`` has gained."""
    parent = nodes[node, PARENT]
    first = nodes[parent, CHILD]
    if parent == 0 or node == first or nodes[nodes[node, PREV], COUNT] >= nodes[node, COUNT]:
        return  # the root's children are only ever looked up
    following = nodes[node, PREV]
    while following != first and nodes[nodes[following, PREV], COUNT] < nodes[node, COUNT]:
        following = nodes[following, PREV]
    _unlink(nodes, node)
    _insert_before(nodes, node, parent, following)


@compiled
def _sink(nodes, node):
    """The same after ``node`` has lost."""
    parent = nodes[node, PARENT]
    following = nodes[node, NEXT]
    if parent == 0 or following < 0 or nodes[following, COUNT] <= nodes[node, COUNT]:
        return
    while following >= 0 and nodes[following, COUNT] > nodes[node, COUNT]:
        following = nodes[following, NEXT]
    _unlink(nodes, node)
    _insert_before(nodes, node, parent, following)


@compiled
def remove_sequence(tree, start, stop):
    """Take the finished sequence text[start:stop] out of all counts. Its text stays referable."""
    for begin in range(start, stop):
        _remove_suffix(tree, begin, min(begin + len(tree.active), stop))


@compiled
def _remove_suffix(tree, at, stop):
    nodes, slots = tree.nodes, tree.slots
    node = np.int64(0)
    while at < stop:
        child = _find(nodes, slots, node, tree.text[at])
        if nodes[child, COUNT] == 1:
            _delete_leaf(tree.header, nodes, slots, child)
            break
        nodes[child, COUNT] -= 1
        _sink(nodes, child)
        at += nodes[child, LENGTH]
        node = child
    only = np.int64(nodes[node, CHILD])
    if node == 0 or only < 0 or nodes[only, NEXT] >= 0 or nodes[only, COUNT] != nodes[node, COUNT]:
        return
    _unindex(nodes, slots, only)
    _unindex(nodes, slots, node)
    _take_place(nodes, node, only)
    nodes[only, TOKEN] = nodes[node, TOKEN]
    nodes[only, LENGTH] += nodes[node, LENGTH]
    nodes[only, REF] -= nodes[node, LENGTH]
    _index(nodes, slots, only)
    _release(tree.header, nodes, node)


@compiled
def _match_active(tree, limit, work):
    """Where the suffixes of the current sequence end, shortest first; how many also occur
    elsewhere.
    """
    matched = 0
    while matched < min(limit, tree.header[NUM_ACTIVE]):
        node = tree.active[matched]
        if tree.nodes[node, COUNT] == 1:
            break
        work.matches[matched, 0] = node
        work.matches[matched, 1] = tree.nodes[node, LENGTH]
        matched += 1
    return matched


@compiled
def _match_context(tree, context, limit, work):
    """The same for the suffixes of ``context`` int32[c]; how many occur in the tree."""
    matched = 0
    while matched < min(limit, len(context)):
        node, offset = _locate(tree, context, len(context) - matched - 1)
        if node < 0:
            break
        work.matches[matched, 0] = node
        work.matches[matched, 1] = offset
        matched += 1
    return matched


@compiled
def _locate(tree, context, start):
    """(node, tokens of its edge used) of context[start:], or (-1, 0)."""
    node, offset = np.int64(0), np.int64(0)
    for at in range(start, len(context)):
        if node == 0 or offset == tree.nodes[node, LENGTH]:
            node = _find(tree.nodes, tree.slots, node, context[at])
            if node < 0:
                return node, np.int64(0)
            offset = np.int64(0)
        elif tree.text[tree.nodes[node, REF] + offset] != context[at]:
            return np.int64(-1), np.int64(0)
        offset += 1
    return node, offset


@compiled
def speculate(local, other, context, limit, rule, work):
    """The best draft of two trees into ``work.best``, its score into ``work.scores``; its size.

    local:   a tree whose current sequence is the text; its suffixes are at hand.
    other:   a tree in which the suffixes of ``context`` int32[c] are looked up.
    limit:   tokens of a match at most.
    rule:    (drafted tokens at most, per matched token, added to that, least probability, children
             considered per node; 1 drafts a path).
    """
    work.scores[0] = 0.0
    size = _draft_matches(local, _match_active(local, limit, work), rule, work, 0)
    return _draft_matches(other, _match_context(other, context, limit, work), rule, work, size)


@compiled
def _draft_matches(tree, matched, rule, work, size):
    """Replace the best draft by one of this tree's where that scores higher; the best one's size.

    The score is the sum of probabilities. Of equal scores the longer match is kept.
    """
    cap, factor, offset, min_prob, breadth = rule
    for m in range(matched, 0, -1):
        node, used = np.int64(work.matches[m - 1, 0]), np.int64(work.matches[m - 1, 1])
        limit = min(cap, np.int64(m * factor + offset + 1e-6))
        least = work.scores[0] + MARGIN
        if limit <= 0 or limit * _top_ratio(tree.nodes, node, used) <= least:
            continue
        drafted, score = _draft_from(tree, node, used, limit, min_prob, breadth, work)
        if score > least:
            work.scores[0] = score
            size = drafted
            for i in range(size):
                work.best.tokens[i] = work.spare.tokens[i]
                work.best.parents[i] = work.spare.parents[i]
                work.best.depths[i] = work.spare.depths[i]
    return size


@compiled
def _top_ratio(nodes, node, used):
    """The probability of the likeliest continuation: no drafted token has a larger one."""
    if used < nodes[node, LENGTH]:
        return 1.0
    child = nodes[node, CHILD]
    return 0.0 if child < 0 else nodes[child, COUNT] / nodes[node, COUNT]


@compiled
def _draft_from(tree, node, used, limit, min_prob, breadth, work):
    """Best-first by probability; (size, score). Ties: the earlier parent, then the lower id."""
    nodes, heap, draft = tree.nodes, work.heap, work.spare
    queued = _continue(tree, node, used, 1.0, -1, min_prob, breadth, heap, 0, 0)
    pushed, size, score = queued, 0, 0.0
    while queued > 0 and size < limit:
        item = _pop(heap, queued)
        queued -= 1
        node, used = np.int64(heap.items[item, 0]), np.int64(heap.items[item, 1])
        parent = heap.items[item, 2]
        draft.tokens[size] = tree.text[nodes[node, REF] + used]
        draft.parents[size] = parent
        draft.depths[size] = 1 if parent < 0 else draft.depths[parent] + 1
        prob = heap.scores[item]
        score += prob
        room = len(heap.order) - pushed
        added = _continue(
            tree, node, used + 1, prob, size, min_prob, min(breadth, room), heap, pushed, queued
        )
        pushed += added
        queued += added
        size += 1
    return size, score


@compiled
def _continue(tree, node, used, prob, parent, min_prob, breadth, heap, pushed, queued):
    """Queue what may follow the first ``used`` tokens of ``node``'s edge; how many."""
    nodes = tree.nodes
    if breadth <= 0:
        return 0
    if used < nodes[node, LENGTH]:
        token = tree.text[nodes[node, REF] + used]
        _push(heap, pushed, queued, prob, parent, token, node, used)
        return 1
    added = 0
    child = np.int64(nodes[node, CHILD])
    if breadth == 1:
        child = _lowest_of_best(nodes, child)
    while child >= 0 and added < breadth:
        share = prob * nodes[child, COUNT] / nodes[node, COUNT]
        if share < min_prob:
            break
        token = nodes[child, TOKEN]
        _push(heap, pushed + added, queued + added, share, parent, token, child, 0)
        added += 1
        child = np.int64(nodes[child, NEXT])
    return added


@compiled
def _lowest_of_best(nodes, first):
    """Of the siblings as frequent as the first, the one with the lowest token id."""
    best, child = first, first
    while child >= 0 and nodes[child, COUNT] == nodes[first, COUNT]:
        if nodes[child, TOKEN] < nodes[best, TOKEN]:
            best = child
        child = np.int64(nodes[child, NEXT])
    return best


# --- a priority queue -----------------------------------------------------------------------------


@compiled
def _comes_first(heap, a, b):
    if heap.scores[a] != heap.scores[b]:
        return heap.scores[a] > heap.scores[b]
    return heap.keys[a] < heap.keys[b]


@compiled
def _push(heap, item, queued, score, parent, token, node, offset):
    """Queue a new item: higher scores come first, then earlier parents, then lower tokens."""
    heap.scores[item] = score
    heap.keys[item] = ((np.int64(parent) + 1) << np.int64(32)) + token
    heap.items[item, 0] = node
    heap.items[item, 1] = offset
    heap.items[item, 2] = parent
    at = queued
    while at > 0 and _comes_first(heap, item, heap.order[(at - 1) >> 1]):
        heap.order[at] = heap.order[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap.order[at] = item


@compiled
def _pop(heap, queued):
    """The first item; the caller's queue is one shorter afterwards."""
    first = heap.order[0]
    size = queued - 1
    moved = heap.order[size]
    at, child = 0, 1
    while child < size:
        if child + 1 < size and _comes_first(heap, heap.order[child + 1], heap.order[child]):
            child += 1
        if not _comes_first(heap, heap.order[child], moved):
            break
        heap.order[at] = heap.order[child]
        at = child
        child = 2 * at + 1
    heap.order[at] = moved
    return first


# --- n-gram automaton -----------------------------------------------------------------------------


@compiled
def reset_automaton_trie(automaton):
    """The root alone, every other row unused, the cursor on the root."""
    header, nodes = automaton.header, automaton.nodes
    nodes[:] = 0
    reset_trie(header, nodes, automaton.slots)
    nodes[0, OLDER] = -1
    nodes[0, NEWER] = -1
    header[NEWEST] = 0
    header[OLDEST] = 0


@compiled
def _detach(header, nodes, node):
    older, newer = nodes[node, OLDER], nodes[node, NEWER]
    if older >= 0:
        nodes[older, NEWER] = newer
    else:
        header[OLDEST] = newer
    if newer >= 0:
        nodes[newer, OLDER] = older
    else:
        header[NEWEST] = older


@compiled
def _make_newest(header, nodes, node):
    nodes[node, OLDER] = header[NEWEST]
    nodes[node, NEWER] = -1
    if header[NEWEST] >= 0:
        nodes[header[NEWEST], NEWER] = node
    else:
        header[OLDEST] = node
    header[NEWEST] = node


@compiled
def _touch_upwards(header, nodes, node, reset_fail):
    """Make ``node`` and its ancestors the newest, so that no node is older than its children."""
    while node >= 0:
        if header[NEWEST] != node:
            _detach(header, nodes, node)
            _make_newest(header, nodes, node)
        if reset_fail:
            nodes[node, FAIL] = 0
            nodes[node, FAIL_STAMP] = 0
        node = np.int64(nodes[node, PARENT])


@compiled
def _make_room(automaton):
    """Delete the least recently used node where every row is taken. It is a leaf."""
    header, nodes = automaton.header, automaton.nodes
    if header[FREE] < 0 and header[NUM_NODES] == len(nodes):
        oldest = np.int64(header[OLDEST])
        _detach(header, nodes, oldest)
        nodes[oldest, STAMP] += 1
        _delete_leaf(header, nodes, automaton.slots, oldest)


@compiled
def insert_ngrams(automaton, text, size, blocked):
    """Count every window of ``size`` tokens of ``text`` that holds no blocked token."""
    clean = 0
    for end in range(1, len(text) + 1):
        clean += 1
        if _is_blocked(text[end - 1], blocked):
            clean = 0
        if clean >= size:
            _insert_ngram(automaton, text, end - size, end)


@compiled
def _insert_ngram(automaton, text, start, stop):
    header, nodes, slots = automaton.header, automaton.nodes, automaton.slots
    node = np.int64(0)
    nodes[0, FREQ] += 1
    for at in range(start, stop):
        child = _find(nodes, slots, node, text[at])
        if child < 0:
            _make_room(automaton)
            child = _add_child(header, nodes, slots, node, text[at])
            nodes[child, FREQ] = 0
            nodes[child, DEPTH] = nodes[node, DEPTH] + 1
            nodes[child, FAIL] = 0
            nodes[child, FAIL_STAMP] = 0
        else:
            _detach(header, nodes, child)
        _make_newest(header, nodes, child)
        nodes[child, FREQ] += 1
        node = child
    _touch_upwards(header, nodes, node, False)


@compiled
def _fail(nodes, node):
    """The failure link, or the root where its target's row has been reused."""
    target = np.int64(nodes[node, FAIL])
    return target if nodes[target, STAMP] == nodes[node, FAIL_STAMP] else np.int64(0)


@compiled
def _set_fail(nodes, node, target):
    nodes[node, FAIL] = target
    nodes[node, FAIL_STAMP] = nodes[target, STAMP]


@compiled
def link_failures(automaton, queue):
    """Aho-Corasick failure links of all nodes, breadth first. queue: int32[rows]."""
    nodes, slots = automaton.nodes, automaton.slots
    head, tail = 0, 1
    queue[0] = 0
    while head < tail:
        node = np.int64(queue[head])
        head += 1
        child = np.int64(nodes[node, CHILD])
        while child >= 0:
            target = np.int64(0)
            if node != 0:
                state = _fail(nodes, node)
                target = _find(nodes, slots, state, nodes[child, TOKEN])
                while target < 0 and state != 0:
                    state = _fail(nodes, state)
                    target = _find(nodes, slots, state, nodes[child, TOKEN])
            _set_fail(nodes, child, max(target, np.int64(0)))
            queue[tail] = child
            tail += 1
            child = np.int64(nodes[child, NEXT])


@compiled
def _cursor(automaton):
    cursor = np.int64(automaton.header[CURSOR])
    alive = automaton.nodes[cursor, STAMP] == automaton.header[CURSOR_STAMP]
    return cursor if alive else np.int64(0)


@compiled
def set_cursor(automaton, node):
    """Move the cursor to ``node``."""
    automaton.header[CURSOR] = node
    automaton.header[CURSOR_STAMP] = automaton.nodes[node, STAMP]


@compiled
def find_borders(automaton, token, min_depth, borders):
    """The states that ``token`` reaches from the cursor and its failure links: (first, number).

    first: the deepest one, of any depth; 0 (the root) without one. Those of ``min_depth`` and more
    are written to ``borders`` int32[n-gram size], deepest first.
    """
    nodes, slots = automaton.nodes, automaton.slots
    state, first, size = _cursor(automaton), np.int64(0), 0
    while True:
        reached = _find(nodes, slots, state, token)
        if reached >= 0:
            if first == 0:
                first = reached
            if nodes[reached, DEPTH] >= min_depth:
                borders[size] = reached
                size += 1
        if state == 0:
            return first, size
        state = _fail(nodes, state)


@compiled
def enter_token(automaton, token, min_depth, borders):
    """What the drafted root does to the state: the borders become recent, the cursor moves on."""
    first, size = find_borders(automaton, token, min_depth, borders)
    for i in range(size):
        _touch_upwards(automaton.header, automaton.nodes, np.int64(borders[i]), True)
    set_cursor(automaton, first)


@compiled
def follow_tokens(automaton, tokens):
    """Move the cursor over accepted tokens, along failure links where no edge leads on."""
    nodes, slots = automaton.nodes, automaton.slots
    state = _cursor(automaton)
    for i in range(len(tokens)):
        reached = _find(nodes, slots, state, tokens[i])
        if reached < 0:
            while reached < 0 and state != 0:
                state = _fail(nodes, state)
                reached = _find(nodes, slots, state, tokens[i])
            _touch_upwards(automaton.header, nodes, state, True)
        state = max(reached, np.int64(0))
    _touch_upwards(automaton.header, nodes, state, False)
    set_cursor(automaton, state)


@compiled
def _merge(draft, size, parent, token):
    """The drafted node for ``token`` under ``parent``, new or not: (node, size)."""
    for node in range(size):
        if draft.tokens[node] == token and draft.parents[node] == parent:
            return node, size
    draft.tokens[size] = token
    draft.parents[size] = parent
    draft.depths[size] = 1 if parent < 0 else draft.depths[parent] + 1
    return size, size + 1


@compiled
def retrieve(automaton, borders, num_borders, limit, heap, draft):
    """Draft the most frequent descendants of all borders together: (size, taken).

    ``taken`` counts each border and each descendant, before equal paths of several borders are
    merged; at most ``limit``. Frequency never grows along a path, so best first finds the most
    frequent; ties: the shallower one, then the earlier one.
    """
    nodes = automaton.nodes
    for i in range(num_borders):
        border = np.int64(borders[i])
        _push(heap, i, i, nodes[border, FREQ], nodes[border, DEPTH], i, border, -1)
    queued, pushed, size, taken = num_borders, num_borders, 0, 0
    while queued > 0 and taken < limit:
        item = _pop(heap, queued)
        queued -= 1
        taken += 1
        node, drafted = np.int64(heap.items[item, 0]), np.int64(-1)
        if item >= num_borders:  # a border is the root itself
            drafted, size = _merge(draft, size, heap.items[item, 1], nodes[node, TOKEN])
        child = np.int64(nodes[node, CHILD])
        while child >= 0 and pushed < len(heap.order):
            depth = nodes[child, DEPTH]
            _push(heap, pushed, queued, nodes[child, FREQ], depth, pushed, child, drafted)
            pushed += 1
            queued += 1
            child = np.int64(nodes[child, NEXT])
    return size, taken


@compiled
def add_logits_tree(matrix, root, limit, spent, halve_first, refill, blocked, queue, draft, size):
    """Merge a breadth-first tree of matrix rows into the draft; the draft's new size.

    matrix:      int32[vocab, width]; the root's row is used whole, a child's share of its row
                 halves with its rank and with depth: at the root and from depth 2 on where
                 ``halve_first``, from depth 1 on otherwise.
    limit:       rows that may be spent, of which ``spent`` are.
    refill:      a candidate that is drafted already spends nothing, and a repeated one is skipped.
    queue:       int32[limit + 2, 4], working memory.
    """
    _enqueue(queue, 0, root, -1, matrix.shape[1], 0)
    head, tail = 0, 1
    while head < tail and spent < limit:
        token, parent = queue[head, 0], np.int64(queue[head, 1])
        breadth, depth = np.int64(queue[head, 2]), queue[head, 3]
        head += 1
        halves = depth != 1 if halve_first else depth != 0
        share = breadth >> 1 if halves else breadth
        for rank in range(breadth):
            candidate = matrix[token, rank]
            skipped = _is_blocked(candidate, blocked) or (refill and _repeats(matrix, token, rank))
            if spent < limit and not skipped:
                node, grown = _merge(draft, size, parent, candidate)
                spent += 1 if grown > size or not refill else 0
                size = grown
                _enqueue(queue, tail, candidate, node, max(1, share >> rank), depth + 1)
                tail += 1
    return size


@compiled
def _repeats(matrix, token, rank):
    """Whether the candidate of this rank stands in the row before."""
    earlier = 0
    while matrix[token, earlier] != matrix[token, rank]:
        earlier += 1
    return earlier < rank


@compiled
def _enqueue(queue, at, token, node, breadth, depth):
    queue[at, 0] = token
    queue[at, 1] = node
    queue[at, 2] = breadth
    queue[at, 3] = depth


@compiled
def _is_blocked(token, blocked):
    at = 0
    while at < len(blocked) and blocked[at] != token:
        at += 1
    return at < len(blocked)
