"""The console's view of the mesh, in a browser: of real daemons, and of many that are made up."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from tests.browser import Page
from tests.daemon.hub.test_console import open_console
from tests.daemons import ROOT, Daemon, Line, program, tool, wait_until
from tests.meshes import Mesh

LINKS = "document.querySelectorAll('.mesh-picture line').length"


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Mesh]:
    """Three daemons in a row."""
    one = Mesh(tmp_path, ["ab", "b~c"], hubs="a")
    one.start()
    yield one
    one.stop()


def test_a_link_that_is_cut_goes_and_the_keyboard_reaches_each_daemon(
    mesh: Mesh, page: Page
) -> None:
    open_console(page, mesh.daemons["a"], "mesh")
    page.wait_text(
        "#view-mesh p[role=status]", "3 daemons, 2 links, 1 articulation daemon, 2 bridges"
    )
    page.wait("document.querySelector('[data-node=b].articulation path')")
    assert page.run(LINKS) == 2
    assert page.run("document.querySelectorAll('.mesh-picture line.bridge').length") == 2
    assert page.run("document.querySelector('[data-node=a]').matches('.own')")

    page.run("document.querySelector('.mesh-picture [tabindex=\"0\"]').focus()")
    page.press("ArrowRight")
    page.press("Enter")
    page.wait("location.hash === '#mesh/b'")
    host, port = mesh.addresses["b"]
    page.wait_text("#view-mesh aside", f"{host}:{port}")
    assert page.run("document.querySelectorAll('#view-mesh aside tbody tr').length") == 2
    assert page.run("document.activeElement.dataset.node") == "b"
    page.press("ArrowLeft")
    assert page.run("document.activeElement.dataset.node") == "a"

    mesh.proxies["b~c"].cut()
    page.wait(f"{LINKS} === 1")
    page.wait_text("#view-mesh p[role=status]", "1 daemon out of reach")
    page.wait("document.querySelector('[data-node=c]').matches('.away')")
    page.size(400, 900)
    page.picture("mesh-phone")
    page.choose("#view-mesh select", "table")
    page.wait_text("#view-mesh caption", "Daemons")
    page.wait_text("#view-mesh tbody tr", "cannot be reached")
    assert not page.too_wide
    page.run("document.querySelector('#view-mesh table a').focus()")
    mesh.proxies["b~c"].heal()
    page.wait_text("#view-mesh p[role=status]", "2 links")
    assert page.run("document.activeElement.textContent") == "a"  # though all is drawn anew
    assert page.axe() == []


MANY = """(async () => {
  const { Layout } = await import("/console/graph.js");
  const ids = Array.from({ length: 200 }, (_, at) => `n${at}`);
  const pairs = ids.flatMap((id, at) => [[id, ids[(at * 7 + 1) % 200]], [id, ids[at >> 1]]])
    .filter(([a, b]) => a !== b);
  function settle(layout) {
    let steps = 0;
    for (; !layout.still && steps < 1000; steps++) layout.step();
    return steps;
  }
  const places = layout => JSON.stringify([...layout.nodes.values()].map(({ x, y }) => [x, y]));
  const [one, two] = [new Layout(), new Layout()];
  one.update(ids, pairs);
  two.update([...ids].reverse(), pairs);
  const steps = [settle(one), settle(two)], same = places(one) === places(two);
  const again = one.update(ids, pairs), rest = one.still;
  one.update([...ids, "new"], [...pairs, ["n7", "new"]]);
  const { x, y } = one.nodes.get("n7"), added = one.nodes.get("new");
  const near = Math.hypot(added.x - x, added.y - y);
  const nodes = [...two.nodes.values()], length = ([a, b]) => Math.hypot(a.x - b.x, a.y - b.y);
  const mean = all => all.reduce((sum, pair) => sum + length(pair), 0) / all.length;
  const any = nodes.map((node, at) => [node, nodes[(at + 97) % 200]]);
  const linked = pairs.map(pair => pair.map(id => two.nodes.get(id)));
  return { steps, same, again, rest, near, warm: settle(one), closer: mean(linked) / mean(any) };
})()"""


def test_the_layout_is_the_same_each_time_and_comes_to_rest(shared: Daemon, page: Page) -> None:
    """Its steps are counted, so nothing depends on how fast this machine is."""
    open_console(page, shared, "mesh")
    page.wait_text("#view-mesh .note", "This daemon is not part of a mesh")
    found = page.run(MANY)
    assert found["same"]
    assert found["steps"][0] == found["steps"][1] < 300
    assert not found["again"]  # the same graph moves nothing
    assert found["rest"]
    assert found["near"] < 70
    assert 0 < found["warm"] < found["steps"][0]
    assert found["closer"] < 0.7  # who is linked is nearer than others


def test_two_nc_and_a_browser_are_at_one_hub_as_the_readme_says(
    start: Callable[..., Daemon], dial: Callable[..., Line], page: Page
) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = text.split("### One hub, however many daemons")[1].split("\n## ")[0]
    first, second = re.findall(r"^\$ pubsubd serve (.*)$", text, flags=re.MULTILINE)
    register, send = re.findall(r"^\$ nc 127.0.0.1 (?:9015|9025)\n(.*)$", text, flags=re.MULTILINE)
    (url,) = re.findall(r"<(http://[^>]*)>", text)
    (script,) = re.findall(r"```js\n(.*?)```", text, flags=re.DOTALL)
    ulm = start(*first.split())
    words = re.sub(r"--(hub-)?port \d+", "", second).replace(":9014", f":{ulm.address[1]}")
    bonn = start(*words.split())

    def nc(stack: contextlib.ExitStack, daemon: Daemon, said: str) -> IO[bytes]:
        one = stack.enter_context(program(tool("nc"), *map(str, daemon.hub)))
        assert one.stdin is not None
        assert one.stdout is not None
        one.stdin.write(said.encode() + b"\n")
        one.stdin.flush()
        return one.stdout

    with contextlib.ExitStack() as stack:
        ann = nc(stack, ulm, register)
        assert json.loads(ann.readline())["type"] == "hub:registered"
        line = dial(bonn)

        def is_known() -> bool:
            line.say(b"pub //pubsubd/peers 0 \n")
            return '"actors":1' in line.hear_frame()[1].decode().replace(" ", "")

        wait_until(is_known, "the actor is known at bonn")
        nc(stack, bonn, send)
        heard = json.loads(ann.readline())
        assert (heard["type"], heard["payload"], heard["to"]) == ("greet", "hello", "x/ann")
        page.open(url.replace("9025", str(bonn.hub[1])))
        page.run(script.replace("9025", str(bonn.hub[1])) + "; null")
        wait_until(lambda: page.run("1") and page.logged, "the answer is in the console")
        (actor,) = json.loads(page.logged[0])["payload"]["actors"]
        assert (actor["address"], actor["daemon"]) == ("x/ann", "ulm")
