"""The branch trie of `baselines.lookahead` as nested dicts."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass
class Node:
    """One token of a branch."""

    children: dict[int, Node] = field(default_factory=dict)
    prompt: float = 0.0
    output: float = 0.0

    def is_live(self) -> bool:
        return self.prompt > 0 or self.output > 0

    def weight(self) -> float:
        return (1.0 - 1e-4) * self.prompt + 1e-4 * self.output

    def live_below(self) -> Iterator[Node]:
        for child in self.children.values():
            if child.is_live():
                yield child
                yield from child.live_below()


@dataclass
class Tree(Node):
    """What followed one token, and how many nodes that took."""

    num_nodes: int = 0
    num_outputs: int = 0


class ReferenceTrie:
    """First token -> tree."""

    def __init__(self) -> None:
        self.trees: dict[int, Tree] = {}
        self.updated: set[int] = set()

    def insert(self, sequence: Sequence[int], length: int, is_prompt: bool) -> None:
        for start in range(len(sequence) - 1):
            tree = self.trees.setdefault(sequence[start], Tree())
            self.updated.add(sequence[start])
            node: Node = tree
            for token in sequence[start + 1 : start + 1 + length]:
                if token not in node.children:
                    node.children[token] = Node()
                    tree.num_nodes += 1
                    tree.num_outputs += not is_prompt
                node = node.children[token]
                if is_prompt:
                    node.prompt += 1
                else:
                    node.output += 1

    def forget_prompt(self, keep: bool) -> None:
        def clear(node: Node) -> int:
            gone = 0
            for token, child in list(node.children.items()):
                child.prompt = 0.0
                gone += clear(child)
                if not keep and child.output == 0:
                    del node.children[token]
                    gone += 1
            return gone

        for token, tree in list(self.trees.items()):
            had = len(tree.children)
            tree.num_nodes -= clear(tree)
            if had and not tree.children:
                del self.trees[token]
                self.updated.discard(token)

    def squeeze(self, max_nodes: int, max_outputs: int) -> None:
        def decay(node: Node) -> int:
            kept = 0
            for token, child in list(node.children.items()):
                if child.output > 1.0:
                    child.output *= 0.5
                    kept += 1 + decay(child)
                else:
                    del node.children[token]
            return kept

        for token in self.updated:
            tree = self.trees[token]
            if tree.num_nodes > max_nodes or tree.num_outputs > max_outputs:
                tree.num_nodes = tree.num_outputs = decay(tree)
        self.updated = set()

    def query(
        self, query: Sequence[int], decoding_length: int, branch_length: int, min_output: int
    ) -> tuple[list[int], list[int]]:
        tokens, parents = [query[-1]], [-1]
        for start, first in enumerate(query):
            if first not in self.trees:
                continue
            node: Node | None = self.trees[first]
            for token in query[start + 1 :]:
                node = node.children.get(token) if node else None
                node = node if node and node.is_live() else None
            tokens, parents = [query[-1]], [-1]
            if node:
                least = _threshold(node, decoding_length, min_output)
                _ravel(node, 0, tokens, parents, decoding_length, branch_length, least)
            if len(tokens) >= branch_length:
                break
        return tokens, parents


def _threshold(node: Node, decoding_length: int, min_output: int) -> float:
    outputs = sorted((n.output for n in node.live_below()), reverse=True)
    if len(outputs) <= decoding_length:
        return 0.0
    if min_output == 0:
        return math.inf
    return outputs[min_output - 1] if len(outputs) >= min_output else 0.0


def _ravel(
    node: Node,
    at: int,
    tokens: list[int],
    parents: list[int],
    limit: int,
    depth: int,
    least: float,
) -> None:
    if depth == 0:
        return
    for token, child in sorted(node.children.items(), key=lambda kv: -kv[1].weight()):
        if len(tokens) < limit and child.output >= least:
            tokens.append(token)
            parents.append(at)
            _ravel(child, len(tokens) - 1, tokens, parents, limit, depth - 1, least)
