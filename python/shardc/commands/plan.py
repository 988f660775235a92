"""``shardc plan``: estimated costs of plans on a cluster."""

from __future__ import annotations

import json

from shardc.commands.plans.loaded_request import LoadedRequest
from shardc.commands.plans.request import SEARCH, PlanRequest
from shardc.compiler.local_cluster import cluster_of
from shardc.diagnostics.passes.search import NothingSearched, NotSearched
from shardc.options.presets import is_searched
from shardc.planning.auto.report import searched
from shardc.planning.page.page import page
from shardc.planning.traces import chakra_files, trace_of
from shardc.planning.verdict import changes, left_out, ranking, verdict
from shardc.planning.what_if import read_what_if
from shardc.planning.write_json import prices_json
from shardc.report.traces.file import write_files, write_trace_file
from shardc.report.traces.tlparse import PLAN, log_artefact
from shardc.text_files import write_text


def plan(request: PlanRequest) -> str:
    """Answer the request as text.

    Raises errors of ``shardc.diagnostics.planning`` and ``cluster``, and compile errors if there is a single
    plan.
    """
    request = request.settled
    clusters = [cluster_of(name) for name in request.clusters]
    what_if = [read_what_if(text) for text in request.what_if]
    for option in SEARCH:
        if (request.options or {}).get(option) is not None and not any(map(is_searched, request.plans)):
            raise NothingSearched(option=option, missing="")
    if (request.options or {}).get("search_limits") is not None and request.meshes:
        raise NotSearched(option="search_limits beside a mesh")
    asked = LoadedRequest(request, clusters[0])
    searches = asked.searches()
    picked = None if searches is None else searches.answer()
    tried = asked.prices(list(asked.candidates()))
    priced = [price.priced for price in tried.priced]
    if searches is not None and picked is not None:
        priced.append(searches.picked(picked).priced)
    prices = [price.on(cluster) for cluster in clusters for price in priced]
    best = min(prices, key=lambda price: price.order)
    if request.shows_layers and not best.priced.is_whole:
        found = asked.whole(best)
        prices, best = [found if price is best else price for price in prices], found
    lines = [asked.largest(best)] if request.largest else []
    lines.append(verdict(asked.question, best))
    if picked is not None:
        lines.append("\n".join(searched(picked.around)))
    more: dict[str, object] = {}
    if searches is not None and picked is not None:
        for text, found in asked.more(searches, picked):
            lines.append(text)
            more |= found
    if len(prices) > 1:
        lines.append("\n".join(ranking(prices, clusters=len(clusters) > 1)))
    if tried.refused:
        lines.append("\n".join(["not possible:", *(f"  {c.text}: {why}" for c, why in tried.refused)]))
    if tried.left_out:
        lines.append("\n".join(left_out(tried, asked.capacity_bytes)))
    if not best.fits and not request.largest:
        lines.append(asked.remedy(best))
    if what_if:
        changed = [(change.text, asked.changed(best, change)) for change in what_if]
        lines.append("\n".join(changes(best, changed)))
    if request.json_file is not None:
        write_text(
            request.json_file, json.dumps({**prices_json(asked.question, prices), **more}, indent=1) + "\n"
        )
    if request.html_file is not None:
        write_text(request.html_file, page(asked.question, prices, more))
    if request.trace_file is not None:
        write_trace_file(request.trace_file, trace_of(best))
    if request.chakra_folder is not None:
        write_files(request.chakra_folder, chakra_files(best))
    text = "\n\n".join(lines)
    log_artefact(PLAN, lambda: text)
    return text
