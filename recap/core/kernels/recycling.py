"""Kernels of prediction recycling: keyed rows, their fusion, and the search that composes a tree.

A *row* is the target's top-K prediction after some node: K ids, K probabilities, and the confidence
exp(-entropy). ``U`` keys rows by one token and is dense; ``C`` and ``G`` key them by two and three
tokens and share one open-addressing table (paper, section 3.3).

One file, because numba's on-disk cache watches only the file a kernel stands in: a kernel that
inlines a helper from another file would keep running the old helper after an edit.

n tree nodes, K row length, V vocabulary. Absent tokens, rows and ids are -1.
"""

from __future__ import annotations

from math import exp, log
from typing import NamedTuple

import numpy as np
from numba import njit

TOKEN_BITS = 21
MAX_VOCAB = 1 << TOKEN_BITS  # three tokens fill the 63 bits of a non-negative int64

# Compiled without numba's reference counting, which would take most of the time: callers own all
# arrays, kernels allocate nothing and return numbers only.
compiled = njit(cache=True, _nrt=False)

# What is wrong with rows that are to be written.
OK, BAD_TOKEN, BAD_ID = range(3)

# Fusion rules, in the order of `recap.fusion.RULES`.
ENTROPY_CONFIDENCE, FIXED_PRIOR, NO_PRIOR, UNIFORM, CONFIDENCE_GATE, BACKOFF = range(6)


class Rows(NamedTuple):
    """Predictions by row index: ids int32[m, K], probs float32[m, K], confidence float64[m]."""

    ids: np.ndarray
    probs: np.ndarray
    confidence: np.ndarray


class Table(NamedTuple):
    """Open addressing from packed keys to row indices.

    Slots of an older generation count as free, so that a new generation empties the table.
    slots: int64[power of two, 2]: key, and generation << 32 | row.
    state: int64[2]: generation, number of rows.
    """

    slots: np.ndarray
    state: np.ndarray


class Memory(NamedTuple):
    """All rows a drafter holds. ``present``: uint8[V], whether ``U`` holds a row for a token."""

    unigrams: Rows
    present: np.ndarray
    contexts: Rows
    table: Table


class Settings(NamedTuple):
    """What the search needs of `RecapConfig`: fusion rule by number, priors as float64 arrays."""

    rule: int
    orders: int
    width: int
    depth: int
    max_candidates: int
    best_first: bool
    suffix_in_cap: bool
    priors: np.ndarray
    depth_priors: np.ndarray


# --- keys and the table ---------------------------------------------------------------------------


@compiled
def pair_key(previous, token):
    """The key of two tokens in ``C``: negative, so that it differs from every key of three."""
    return ~((np.int64(previous) << TOKEN_BITS) | np.int64(token))


@compiled
def triple_key(before, previous, token):
    """The key of three tokens in ``G``."""
    high = (np.int64(before) << (2 * TOKEN_BITS)) | (np.int64(previous) << TOKEN_BITS)
    return high | np.int64(token)


@compiled
def _slot_of(slots, generation, key):
    """The slot that holds ``key``, or the free slot where it belongs."""
    mask = len(slots) - 1
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) & mask
    while slots[slot, 1] >> 32 == generation and slots[slot, 0] != key:
        slot = (slot + 1) & mask
    return slot


@compiled
def find_row(table, key):
    """The row under ``key``, or -1."""
    generation = table.state[0]
    entry = table.slots[_slot_of(table.slots, generation, key), 1]
    return entry & 0xFFFFFFFF if entry >> 32 == generation else np.int64(-1)


@compiled
def _find_or_add_row(table, key):
    generation = table.state[0]
    slot = _slot_of(table.slots, generation, key)
    entry = table.slots[slot, 1]
    if entry >> 32 == generation:
        return entry & 0xFFFFFFFF
    row = table.state[1]
    table.state[1] = row + 1
    table.slots[slot, 0] = key
    table.slots[slot, 1] = (generation << 32) | row
    return row


@compiled
def rehash_rows(table, slots):
    """Copy the current generation's entries into the empty ``slots`` of a larger table."""
    generation = table.state[0]
    for old in range(len(table.slots)):
        if table.slots[old, 1] >> 32 == generation:
            slot = _slot_of(slots, generation, table.slots[old, 0])
            slots[slot, 0] = table.slots[old, 0]
            slots[slot, 1] = table.slots[old, 1]


# --- writing rows ---------------------------------------------------------------------------------


@compiled
def row_confidence(probs):
    """exp(-entropy in nats) of one row of probabilities, in float64 (paper, Equation 4)."""
    entropy = 0.0
    for p in probs:
        if p > 0.0:
            entropy -= np.float64(p) * log(np.float64(p))
    return exp(-entropy)


@compiled
def _find_fault(tokens, ids, vocab_size):
    """Whether all int32[n] tokens and int32[n, k] ids are in [0, vocab_size)."""
    for token in tokens:
        if token < 0 or token >= vocab_size:
            return BAD_TOKEN
    for i in range(len(ids)):
        for j in range(ids.shape[1]):
            if ids[i, j] < 0 or ids[i, j] >= vocab_size:
                return BAD_ID
    return OK


@compiled
def _write_row(rows, row, ids, probs, confidence):
    """Store one row of k <= K predictions; the rest is filled with absent ids."""
    k = len(ids)
    for j in range(k):
        rows.ids[row, j] = ids[j]
        rows.probs[row, j] = probs[j]
    for j in range(k, rows.ids.shape[1]):
        rows.ids[row, j] = -1
        rows.probs[row, j] = 0.0
    rows.confidence[row] = confidence


@compiled
def seed(memory, tokens, ids, probs, blocked):
    """Write one ``U`` row per token except blocked ones; a token's first row wins.

    Backwards, so that the first occurrence is the last one written. Returns `OK`, or what is wrong
    with the rows, none of which is written then.
    """
    fault = _find_fault(tokens, ids, len(memory.present))
    if fault != OK:
        return fault
    for i in range(len(tokens) - 1, -1, -1):
        token = tokens[i]
        if not _is_among(token, blocked, len(blocked)):
            _write_row(memory.unigrams, token, ids[i], probs[i], row_confidence(probs[i]))
            memory.present[token] = 1
    return OK


@compiled
def refresh(memory, tokens, parents, earlier, previous, ids, probs, orders):
    """Write the rows of all n nodes under their one-, two- and three-token keys.

    ``earlier`` and ``previous``: the two tokens in front of the root. The table must have room for
    2 n more rows. First occurrences win and faulty rows are refused as in `seed`.
    """
    fault = _find_fault(tokens, ids, len(memory.present))
    if fault != OK:
        return fault
    for i in range(len(tokens) - 1, -1, -1):
        token = tokens[i]
        confidence = row_confidence(probs[i])
        _write_row(memory.unigrams, token, ids[i], probs[i], confidence)
        memory.present[token] = 1
        u, v = context_of(tokens, parents, i, earlier, previous)
        if orders >= 2 and v >= 0:
            row = _find_or_add_row(memory.table, pair_key(v, token))
            _write_row(memory.contexts, row, ids[i], probs[i], confidence)
            if orders >= 3 and u >= 0:
                row = _find_or_add_row(memory.table, triple_key(u, v, token))
                _write_row(memory.contexts, row, ids[i], probs[i], confidence)
    return OK


@compiled
def context_of(tokens, parents, node, earlier, previous):
    """The two tokens in front of ``node``, oldest first; those of the root are handed in."""
    parent = parents[node]
    if parent < 0:
        return np.int64(earlier), np.int64(previous)
    grandparent = parents[parent]
    if grandparent < 0:
        return np.int64(previous), np.int64(tokens[parent])
    return np.int64(tokens[grandparent]), np.int64(tokens[parent])


@compiled
def _is_among(token, tokens, size):
    """Whether ``token`` is one of the first ``size`` tokens."""
    at = 0
    while at < size and tokens[at] != token:
        at += 1
    return at < size


# --- fusion ---------------------------------------------------------------------------------------


class Fusion(NamedTuple):
    """The rows of one node, most specific first, and what becomes of them.

    ids int32[3, K], probs float64[3, K], confidence float64[3]: the rows.
    weights float64[3].
    merged_ids int32[3 K], mass float64[3 K]: the mixture (Equation 5).
    kept_ids int32[K], kept_probs float64[K]: the candidates, best first (Equation 6).
    """

    ids: np.ndarray
    probs: np.ndarray
    confidence: np.ndarray
    weights: np.ndarray
    merged_ids: np.ndarray
    mass: np.ndarray
    kept_ids: np.ndarray
    kept_probs: np.ndarray


@compiled
def gather(memory, fusion, u, v, token, orders):
    """Copy the rows available after the tokens (u, v, token) in the order G, C, U; their number."""
    count = 0
    if orders >= 3 and u >= 0 and v >= 0:
        row = find_row(memory.table, triple_key(u, v, token))
        if row >= 0:
            _copy_source(fusion, count, memory.contexts, row)
            count += 1
    if orders >= 2 and v >= 0:
        row = find_row(memory.table, pair_key(v, token))
        if row >= 0:
            _copy_source(fusion, count, memory.contexts, row)
            count += 1
    if memory.present[token]:
        _copy_source(fusion, count, memory.unigrams, token)
        count += 1
    return count


@compiled
def _copy_source(fusion, index, rows, row):
    for j in range(rows.ids.shape[1]):
        fusion.ids[index, j] = rows.ids[row, j]
        fusion.probs[index, j] = rows.probs[row, j]
    fusion.confidence[index] = rows.confidence[row]


@compiled
def fuse(fusion, count, rule, priors, tally):
    """Fuse the first ``count`` rows (see `recap.fusion`); the number of candidates kept.

    ``tally``: float64[3, 4], per number of rows the calls and the sums of normalised weights; with
    [0, 4] nothing is tallied.
    """
    chosen = 0
    if count > 1:
        chosen = _weigh(fusion, count, rule, priors)
        if len(tally) > 0:
            _add_to_tally(fusion, count, tally)
    if count == 1 or rule in (CONFIDENCE_GATE, BACKOFF):
        return _keep_row(fusion, chosen)
    return _keep_heaviest(fusion, _merge(fusion, count))


@compiled
def _weigh(fusion, count, rule, priors):
    """Fill the weights; a rule that chooses one row gives it all the weight. The chosen row."""
    chosen = 0
    for j in range(count):
        if rule == ENTROPY_CONFIDENCE:
            fusion.weights[j] = priors[j] * fusion.confidence[j]
        elif rule == FIXED_PRIOR:
            fusion.weights[j] = priors[j]
        elif rule == NO_PRIOR:
            fusion.weights[j] = fusion.confidence[j]
        elif rule == UNIFORM:
            fusion.weights[j] = 1.0
        else:
            fusion.weights[j] = 0.0
            if rule == CONFIDENCE_GATE and fusion.confidence[j] > fusion.confidence[chosen]:
                chosen = j
    if rule in (CONFIDENCE_GATE, BACKOFF):
        fusion.weights[chosen] = 1.0
    return chosen


@compiled
def _add_to_tally(fusion, count, tally):
    total = 0.0
    for j in range(count):
        total += fusion.weights[j]
    tally[count - 1, 0] += 1
    for j in range(count):
        tally[count - 1, 1 + j] += fusion.weights[j] / total


@compiled
def _keep_row(fusion, index):
    """One row passes unchanged."""
    length = len(fusion.kept_ids)
    for j in range(length):
        if fusion.ids[index, j] < 0:
            return j
        fusion.kept_ids[j] = fusion.ids[index, j]
        fusion.kept_probs[j] = fusion.probs[index, j]
    return length


@compiled
def _merge(fusion, count):
    """Sum the weighted probabilities per id, in the order first seen (Equation 5); their number."""
    size = 0
    for source in range(count):
        for j in range(fusion.ids.shape[1]):
            token = fusion.ids[source, j]
            if token < 0:
                break
            at = 0
            while at < size and fusion.merged_ids[at] != token:
                at += 1
            if at == size:
                fusion.merged_ids[at] = token
                fusion.mass[at] = 0.0
                size += 1
            fusion.mass[at] += fusion.weights[source] * fusion.probs[source, j]
    return size


@compiled
def _keep_heaviest(fusion, size):
    """Keep the K heaviest ids, the first seen on ties, renormalised (Equation 6); their number."""
    ids, probs = fusion.kept_ids, fusion.kept_probs
    kept = 0
    for i in range(size):
        at = kept
        while at > 0 and probs[at - 1] < fusion.mass[i]:
            at -= 1
        if at == len(ids):
            continue
        kept = min(kept + 1, len(ids))
        for j in range(kept - 1, at, -1):
            ids[j] = ids[j - 1]
            probs[j] = probs[j - 1]
        ids[at] = fusion.merged_ids[i]
        probs[at] = fusion.mass[i]
    total = 0.0
    for j in range(kept):
        total += probs[j]
    for j in range(kept):
        probs[j] /= total
    return kept


# --- best-first search ----------------------------------------------------------------------------

# A selected node. ``best_offer`` is the score of its best child that is not selected yet, -inf
# where there is none; the last three fields serve the packing.
NODE = np.dtype(
    [
        ("token", np.int64),
        ("parent", np.int64),
        ("rank", np.int64),
        ("depth", np.int64),
        ("score", np.float64),
        ("best_offer", np.float64),
        ("next_offer", np.int64),
        ("num_offers", np.int64),
        ("first_child", np.int64),
        ("next_sibling", np.int64),
        ("place", np.int64),
    ],
)

# A child that a selected node offers.
OFFER = np.dtype([("token", np.int64), ("rank", np.int64), ("score", np.float64)])


class Workspace(NamedTuple):
    """Working memory of one search, and its result.

    nodes NODE[m], m = max_candidates + 1; offers OFFER[m, width], per node by descending score;
    followers int32[depth]; fusion: see there.
    tokens, parents, depths: int32[m + longest suffix], the packed tree.
    """

    nodes: np.ndarray
    offers: np.ndarray
    followers: np.ndarray
    fusion: Fusion
    tokens: np.ndarray
    parents: np.ndarray
    depths: np.ndarray


@compiled
def search(memory, work, num_fallback, u, v, root, suffix, blocked, settings, tally):
    """Compose fused rows into a tree (see `recap.best_first`) in ``work``; its number of nodes.

    ``u`` and ``v`` are the tokens in front of ``root``, int32[s] ``suffix`` is the path to insert.
    Where no row is keyed by the root, the first ``num_fallback`` rows in ``work.fusion`` stand in.
    """
    nodes = work.nodes
    _set_node(nodes, 0, root, -1, 0, 0, 1.0)
    size, newest, num_arrived = 1, 0, 0
    met, tail = 0, 0  # suffix nodes that the search selected itself, and the last of them
    while size - 1 + settings.suffix_in_cap * (len(suffix) - met) < settings.max_candidates:
        if nodes[newest].depth < settings.depth:
            count = _predict(memory, work, newest, num_fallback, u, v, settings, tally)
            num_arrived = _offer_children(work, newest, count, num_arrived, blocked, settings)
        parent = _best_parent(nodes, work.offers, size)
        if parent < 0:
            break
        newest = size
        _take_offer(nodes, work.offers, parent, newest)
        size += 1
        if met < len(suffix) and parent == tail and nodes[newest].token == suffix[met]:
            met += 1
            tail = newest
    return _pack(work, size, suffix, met, tail)


@compiled
def _set_node(nodes, node, token, parent, rank, depth, score):
    nodes[node].token = token
    nodes[node].parent = parent
    nodes[node].rank = rank
    nodes[node].depth = depth
    nodes[node].score = score
    nodes[node].best_offer = -np.inf
    nodes[node].next_offer = 0
    nodes[node].num_offers = 0


@compiled
def _predict(memory, work, node, num_fallback, u, v, settings, tally):
    """Fuse the rows available after ``node``; the number of candidates."""
    nodes = work.nodes
    if node > 0:
        parent = nodes[node].parent
        u = nodes[nodes[parent].parent].token if parent > 0 else v
        v = nodes[parent].token
    count = gather(memory, work.fusion, u, v, nodes[node].token, settings.orders)
    if count == 0 and node == 0:
        count = num_fallback
    return fuse(work.fusion, count, settings.rule, settings.priors, tally) if count > 0 else 0


@compiled
def _offer_children(work, parent, count, num_arrived, blocked, settings):
    """Offer the first ``width`` candidates, filtered ones leave a gap; the number of all offers."""
    node = work.nodes[parent]
    ids, probs = work.fusion.kept_ids, work.fusion.kept_probs
    scale = node.score * settings.depth_priors[min(node.depth, len(settings.depth_priors) - 1)]
    num_followers = _followers(work.nodes, parent, work.followers)
    for rank in range(min(count, settings.width)):
        token = ids[rank]
        if (
            _is_among(token, blocked, len(blocked))
            or _is_among(token, work.followers, num_followers)
            or _is_among(token, ids, rank)
        ):
            continue
        # Breadth-first is best-first with the order of arrival for a score.
        score = scale * probs[rank] if settings.best_first else -np.float64(num_arrived)
        num_arrived += 1
        _insert_offer(work.offers, parent, node.num_offers, token, rank, score)
        node.num_offers += 1
    if node.num_offers > 0:
        node.best_offer = work.offers[parent, 0].score
    return num_arrived


@compiled
def _followers(nodes, node, followers):
    """Fill in what follows ``node``'s token on its path, edges not to be repeated; the number."""
    token = nodes[node].token
    size = 0
    while node > 0:
        parent = nodes[node].parent
        if nodes[parent].token == token:
            followers[size] = nodes[node].token
            size += 1
        node = parent
    return size


@compiled
def _insert_offer(offers, parent, at, token, rank, score):
    """Insert by descending score, then rank; rows come sorted, so this rarely moves anything."""
    while at > 0 and offers[parent, at - 1].score < score:
        offers[parent, at].token = offers[parent, at - 1].token
        offers[parent, at].rank = offers[parent, at - 1].rank
        offers[parent, at].score = offers[parent, at - 1].score
        at -= 1
    offers[parent, at].token = token
    offers[parent, at].rank = rank
    offers[parent, at].score = score


@compiled
def _best_parent(nodes, offers, size):
    """The node with the best offer, the smaller path of ranks on ties; -1 without offers.

    A scan: with so few nodes it is faster than a heap of all their children.
    """
    best = -1
    best_score = -np.inf
    for node in range(size):
        score = nodes[node].best_offer
        if score > best_score or (
            score == best_score and best >= 0 and _rank_path_before(nodes, offers, node, best)
        ):
            best = node
            best_score = score
    return best


@compiled
def _rank_path_before(nodes, offers, a, b):
    """Whether the path of ranks to ``a``'s best offer is smaller than to ``b``'s, as words compare.

    Neither path contains the other, since no offer is a node yet.
    """
    rank_a = offers[a, nodes[a].next_offer].rank
    rank_b = offers[b, nodes[b].next_offer].rank
    while a != b:
        # Nodes are selected after their ancestors: the later of the two cannot be the common one.
        if a > b:
            rank_a = nodes[a].rank
            a = nodes[a].parent
        else:
            rank_b = nodes[b].rank
            b = nodes[b].parent
    return rank_a < rank_b


@compiled
def _take_offer(nodes, offers, parent, node):
    """Make the best offer of ``parent`` a node."""
    offer = offers[parent, nodes[parent].next_offer]
    _set_node(nodes, node, offer.token, parent, offer.rank, nodes[parent].depth + 1, offer.score)
    nodes[parent].next_offer += 1
    if nodes[parent].next_offer < nodes[parent].num_offers:
        nodes[parent].best_offer = offers[parent, nodes[parent].next_offer].score
    else:
        nodes[parent].best_offer = -np.inf


# --- packing --------------------------------------------------------------------------------------


@compiled
def _pack(work, size, suffix, met, tail):
    """Write out the tree: depth-first by rank, then suffix nodes not met; the number of nodes."""
    nodes = work.nodes
    _link_siblings(nodes, size)
    node = 0
    for place in range(size):
        nodes[node].place = place
        work.tokens[place] = nodes[node].token
        work.parents[place] = nodes[nodes[node].parent].place if node > 0 else -1
        work.depths[place] = nodes[node].depth
        node = _next_in_preorder(nodes, node)
    parent = nodes[tail].place
    for i in range(met, len(suffix)):
        work.tokens[size] = suffix[i]
        work.parents[size] = parent
        work.depths[size] = work.depths[parent] + 1
        parent = size
        size += 1
    return size


@compiled
def _next_in_preorder(nodes, node):
    """The first child, or the next sibling of the nearest ancestor with one; -1 at the end."""
    if nodes[node].first_child >= 0:
        return nodes[node].first_child
    while node > 0 and nodes[node].next_sibling < 0:
        node = nodes[node].parent
    return nodes[node].next_sibling


@compiled
def _link_siblings(nodes, size):
    """Chain every node's children by rank."""
    for node in range(size):
        nodes[node].first_child = -1
        nodes[node].next_sibling = -1
    for node in range(size - 1, 0, -1):
        parent = nodes[node].parent
        before = -1
        after = nodes[parent].first_child
        while after >= 0 and nodes[after].rank < nodes[node].rank:
            before = after
            after = nodes[after].next_sibling
        nodes[node].next_sibling = after
        if before < 0:
            nodes[parent].first_child = node
        else:
            nodes[before].next_sibling = node
