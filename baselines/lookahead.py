"""Lookahead with a trie: draft every branch that followed the last two tokens before.

Zhao et al., "Lookahead: An Inference Acceleration Framework" (KDD 2024); implementation
alipay/PainlessInferenceAcceleration (``lookahead/``). This is the method whose settings the paper
quotes, decoding length 64 and branch length 12, though it cites Fu et al. for it (that one is
`baselines.lookahead_jacobi`). A trie holds, for each token, the branches of up to 13 tokens that
followed it, with a prompt count (of the current request) and an output count (of the stream).
A query takes the sub-trie behind the last two tokens, or behind the last one where that holds less
than 12 ids, and drafts it in preorder, heavier branches first; the prompt count dominates the
weight. Where more nodes are live than fit, those below the 32nd largest output count are left out.

Parameters: the official ones, see `LookaheadDrafter`.
State: the trie persists over the stream. Rows per step: at most ``decoding_length`` = 64.

Kept from the official code: a shorter suffix replaces what a longer one found, also where that was
more; the newest 13 output tokens cannot be retrieved yet; no branch contains a stop id; the
prompt's first token is left out.

Differences from the official code:
- The nodes of an earlier prompt that no output has confirmed are deleted when the next request
  begins, as its maintainers intended; ``keep_prompt_nodes=true`` leaves them with a count of zero,
  where they are still drafted.
- The prompt is cut at stop ids and image placeholders, instead of ending at the first stop id: a
  chat template has one behind the system message. No placeholder is stored or drafted.
- Token id 0 is a token. The end of a request shows only when the next one begins: the last tokens
  are inserted, and the trie is squeezed, then.
Differences from the paper's row: that one verified the flattened trie as one chain (only its first
branch could be accepted), queried with the whole text, and drafted nothing where more than 64 nodes
were live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recap.core.interfaces import Needs
from recap.core.kernels import tries
from recap.core.tree import TokenTree

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from recap.core.interfaces import IntArray, RequestContext, VerifiedStep

NO_TOKENS = np.empty(0, np.int32)
# What the tokens behind them are, in the log.
PROMPT_RUN, OUTPUT_RUN, REQUEST_ENDS = -1, -2, -3


def pieces_between(tokens: IntArray, ids: frozenset[int]) -> list[IntArray]:
    """``tokens`` int32[c] cut at each run of ``ids``, which are left out.

    >>> [p.tolist() for p in pieces_between(np.array([1, 9, 9, 2, 3, 9]), frozenset({9}))]
    [[1], [2, 3], []]
    """
    is_cut = np.zeros(len(tokens), bool)
    for token in ids:
        is_cut |= tokens == token
    if not is_cut.any():
        return [tokens]
    cuts = np.flatnonzero(is_cut)
    starts, stops = np.append(0, cuts + 1), np.append(cuts, len(tokens))
    keep = (starts < stops) | (starts == 0) | (stops == len(tokens))
    return [tokens[a:b] for a, b in zip(starts[keep], stops[keep], strict=True)]


class BranchTrie:
    """The branches that followed each token, with a prompt and an output count per node.

    >>> trie = BranchTrie()
    >>> trie.insert(np.array([1, 2, 3], np.int32), length=13, kind=tries.OUTPUT)
    >>> trie.query([7, 1]).tokens.tolist()
    [1, 2, 3]
    """

    def __init__(self, capacity: int = 1 << 16) -> None:
        self._header = np.zeros(4, np.int64)
        self._nodes = np.zeros((capacity, 8), np.int32)
        self._slots = np.zeros(4 * capacity, np.int32)
        self._counts = np.zeros((capacity, 2))
        self._touched = np.zeros(capacity, np.int32)
        self._rooms: dict[tuple[int, int, int], tuple[tries.RavelWork, tries.Draft]] = {}
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        tries.reset_trie(self._header, self._nodes, self._slots)

    @property
    def arrays(self) -> tries.CountTrie:
        """What the kernels work on."""
        return tries.CountTrie(self._header, self._nodes, self._slots, self._counts, self._touched)

    def num_updated(self) -> int:
        """Trees that have gained a branch since the last squeeze."""
        return int(self._header[tries.NUM_UPDATED])

    def insert(
        self, sequence: IntArray, length: int, kind: int, num_starts: int | None = None
    ) -> None:
        """Count what follows each token: ``length`` tokens, or fewer at the end.

        num_starts: for how many of the first tokens; all but the last by default.
        """
        starts = len(sequence) - 1 if num_starts is None else num_starts
        if starts > 0:
            self._reserve(starts * (length + 1))
            tries.insert_branches(self.arrays, sequence, starts, length, kind)

    def forget_prompt(self, keep_nodes: bool) -> None:
        """Clear all prompt counts; delete nodes without an output count unless ``keep_nodes``."""
        tries.forget_prompt(self.arrays, keep_nodes)

    def squeeze(self, max_nodes: int, max_output_nodes: int) -> None:
        """Decay the updated trees that exceed a cap."""
        tries.squeeze(self.arrays, max_nodes, max_output_nodes)

    def query(
        self,
        tokens: list[int],
        decoding_length: int = 64,
        branch_length: int = 12,
        min_output: int = 32,
    ) -> TokenTree:
        """Draft behind the suffixes of ``tokens``; the last one is the root."""
        sizes = (decoding_length, branch_length, min_output)
        if sizes not in self._rooms:
            self._rooms[sizes] = _query_room(*sizes)
        work, draft = self._rooms[sizes]
        query = np.array(tokens, np.int32)
        size = tries.query_trie(self.arrays, query, *sizes, work, draft)
        arrays = [np.empty(size + 1, np.int32) for _ in range(3)]
        for array, first, rest in zip(arrays, (tokens[-1], -1, 0), draft, strict=True):
            array[0] = first
            array[1:] = rest[:size]
        arrays[1][1:] += 1
        return TokenTree(*arrays)

    def _reserve(self, num_more: int) -> None:
        needed = int(self._header[tries.NUM_NODES]) + num_more
        touched = int(self._header[tries.NUM_TOUCHED]) + num_more
        if touched > len(self._touched):
            self._touched = np.append(self._touched, np.zeros(touched, np.int32))
        capacity = len(self._nodes)
        if needed <= capacity:
            return
        while capacity < needed:
            capacity *= 2
        nodes, counts = np.zeros((capacity, 8), np.int32), np.zeros((capacity, 2))
        nodes[: len(self._nodes)], counts[: len(self._counts)] = self._nodes, self._counts
        self._nodes, self._counts = nodes, counts
        self._slots = np.zeros(4 * capacity, np.int32)
        tries.reindex(self._header, self._nodes, self._slots)


def _query_room(
    decoding_length: int, branch_length: int, min_output: int
) -> tuple[tries.RavelWork, tries.Draft]:
    ends, nexts, parents = (np.zeros(branch_length, np.int32) for _ in range(3))
    children = np.zeros((branch_length, decoding_length), np.int32)
    work = tries.RavelWork(children, ends, nexts, parents, np.zeros(min_output))
    return work, tries.Draft(*(np.zeros(decoding_length, np.int32) for _ in range(3)))


class LookaheadDrafter:
    """Implements `recap.core.interfaces.Drafter`.

    decoding_length:   rows per step at most, the root included.
    branch_length:     depth of a draft; branches one token longer are stored.
    min_output:        how many of the largest output counts survive in a crowded sub-trie; half the
                       decoding length by default.
    query_length:      tokens a query begins with.
    max_nodes:         per first token; beyond it, or beyond ``max_output_nodes`` inserted by
    max_output_nodes:  outputs, a squeeze decays its branches.
    squeeze_after:     first tokens with new branches that make a squeeze due at a request's end.
    keep_prompt_nodes: leave the nodes of earlier prompts in the trie.

    Raises ValueError for a length below 1 or a ``min_output`` above the decoding length.
    """

    needs = Needs()

    def __init__(
        self,
        vocab_size: int,
        decoding_length: int = 64,
        branch_length: int = 12,
        min_output: int | None = None,
        query_length: int = 2,
        max_nodes: int = 65_536,
        max_output_nodes: int = 512,
        squeeze_after: int = 1024,
        keep_prompt_nodes: bool = False,
    ) -> None:
        if min(decoding_length, branch_length, query_length) < 1:
            raise ValueError(
                "decoding_length, branch_length and query_length must be at least 1, got "
                f"{decoding_length}, {branch_length} and {query_length}"
            )
        self.vocab_size = vocab_size
        self.keep_prompt_nodes = keep_prompt_nodes
        if min_output is None:
            min_output = max(decoding_length // 2, 1)
        if not 0 <= min_output <= decoding_length:
            raise ValueError(f"min_output is from 0 to {decoding_length}, got {min_output}")
        self._sizes = (decoding_length, branch_length, min_output)
        self._stored_length = branch_length + 1
        self._query_length = query_length
        self._caps = (max_nodes, max_output_nodes)
        self._squeeze_after = squeeze_after
        self._trie = BranchTrie()
        self.reset_stream()

    def reset_stream(self) -> None:
        """Forget everything, the trie included."""
        self._trie.reset()
        self._log: list[IntArray] = []
        self._pending = NO_TOKENS  # output tokens that wait for their followers
        self._num_read = 0
        self._stopped = False
        self._blocked: frozenset[int] = frozenset()
        self._stop_ids: frozenset[int] = frozenset()

    def begin_request(self, ctx: RequestContext) -> None:
        """Finish the previous request, then insert the prompt's branches."""
        if self._log:
            self._record(REQUEST_ENDS)
        self._blocked, self._stop_ids = ctx.blocked_ids, ctx.stop_ids
        self._num_read = len(ctx.prompt_ids)
        self._stopped = False
        prompt = np.asarray(ctx.prompt_ids[1:], np.int32)
        for run in pieces_between(prompt, self._blocked | self._stop_ids):
            self._record(PROMPT_RUN, run)
        self._record(OUTPUT_RUN)

    def propose(self, history: IntArray) -> TokenTree:
        """Draft behind the last two tokens of ``history`` int32[h]."""
        return self._trie.query(history[-self._query_length :].tolist(), *self._sizes)

    def observe(self, step: VerifiedStep) -> None:
        """Read on in the output, up to a stop id."""
        tokens = np.append(step.history[self._num_read :], step.committed).astype(np.int32)
        self._num_read += len(tokens)
        if self._stopped:
            return
        before_stop, *after = pieces_between(tokens, self._stop_ids)
        self._stopped = bool(after)
        first, *others = pieces_between(before_stop, self._blocked)
        self._log.append(first)
        self._stream(first)
        for piece in others:
            self._record(OUTPUT_RUN, piece)

    def _record(self, mark: int, tokens: IntArray = NO_TOKENS) -> None:
        self._log.append(np.append(mark, tokens).astype(np.int32))
        self._apply(mark, tokens)

    def _apply(self, mark: int, tokens: IntArray) -> None:
        if mark == REQUEST_ENDS:
            self._flush()
            self._trie.forget_prompt(self.keep_prompt_nodes)
            if self._trie.num_updated() >= self._squeeze_after:
                self._trie.squeeze(*self._caps)
        elif mark == PROMPT_RUN:
            self._trie.insert(tokens, self._stored_length, tries.PROMPT)
        else:
            self._flush()
            self._stream(tokens)

    def _stream(self, tokens: IntArray) -> None:
        """Insert what has all its followers by now; the rest waits."""
        pending = np.append(self._pending, tokens)
        complete = len(pending) - self._stored_length
        if complete > 0:
            self._trie.insert(pending, self._stored_length, tries.OUTPUT, complete)
            pending = pending[complete:]
        self._pending = pending

    def _flush(self) -> None:
        self._trie.insert(self._pending, self._stored_length, tries.OUTPUT)
        self._pending = NO_TOKENS

    def stream_state(self) -> dict[str, NDArray[Any]]:
        """A log of the tokens inserted, with marks between."""
        if self._log:
            self._log = [np.concatenate(self._log)]
        return {"log": self._log[0] if self._log else NO_TOKENS}

    def load_stream_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Replay the log."""
        self.reset_stream()
        log = np.asarray(state["log"], np.int32)
        if not len(log):
            return
        marks = np.flatnonzero(log < 0)
        for start, stop in zip(marks, np.append(marks[1:], len(log)), strict=True):
            self._apply(int(log[start]), log[start + 1 : stop])
        self._log = [log]
