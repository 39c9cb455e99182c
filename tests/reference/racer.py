"""The n-gram automaton and the draft tree of `baselines.racer`, with one object per node."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

Paths = dict[tuple[int, ...], None]


@dataclass(eq=False)
class State:
    """A node of the trie. A deleted one is no longer ``alive``."""

    token: int = -1
    parent: State | None = None
    depth: int = 0
    count: int = 0
    children: dict[int, State] = field(default_factory=dict)
    fail: State | None = None
    alive: bool = True

    def with_ancestors(self) -> Iterator[State]:
        state: State | None = self
        while state is not None:
            yield state
            state = state.parent


class ReferenceAutomaton:
    """``recent`` holds every state, the least recently used one first."""

    def __init__(self, size: int, max_nodes: int) -> None:
        self.size, self.max_nodes = size, max_nodes
        self.root = State()
        self.cursor = self.root
        self.recent = [self.root]

    def insert(self, text: Sequence[int], blocked: Collection[int] = ()) -> None:
        for end in range(self.size, len(text) + 1):
            ngram = text[end - self.size : end]
            if not any(token in blocked for token in ngram):
                self._insert(ngram)

    def _insert(self, ngram: Sequence[int]) -> None:
        state = self.root
        state.count += 1
        for token in ngram:
            if token not in state.children:
                self._make_room()
                new = State(token, state, state.depth + 1, fail=self.root)
                state.children[token] = new
                self.recent.append(new)
            state = state.children[token]
            state.count += 1
            self._touch([state])
        self._touch(state.with_ancestors())

    def _make_room(self) -> None:
        if len(self.recent) == self.max_nodes:
            oldest = self.recent.pop(0)
            assert not oldest.children
            assert oldest.parent is not None
            del oldest.parent.children[oldest.token]
            oldest.alive = False

    def _touch(self, states: Iterator[State] | list[State]) -> None:
        for state in states:
            self.recent.remove(state)
            self.recent.append(state)

    def _touch_border(self, state: State) -> None:
        for ancestor in state.with_ancestors():
            ancestor.fail = self.root
            self._touch([ancestor])

    def link_failures(self) -> None:
        queue = deque([self.root])
        while queue:
            state = queue.popleft()
            for token, child in state.children.items():
                child.fail = self.root
                if state is not self.root:
                    for shorter in self._chain(self._fail(state)):
                        if token in shorter.children:
                            child.fail = shorter.children[token]
                            break
                queue.append(child)

    def _fail(self, state: State) -> State:
        return state.fail if state.fail is not None and state.fail.alive else self.root

    def _chain(self, state: State) -> Iterator[State]:
        while state is not self.root:
            yield state
            state = self._fail(state)
        yield self.root

    def _reached(self, token: int) -> list[State]:
        start = self.cursor if self.cursor.alive else self.root
        return [s.children[token] for s in self._chain(start) if token in s.children]

    def enter(self, token: int) -> None:
        reached = self._reached(token)
        for state in reached:
            if state.depth >= 2:
                self._touch_border(state)
        self.cursor = reached[0] if reached else self.root

    def follow(self, tokens: Sequence[int]) -> None:
        state = self.cursor if self.cursor.alive else self.root
        for token in tokens:
            if token not in state.children:
                state = next((s for s in self._chain(state) if token in s.children), self.root)
                self._touch_border(state)
            state = state.children.get(token, self.root)
        self._touch(state.with_ancestors())
        self.cursor = state

    def retrieve(self, root: int, limit: int) -> tuple[Paths, int]:
        """The drafted paths (the root left out), and how many states were taken."""
        borders = [state for state in self._reached(root) if state.depth >= 2]
        ranked = [((-b.count, b.depth, i), b, ()) for i, b in enumerate(borders)]
        paths: Paths = {}
        taken, number = 0, len(borders)
        while ranked and taken < limit:
            ranked.sort(key=lambda item: item[0])
            _, state, path = ranked.pop(0)
            taken += 1
            if path:
                paths.setdefault(path)
            for token, child in state.children.items():
                ranked.append(((-child.count, child.depth, number), child, (*path, token)))
                number += 1
        return paths, taken


def add_logits_tree(
    paths: Paths,
    matrix: Sequence[Sequence[int]],
    root: int,
    limit: int,
    spent: int,
    halve_first: bool,
    refill: bool,
    blocked: Collection[int],
) -> None:
    """Add the breadth-first tree of matrix rows to ``paths``, ``limit`` rows less the spent
    ones.
    """
    queue: deque[tuple[int, tuple[int, ...], int, int]] = deque([(root, (), len(matrix[0]), 0)])
    while queue:
        token, path, breadth, depth = queue.popleft()
        halves = depth != 1 if halve_first else depth != 0
        share = breadth >> 1 if halves else breadth
        row = list(matrix[token][:breadth])
        for rank, candidate in enumerate(row):
            child = (*path, candidate)
            if spent >= limit or candidate in blocked or (refill and candidate in row[:rank]):
                continue
            spent += not refill or child not in paths
            paths.setdefault(child)
            queue.append((candidate, child, max(1, share >> rank), depth + 1))
