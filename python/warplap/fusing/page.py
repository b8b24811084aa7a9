"""A page that draws decided graphs: decisions come in; what the page's writer takes goes out, and into a file."""

from __future__ import annotations

import json
import math
import operator
import os
import pathlib
import re
from typing import Any, Sequence

import torch
from torch.fx import Node

from .. import _warplap
from .explain import Contestant, Decision, graphs
from .matching import near_misses
from .matching.node_kinds import is_view, label, value


def report_graphs(path: str | os.PathLike[str] = "fusing.html") -> pathlib.Path:
    """Writes a page about every graph that was decided in this process (:func:`graphs`): each one drawn with what one
    launch computes, and what every choice took. One file of HTML that loads nothing; its folder must be there."""
    return written(path, graphs())


def written(path: str | os.PathLike[str], decisions: Sequence[Decision]) -> pathlib.Path:
    """Writes a page about decisions; says where it is."""
    report = [_graph(decision, number) for number, decision in enumerate(decisions, 1)]
    text = _warplap.graphs_page(json.dumps({"title": "Fused graphs", "graphs": report}, allow_nan=False))
    place = pathlib.Path(path)
    try:
        place.write_text(text, encoding="utf-8")
    except OSError as why:
        raise OSError(why.errno, f"path: the page cannot be written: {why.strerror}", str(place)) from why
    return place


def _graph(decision: Decision, number: int) -> dict[str, Any]:
    plan = decision.plan
    covers = () if decision.winner is None else decision.winner.covers
    cover = {node: i for i, result in enumerate(covers) for node in result.nodes}
    computed = set(plan.nodes)
    nodes = [node for node in plan.module.graph.nodes if node in computed or _is_input(node)]
    places = {node: i for i, node in enumerate(nodes)}
    launches = f", {len(covers)} {'launch' if len(covers) == 1 else 'launches'} of warplap" if covers else ""
    return {
        "title": f"Graph {number}: {len(plan.nodes)} operations{launches}",
        "key": decision.key,
        "how": "; ".join([decision.how, *near_misses.left(plan)]),
        "plain": decision.form,
        "nodes": [_node(node, places, cover.get(node)) for node in nodes],
        "covers": [{"name": result.template} for result in covers],
        "lanes": [_contestant(decision, contestant) for contestant in decision.contestants],
        "unmeasured": [
            {"name": " + ".join(p.kinds) or "nothing covered", "us": _finite(p.seconds * 1e6)}
            for p in decision.unmeasured
        ],
    }


def _is_input(node: Node) -> bool:
    """Whether it is a tensor that flows in. Weights would only be in the way."""
    return node.op == "placeholder" and value(node) is not None and not isinstance(value(node), torch.nn.Parameter)


def _node(node: Node, places: dict[Node, int], cover: int | None) -> dict[str, Any]:
    name, kind = node.name, "work"
    if node.op == "placeholder":
        named = re.fullmatch(r"l_(.+?)_?", name, re.IGNORECASE)  # the tracer's own way to call an argument
        name, kind = named.group(1) if named else name, "input"
    elif is_view(node) or node.target is operator.getitem:
        kind = "view"
    return {
        "name": name,
        "does": "" if kind == "input" else label(node),
        "reads": [places[read] for read in node.all_input_nodes if read in places],
        "cover": cover,
        "kind": kind,
        "is_seen": any(user.op == "output" for user in node.users),
    }


def _contestant(decision: Decision, contestant: Contestant) -> dict[str, Any]:
    is_taken = contestant.name == decision.taken
    why = "" if decision.is_predicted else _in_words(contestant.why)
    best = min((one.us for one in decision.contestants if one.us is not None), default=None)
    behind = contestant.behind(best)
    if is_taken and behind is not None and behind > 1.0:
        why = "nobody is ahead of it by enough"
    return {
        "name": contestant.name,
        "us": _finite(contestant.us),
        "times": _finite(contestant.times),
        "is_taken": is_taken,
        "is_tie": contestant.is_tie,
        "is_told": decision.is_predicted,
        "why": why,
    }


def _in_words(why: str) -> str:
    """Why a candidate left; the store has one word for it, and then what it is about."""
    word, colon, rest = why.partition(":")
    if not re.fullmatch(r"[a-z_]+", word):
        return why
    return {"wrong_answer": "no right answer"}.get(word, word.replace("_", " ")) + colon + rest


def _finite(number: float | None) -> float | None:
    return number if number is not None and math.isfinite(number) else None
