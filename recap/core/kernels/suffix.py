"""Kernels of an online suffix automaton over flat arrays (see `recap.core.suffix_automaton`).

A state stands for all substrings with one set of end positions; its ``LINK`` is the state of the
longest suffix that also ends elsewhere. The text may be cut by separators: the automaton then
                                                                            restarts at its initial
                                                                            state,
so no state spans a separator.

header: int64[7], see the field numbers below.
states: int32[s, 5], one row per state; state 0 is initial.
edges:  int32[e, 4], one row per transition, in one chain per state for the copying of states.
slots:  int32[power of two], open addressing over (state, token): edge + 1, or 0 where free.
text:   int32[t].
order:  int32[s + t + 2], working memory for sorting states.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# As in `recap.core.kernels.recycling`: no reference counting, hence no allocation.
compiled = njit(cache=True, _nrt=False)

# header
NUM_STATES, NUM_EDGES, LAST, NUM_TOKENS, MATCH_LENGTH, MATCH_FIRST_END, MATCH_LAST_END = range(7)
# states
LENGTH, LINK, FIRST_EDGE, FIRST_END, LAST_END = range(5)
# edges
SOURCE, TOKEN, TARGET, NEXT_EDGE = range(4)

# Below this many new tokens, last ends are carried up the suffix links token by token; above, once
# for all.
BULK = 32


@compiled
def reset_automaton(header, states, slots):
    """Forget the text: one initial state, no transition."""
    slots[:] = 0
    header[:] = 0
    header[NUM_STATES] = 1
    header[MATCH_FIRST_END] = -1
    header[MATCH_LAST_END] = -1
    states[0, LENGTH] = 0
    states[0, LINK] = -1
    states[0, FIRST_EDGE] = -1
    states[0, FIRST_END] = -1
    states[0, LAST_END] = -1


@compiled
def _slot_of(edges, slots, state, token):
    """The slot that holds the edge, or the free slot where it belongs."""
    mask = len(slots) - 1
    key = (np.uint64(state) << np.uint64(32)) ^ np.uint64(token)
    slot = np.int64((key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) & mask
    while slots[slot] != 0:
        edge = slots[slot] - 1
        if edges[edge, SOURCE] == state and edges[edge, TOKEN] == token:
            break
        slot = (slot + 1) & mask
    return slot


@compiled
def _add_edge(header, states, edges, slots, source, token, target):
    edge = header[NUM_EDGES]
    header[NUM_EDGES] = edge + 1
    edges[edge, SOURCE] = source
    edges[edge, TOKEN] = token
    edges[edge, TARGET] = target
    edges[edge, NEXT_EDGE] = states[source, FIRST_EDGE]
    states[source, FIRST_EDGE] = edge
    slots[_slot_of(edges, slots, source, token)] = edge + 1


@compiled
def _add_state(header, states, length, link, first_end, last_end):
    state = header[NUM_STATES]
    header[NUM_STATES] = state + 1
    states[state, LENGTH] = length
    states[state, LINK] = link
    states[state, FIRST_EDGE] = -1
    states[state, FIRST_END] = first_end
    states[state, LAST_END] = last_end
    return state


@compiled
def _split(header, states, edges, slots, source, token, state):
    """Give the substrings of ``state`` that are reached over ``source`` a state of their own."""
    short = _add_state(
        header,
        states,
        states[source, LENGTH] + 1,
        states[state, LINK],
        states[state, FIRST_END],
        states[state, LAST_END],
    )
    edge = states[state, FIRST_EDGE]
    while edge >= 0:
        _add_edge(header, states, edges, slots, short, edges[edge, TOKEN], edges[edge, TARGET])
        edge = edges[edge, NEXT_EDGE]
    states[state, LINK] = short
    while source >= 0:
        slot = _slot_of(edges, slots, source, token)
        if slots[slot] == 0 or edges[slots[slot] - 1, TARGET] != state:
            break
        edges[slots[slot] - 1, TARGET] = short
        source = states[source, LINK]
    return short


@compiled
def _reach(header, states, edges, slots, source, token):
    """The state of just the substrings that an existing edge extends from ``source``."""
    state = edges[slots[_slot_of(edges, slots, source, token)] - 1, TARGET]
    if states[state, LENGTH] == states[source, LENGTH] + 1:
        return np.int64(state)
    return _split(header, states, edges, slots, source, token, state)


@compiled
def _append(header, states, edges, slots, token, end):
    """Extend the text by the token at position ``end``; the state of all since the restart."""
    source = header[LAST]
    if slots[_slot_of(edges, slots, source, token)] != 0:
        # Only after a restart: this beginning has been read before.
        return _reach(header, states, edges, slots, source, token)
    state = _add_state(header, states, states[source, LENGTH] + 1, 0, end, -1)
    while source >= 0 and slots[_slot_of(edges, slots, source, token)] == 0:
        _add_edge(header, states, edges, slots, source, token, state)
        source = np.int64(states[source, LINK])
    if source >= 0:
        states[state, LINK] = _reach(header, states, edges, slots, source, token)
    return state


@compiled
def _set_match(header, states, state):
    header[MATCH_LENGTH] = states[state, LENGTH]
    header[MATCH_FIRST_END] = states[state, FIRST_END]
    header[MATCH_LAST_END] = states[state, LAST_END]


@compiled
def _step(header, states, edges, slots, token, end):
    """Append one token, note what matched before it, then carry its end up the suffix links."""
    state = _append(header, states, edges, slots, token, end)
    header[LAST] = state
    seen = states[state, LAST_END] >= 0  # the whole text since the restart ended earlier, too
    _set_match(header, states, state if seen else np.int64(states[state, LINK]))
    while state > 0:
        states[state, LAST_END] = end
        state = np.int64(states[state, LINK])


@compiled
def _settle_last_ends(header, states, order, num_tokens):
    """A state's last end is the latest one of itself and of all states that link to it."""
    num_states = header[NUM_STATES]
    first = num_states  # of the counts per length, behind the sorted states
    order[first : first + num_tokens + 2] = 0
    for state in range(num_states):
        order[first + states[state, LENGTH] + 1] += 1
    for length in range(1, num_tokens + 2):
        order[first + length] += order[first + length - 1]
    for state in range(num_states):
        length = states[state, LENGTH]
        order[order[first + length]] = state
        order[first + length] += 1
    for i in range(num_states - 1, 0, -1):
        state = order[i]
        link = states[state, LINK]
        if link > 0:
            states[link, LAST_END] = max(states[link, LAST_END], states[state, LAST_END])


@compiled
def _is_in(token, tokens):
    at = 0
    while at < len(tokens) and tokens[at] != token:
        at += 1
    return at < len(tokens)


@compiled
def extend_automaton(header, states, edges, slots, text, order, num_tokens, separators):
    """Read on in ``text`` until ``num_tokens`` of it are read.

    The arrays must have room: 2 states and 3 edges per token of text. Afterwards the header holds
    the match: the longest suffix that also ends earlier, with its first and its latest earlier end;
    length 0 and ends -1 where there is none. Amortised constant time per token, besides the walk up
    the suffix links that keeps last ends exact: no longer than the match, hence `BULK`.
    """
    start = header[NUM_TOKENS]
    header[NUM_TOKENS] = num_tokens
    settled = num_tokens - 1 if num_tokens - start > BULK else start  # the last token walks always
    for end in range(start, num_tokens):
        token = text[end]
        if _is_in(token, separators):
            header[LAST] = 0
            _set_match(header, states, 0)
        elif end < settled:
            state = _append(header, states, edges, slots, token, end)
            states[state, LAST_END] = end
            header[LAST] = state
        else:
            if end == settled and settled > start:
                _settle_last_ends(header, states, order, end)
            _step(header, states, edges, slots, token, end)
    if settled > start and header[LAST] == 0:
        _settle_last_ends(header, states, order, num_tokens)


@compiled
def rehash_edges(header, edges, slots):
    """Fill empty ``slots`` from the edges, after a growth."""
    for edge in range(header[NUM_EDGES]):
        slots[_slot_of(edges, slots, edges[edge, SOURCE], edges[edge, TOKEN])] = edge + 1


@compiled
def suffix_path(header, text, separators, path):
    """Fill int32[limit] ``path`` with what followed the match's latest earlier end; its length.

    It is cut before what RECAP would not insert: a separator, or a (token, token) edge that is on
                                                  the path
    already; the first edge leaves the newest token.
    """
    size = 0
    if header[MATCH_LENGTH] == 0:
        return size
    root = text[header[NUM_TOKENS] - 1]
    start = header[MATCH_LAST_END] + 1
    for position in range(start, min(start + len(path), header[NUM_TOKENS])):
        token = text[position]
        if _is_in(token, separators) or _repeats_edge(root, path, size, token):
            break
        path[size] = token
        size += 1
    return size


@compiled
def _repeats_edge(root, path, size, token):
    """Whether the edge from the end of (root, path) to ``token`` is on it already."""
    end = path[size - 1] if size > 0 else root
    source = root
    for i in range(size):
        if source == end and path[i] == token:
            return True
        source = path[i]
    return False


@compiled
def match_with(header, states, edges, slots, token):
    """(length, first end) of the longest suffix of text and ``token`` that the text contains; (0,
    -1) where the token is new.
    """
    source = header[LAST]
    while source >= 0:
        slot = _slot_of(edges, slots, source, token)
        if slots[slot] != 0:
            state = edges[slots[slot] - 1, TARGET]
            return np.int64(states[source, LENGTH]) + 1, np.int64(states[state, FIRST_END])
        source = np.int64(states[source, LINK])
    return np.int64(0), np.int64(-1)


@compiled
def match_followed_by(header, states, count):
    """(length, first end) of the longest recurring suffix whose first end leaves ``count`` tokens
    in front of the newest one; of the last state on the way where none does.
    """
    state = header[LAST]
    if states[state, LENGTH] != header[MATCH_LENGTH]:
        state = np.int64(states[state, LINK])
    latest = header[NUM_TOKENS] - 2 - count
    while states[state, FIRST_END] > latest and states[state, LINK] > 0:
        state = np.int64(states[state, LINK])
    return np.int64(states[state, LENGTH]), np.int64(states[state, FIRST_END])
