"""`python -m analysis.report`: one file that holds everything, links everything, trusts nothing."""

from __future__ import annotations

import dataclasses
import html
import json
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from analysis import build, paper, report
from analysis.artefact import Cell, Table
from analysis.data import Data
from analysis.report_page import Anchors, Text, clean_svg
from analysis.report_runs import flat
from analysis.report_shelf import narrowed, sources
from experiments.records import read_records, write_records
from tests.analysis import check_report_in_browser as browser_check
from tests.analysis import synthetic

PLANT = "<script>alert(1)<script>"  # no slash: it is part of folder names, too
TINY = "tiny_qwen25vl"
needs_browser = pytest.mark.skipif(
    browser_check.browser() is None, reason="no Chromium on this machine"
)


class Parsed(HTMLParser):
    """Elements with their attributes, and the text of each link."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.links: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if tag == "a" and data.strip():
            self.links.append((attributes.get("href", ""), data.strip()))

    def ids(self) -> list[str]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    def hrefs(self) -> list[str]:
        return [a["href"] for tag, a in self.elements if tag == "a" and "href" in a]


@dataclasses.dataclass(frozen=True)
class Made:
    """A report, read once."""

    path: Path
    page: str
    parsed: Parsed


def make(root: Path, out: Path) -> Made:
    report.main(["--results", str(root), "--out", str(out), "--no-time"])
    page = out.read_text(encoding="utf-8")
    return Made(out, page, Parsed(page))


@pytest.fixture(scope="session")
def tiny(tiny_results: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The report of every study on one tiny model."""
    return make(tiny_results, tmp_path_factory.mktemp("report") / "report.html")


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A report of runs in which every text is markup."""
    root = tmp_path_factory.mktemp("hostile") / "runs"
    config = synthetic.run_config(f"tiny_{PLANT}model", "cpu", f"tiny_{PLANT}bench")
    config["note"] = f"{PLANT}value"
    folder = synthetic.write_run(
        root, config, [{"name": "recap", "method": "recap"}], 3, label=f"{PLANT}path"
    )
    poison(folder)
    slot = synthetic.studies.Slot("chartqa", ())
    synthetic.write_slot(root, "main", slot, f"tiny_{PLANT}model", units=3)
    (root / "host").mkdir()
    (root / "host" / f"{PLANT}host.cpu.json").write_text("{}")
    broken = root / "m" / "b" / f"{PLANT}broken" / "h"
    broken.mkdir(parents=True)
    (broken / "config.yaml").write_text(f"model: [{PLANT}")
    return make(root, root.parent / "report.html")


def poison(folder: Path) -> None:
    """Markup in records and manifest, a bad unit, and a line that is no record."""
    records = [
        dataclasses.replace(
            record,
            unit_id=f"{PLANT}unit{record.unit_id}",
            category=f"{PLANT}category",
            telemetry={f"{PLANT}key": 1, "reason": f"{PLANT}reason"},
            status="error" if record.arm == "recap" and index < 3 else "ok",
            error=f"{PLANT}error" if record.arm == "recap" and index < 3 else None,
        )
        for index, record in enumerate(read_records(folder / "records.jsonl"))
    ]
    write_records(folder / "records.jsonl", records)
    with (folder / "records.jsonl").open("a") as file:
        file.write(json.dumps({"schema_version": f"{PLANT}version"}) + "\n")
    manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text())
    manifest["target"]["neutralised"] = {f"{PLANT}setting": f"{PLANT}old"}
    manifest["arms"].append({"name": f"{PLANT}arm", "method": PLANT, "config": {PLANT: PLANT}})
    (folder / "manifest.json").write_text(json.dumps(manifest))


# What is in it


def test_every_artefact_of_every_scope_is_there(tiny: Made) -> None:
    ids = set(tiny.parsed.ids())
    for kind in build.KINDS:
        for module in build.modules(kind):
            assert f"scope-tiny_qwen25vl-cpu-{module.ID}" in ids
    assert len(tiny.page) < 10_000_000


def test_every_run_is_described_and_its_files_are_where_the_links_lead(
    tiny: Made, tiny_results: Path
) -> None:
    targets = {
        (tiny.path.parent / unquote(href)).resolve()
        for href in tiny.parsed.hrefs()
        if not href.startswith("#")
    }
    folders = {config.parent for config in tiny_results.glob("*/*/*/*/config.yaml")}
    assert {folder.resolve() / "records.jsonl" for folder in folders} <= targets
    assert all(target.is_file() for target in targets)


def test_links_within_the_page_lead_somewhere_and_ids_are_unique(tiny: Made, hostile: Made) -> None:
    for made in (tiny, hostile):
        ids = made.parsed.ids()
        assert len(ids) == len(set(ids))
        assert {href[1:] for href in made.parsed.hrefs() if href.startswith("#")} <= set(ids)


def test_a_number_stands_as_in_the_tables_and_leads_to_its_run(tiny: Made, tiny_data: Data) -> None:
    run = tiny_data.run("main", "chartqa", TINY)
    table = tiny_data.artefact("table01")
    assert run is not None and isinstance(table, Table)
    column = list(table.headings).index("ChartQA S")
    (cell,) = (row[column] for row in table.rows if row[1] == "RECAP")
    assert isinstance(cell, Cell) and cell.value is not None
    anchor = f"run-{run.name.replace('/', '-')}"
    shown = (
        rf'<a href="#{anchor}" title="[^"]*">{cell.value:.2f}</a>\s*'
        rf'<span class="beside">\[{cell.low:.2f}, {cell.high:.2f}\]</span>\s*'
        rf'<br><span class="beside">paper {cell.paper:.2f}</span>'
    )
    assert re.search(shown, tiny.page)
    assert anchor in tiny.parsed.ids()


def test_numbers_lead_to_the_runs_that_row_and_column_name(tiny_data: Data) -> None:
    main = sources(("main",), tiny_data)
    runs, words = narrowed(main, "ChartQA S", [TINY, "RECAP"], tiny_data)
    assert [run.bench for run in runs] == ["tiny_chartqa"]
    assert words == f"{TINY}, ChartQA"
    runs, _ = narrowed(main, "Average S", [TINY, "RECAP"], tiny_data)
    assert len(runs) == 7
    every = sources(("main", "mmspec", "suffix"), tiny_data)
    runs, words = narrowed(every, "Ours", ["4.2", "a sentence", "mmspec"], tiny_data)
    assert {run.study for run in runs} == {"mmspec"}
    runs, words = narrowed(every, "Ours", ["nothing known"], tiny_data)
    assert (len(runs), words) == (len(every), "the whole table")


def test_a_row_that_names_its_run_leads_there(tiny: Made, tiny_data: Data) -> None:
    table = tiny_data.artefact("null_control")
    assert isinstance(table, Table)
    run = next(run for run in tiny_data.found if run.study == "fusion")
    (row,) = (row for row in table.rows if run.name.rpartition("/")[2] in row)
    assert narrowed(tiny_data.found, "S", row, tiny_data)[0] == (run,)
    section = tiny.page.split('id="scope-tiny_qwen25vl-cpu-null_control"')[1].split("</table>")[0]
    assert section.count('<td class="number" data-value') == section.count('<a href="#run-')


def test_ordinary_runs_stand_behind_table_1(tmp_path: Path) -> None:
    config = synthetic.run_config(TINY, "cpu", "tiny_chartqa")
    synthetic.write_run(tmp_path, config, [{"name": "recap", "method": "recap"}], 3)
    made = make(tmp_path, tmp_path / "report.html")
    (run,) = (i for i in made.parsed.ids() if i.startswith("run-"))
    assert sum(href == f"#{run}" for href, text in made.parsed.links if text[0].isdigit()) > 10


def test_the_summary_has_headlines_and_what_is_missing(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path, "mmspec", "qwen25vl", synthetic.CUDA, 2)
    page = make(tmp_path, tmp_path / "report.html").page
    summary = page[page.index('id="summary"') : page.index('id="left-out"')]
    assert "make study-main MODEL=qwen25vl" in summary
    published = paper.value(
        "table02_mmspec", "speedup", model="qwen25vl", method="recap", category="Overall"
    )
    assert re.search(rf"MMSpec</span></th>.*?paper {published:.2f} \([+-]", summary, re.DOTALL)
    assert re.search(r"\d+ complete", summary) and re.search(r"\d+ not measured", summary)


def test_without_runs_there_is_a_report_that_says_so(tmp_path: Path) -> None:
    page = make(tmp_path / "none", tmp_path / "new" / "report.html").page
    assert "0 runs." in page
    assert "make study-main MODEL=qwen25vl" in page


def test_provenance_is_told(tmp_path: Path) -> None:
    config = synthetic.run_config(TINY, "cpu", "tiny_chartqa")
    folder = synthetic.write_run(tmp_path, config, [{"name": "recap", "method": "recap"}], 3)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["target"] |= {"attention": "sdpa", "neutralised": {"repetition_penalty": 1.05}}
    manifest["data"] = {"id": "someone/data", "revision": "abc123"}
    manifest["frozen_inputs"] = {"sha256": "feed"}
    manifest["sessions"][0]["warmup"] = {"rounds": 5, "agreed": False}
    manifest["sessions"][0]["environment"]["git"]["dirty"] = True
    manifest["sessions"][0]["environment"]["packages"] = {"torch": "2.13.0"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    page = make(tmp_path, tmp_path / "report.html").page
    for told in (
        *("sdpa", "repetition_penalty: 1.05", "id: someone/data", "revision: abc123"),
        *("sha256: feed", "rounds 5, agreed no", "commit 0123456789abcdef, dirty yes"),
        *("torch 2.13.0", folder.name, "3 units, 3 distinct requests, 0 skipped, 0 bad"),
    ):
        assert f">{told}<" in page or f"{told}<br>" in page, told


# What is not in the numbers


def test_what_is_left_out_is_listed(tmp_path: Path) -> None:
    config = synthetic.run_config(TINY, "cpu", "tiny_chartqa")
    folder = synthetic.write_run(tmp_path, config, [{"name": "recap", "method": "recap"}], 3)
    with (folder / "records.jsonl").open("a") as file:
        file.write('{"half a')
    (folder / "summary.json").unlink()
    started = tmp_path / TINY / "tiny_textvqa" / "main" / "started"
    started.mkdir(parents=True)
    (started / "config.yaml").write_text("{model: {name: m}, bench: {name: b}}")
    none = tmp_path / TINY / "tiny_textvqa" / "main" / "none"
    none.mkdir(parents=True)
    (none / "config.yaml").write_text("model: {}")
    page = make(tmp_path, tmp_path / "report.html").page
    left_out = page[page.index('id="left-out"') : page.index('id="scope-')]
    assert "1 left out: a line that is not whole" in left_out
    assert "config.yaml names no model" in left_out
    assert "main/started: nothing but a configuration yet." in left_out
    assert "unfinished, 3 units so far" in page


def test_manifests_of_any_shape_are_shown(tmp_path: Path) -> None:
    config = synthetic.run_config(TINY, "cpu", "tiny_chartqa")
    folder = synthetic.write_run(tmp_path, config, [{"name": "recap", "method": "recap"}], 2)
    (folder / "manifest.json").write_text('{"target": {"device": "cpu"}, "arms": [], "data": [1]}')
    assert "not recorded" in make(tmp_path, tmp_path / "report.html").page
    (folder / "manifest.json").unlink()
    assert "not recorded" in make(tmp_path, tmp_path / "report.html").page


# Nothing from data is markup


def test_text_from_data_is_escaped(hostile: Made) -> None:
    scripts = [tag for tag, _ in hostile.parsed.elements if tag == "script"]
    assert len(scripts) == 1
    assert hostile.page.count("<script>") == 1
    shown = html.escape(PLANT)
    for place in (
        *("model", "bench", "value", "path", "unit", "category", "error", "key", "reason"),
        *("version", "setting", "old", "arm", "broken", "host"),
    ):
        assert f"{shown}{place}" in hostile.page, place
    assert not any(name.startswith("on") for _, a in hostile.parsed.elements for name in a)


def test_nothing_is_fetched(tiny: Made, hostile: Made) -> None:
    for made in (tiny, hostile):
        for tag, attributes in made.parsed.elements:
            assert "src" not in attributes
            href = attributes.get("href", "#")
            assert tag == "a" or href.startswith(("#", "data:"))
            assert not href.startswith(("http", "//", "file", "/", "javascript"))
        assert "default-src 'none'" in made.page


def test_svg_is_cleaned_and_its_names_are_its_own() -> None:
    svg = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"
      onload="alert(1)"><metadata>who</metadata><script>alert(1)</script>
      <style>*{stroke-linejoin: round}</style><g id="a" clip-path="url(#a)"/>
      <a xlink:href="javascript:alert(1)"><use xlink:href="#a" style="fill: url(http://x/y)"/></a>
      <image href="https://x/y.png"/><text>&lt;b&gt;</text></svg>"""
    cleaned = str(clean_svg(svg, "fig", 'a "title"'))
    assert 'id="fig-a" clip-path="url(#fig-a)"' in cleaned
    assert 'href="#fig-a" style="fill: none"' in cleaned
    assert "#fig *{" in cleaned.replace("#fig * {", "#fig *{")
    assert "&lt;b&gt;" in cleaned
    for gone in ("alert", "script", "metadata", "onload", "https", "<b>", 'a "title"'):
        assert gone not in cleaned


def test_rich_text_marks_code_and_links_runs() -> None:
    rich = Text({"m/b/s/h": "run-1", "m/b/s/h-r1": "run-2"})
    assert rich("`a<b`") == "<code>a&lt;b</code>"
    assert rich("m/b/s/h-r1: x\ny") == '<a href="#run-2"><code>m/b/s/h-r1</code></a>: x<br>y'
    assert rich("`m/b/s/h`") == '<a href="#run-1"><code>m/b/s/h</code></a>'
    assert rich("``") == "<code></code>"


def test_anchors_are_unique() -> None:
    anchors = Anchors()
    names = [anchors.of("run", name) for name in ("a/b", "a-b", "a b", "<", ">")]
    assert len(set(names)) == 5
    assert anchors.of("run", "a/b") == names[0] == "run-a-b"


def test_nested_values_are_flattened() -> None:
    found = dict(flat({"a": {"b": None, "c": [1]}, "d": {}, "e": True}))
    assert found == {"a.b": "none", "a.c": "[1]", "d": "none", "e": "yes"}


# The command


def test_equal_results_give_equal_bytes(tmp_path: Path) -> None:
    synthetic.write_study(tmp_path / "runs", "mmspec", units=2)
    pages = [make(tmp_path / "runs", tmp_path / f"{name}.html").page for name in "ab"]
    assert pages[0] == pages[1]
    assert "Built" not in pages[0]
    report.main(["--results", str(tmp_path / "runs"), "--out", str(tmp_path / "c.html")])
    built = re.sub(r" Built \S+\.", "", (tmp_path / "c.html").read_text())
    assert built == pages[0]


def test_the_command_needs_no_model(tmp_path: Path) -> None:
    code = (
        "import sys; from analysis.report import main; "
        f"main(['--results', {str(tmp_path)!r}, '--out', {str(tmp_path / 'r.html')!r}]); "
        "loaded = {'torch', 'transformers', 'hydra', 'omegaconf', 'numba', 'recap'}; "
        "sys.exit(str(loaded & set(sys.modules)) if loaded & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# In a browser


@needs_browser
def test_the_report_works_in_a_browser_and_planted_markup_does_nothing(hostile: Made) -> None:
    assert browser_check.check(hostile.path) == []


@needs_browser
def test_the_browser_check_finds_what_it_looks_for(hostile: Made, tmp_path: Path) -> None:
    page = hostile.page.replace("</main>", '<p style="width: 2000px" id="summary">x</p></main>')
    page = page.replace("Content-Security-Policy", "nothing")
    page = page.replace(
        "</body>", '<img src="http://127.0.0.1:9/x.png"><a href="#gone">x</a></body>'
    )
    page = page.replace("return sign *", "console.log('x'); return -sign *")
    (tmp_path / "bad.html").write_text(page)
    found = "\n".join(browser_check.check(tmp_path / "bad.html", widths={"phone": 390}))
    for problem in (
        *("the page is 2", "fetches http://127.0.0.1:9/x.png", "consoleAPICalled"),
        *("leads nowhere: #gone", "stands twice: #summary", "not in order"),
    ):
        assert problem in found, problem


def test_the_browser_check_without_a_browser_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(sys, "argv", ["check", "report.html"])
    assert browser_check.main() == 0
    assert "SKIPPED" in capsys.readouterr().out
