// The mesh as a picture: positions by Layout, colours by round trip or traffic, marks by shape.

import { some } from "./dialects.js";
import { bytes, el, svg } from "./dom.js";
import { Layout } from "./graph.js";

const MARGIN = 28, RADIUS = 7, LABELS = 60; // pixels; daemons up to which all have their names
const BUDGET = 6; // milliseconds of layout in a frame
const ANIMATED = 400; // daemons up to which one sees them move
const STEPS = 2; // of layout in a frame: so one sees what moves
const KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };

/** Scales, by what links are coloured: the upper ends of all steps but the last. */
export const SCALES = {
  rtt: { title: "Round trip", key: "rtt_ms", steps: [1, 5, 20, 100], unit: value => `${value} ms` },
  traffic: {
    title: "Traffic", key: "bytes_rate", steps: [1, 1_000, 100_000, 10_000_000],
    unit: value => value === 1 ? "nothing" : `${bytes(value).replace(".0", "")}/s`,
  },
};

const step = (scale, value) =>
  typeof value === "number" ? scale.steps.filter(end => value >= end).length : "none";

const still = matchMedia("(prefers-reduced-motion: reduce)");

/** Make the picture; `choose(id)` is told which daemon is clicked. */
export function meshPicture(choose) {
  const edges = svg("g", { "aria-hidden": "true" }), points = svg("g");
  const picture = svg("svg", { class: "mesh-picture", role: "group" }, edges, points);
  const layout = new Layout(), drawn = new Map(), lines = new Map();
  let mesh = { daemons: [], links: [], node: "" }, scale = SCALES.rtt, chosen = "", active = "";
  let moving = false, width = 0, height = 0;

  function mark(daemon) {
    const { articulation, hops, node } = daemon;
    const kind = node === mesh.node ? "own" : hops === null ? "away" : "";
    const shape = articulation ?
      svg("rect", { x: -RADIUS, y: -RADIUS, width: 2 * RADIUS, height: 2 * RADIUS, transform: "rotate(45)" }) :
      svg("circle", { r: RADIUS });
    const ring = node === mesh.node ? svg("circle", { class: "ring", r: RADIUS + 5 }) : "";
    return { kind, parts: [ring, shape, svg("title", {}, describe(daemon)),
      svg("text", { x: RADIUS + 5, y: 4 }, node.length > 24 ? node.slice(0, 23) + "\u2026" : node)] };
  }

  function describe({ articulation, hops, links, node }) {
    return [node, node === mesh.node ? "this daemon" : "", hops === null ? "cannot be reached" : "",
      some(links, "link"),
      articulation ? "articulation: without it, the mesh falls apart" : ""].filter(Boolean).join(", ");
  }

  function update(news) {
    mesh = news;
    const names = new Set(mesh.daemons.map(one => one.node));
    const links = mesh.links.filter(one => names.has(one.a) && names.has(one.b));
    layout.update(names, links.map(one => [one.a, one.b]));
    for (const [id, one] of drawn) if (!names.has(id)) one.node.remove(), drawn.delete(id);
    for (const daemon of mesh.daemons) {
      const label = describe(daemon), before = drawn.get(daemon.node);
      const look = `${label} ${daemon.node === mesh.node}`;
      if (before?.look === look) continue;
      const { kind, parts } = mark(daemon);
      const node = before?.node ?? svg("g", { role: "button", tabindex: -1 });
      node.setAttribute("class", `mesh-node ${kind} ${daemon.articulation ? "articulation" : ""}`);
      node.setAttribute("aria-label", label);
      node.dataset.node = daemon.node;
      node.replaceChildren(...parts);
      if (!before) points.append(node);
      drawn.set(daemon.node, { node, look });
    }
    picture.classList.toggle("crowded", drawn.size > LABELS);
    picture.classList.toggle("dense", drawn.size > ANIMATED);
    picture.setAttribute("aria-label",
      `Mesh of ${mesh.daemons.length} daemons and ${links.length} links; arrow keys go from one to the next`);
    if (!drawn.has(active)) active = drawn.has(mesh.node) ? mesh.node : drawn.keys().next().value ?? "";
    const keys = new Set(links.map(one => one.link));
    for (const [key, line] of lines) if (!keys.has(key)) line.remove(), lines.delete(key);
    for (const link of links) {
      if (!lines.has(link.link)) {
        lines.set(link.link, svg("line"));
        edges.append(lines.get(link.link));
      }
      const traffic = step(SCALES.traffic, link.bytes_rate);
      lines.get(link.link).setAttribute("class", `mesh-link step-${step(scale, link[scale.key])} ` +
        `wide-${traffic === "none" ? 0 : traffic}${link.bridge ? " bridge" : ""}`);
    }
    mesh.links = links;
    focus();
    run();
  }

  function focus() {
    for (const [id, { node }] of drawn) {
      node.setAttribute("tabindex", id === active ? 0 : -1);
      node.setAttribute("aria-pressed", String(id === chosen));
    }
  }

  function place() {
    let [left, top, right, bottom] = [Infinity, Infinity, -Infinity, -Infinity];
    for (const { x, y } of layout.nodes.values()) {
      left = Math.min(left, x), right = Math.max(right, x);
      top = Math.min(top, y), bottom = Math.max(bottom, y);
    }
    const names = drawn.size > LABELS ? 0 : 60; // pixels for the name of the rightmost
    const factor = Math.min(1.6, (width - 2 * MARGIN - names) / (right - left || 1),
      (height - 2 * MARGIN) / (bottom - top || 1));
    const x = node => ((width - names) / 2 + (node.x - (left + right) / 2) * factor).toFixed(1);
    const y = node => (height / 2 + (node.y - (top + bottom) / 2) * factor).toFixed(1);
    for (const node of layout.nodes.values())
      drawn.get(node.id).node.setAttribute("transform", `translate(${x(node)} ${y(node)})`);
    for (const { a, b, link } of mesh.links) {
      const line = lines.get(link), from = layout.nodes.get(a), to = layout.nodes.get(b);
      line.setAttribute("x1", x(from));
      line.setAttribute("y1", y(from));
      line.setAttribute("x2", x(to));
      line.setAttribute("y2", y(to));
    }
  }

  function run() {
    if (moving || !width || !drawn.size) return;
    moving = true;
    requestAnimationFrame(frame);
  }

  function frame() {
    const until = performance.now() + BUDGET;
    let steps = 0;
    const atOnce = still.matches || drawn.size > ANIMATED;
    while (!layout.still && performance.now() < until && (atOnce || steps++ < STEPS)) layout.step();
    if (!atOnce || layout.still) place();
    moving = false;
    if (!layout.still) run();
  }

  points.addEventListener("click", event => {
    const node = event.target.closest("[data-node]");
    if (!node) return;
    node.focus();
    choose(active = node.dataset.node);
  });
  points.addEventListener("keydown", event => {
    const step = KEYS[event.key], ids = mesh.daemons.map(one => one.node);
    if (event.key === "Enter" || event.key === " ") choose(active);
    else if (!step) return;
    else active = ids.at((ids.indexOf(active) + step) % ids.length);
    event.preventDefault();
    focus();
    drawn.get(active).node.focus();
  });
  new ResizeObserver(() => {
    ({ width, height } = picture.getBoundingClientRect());
    run();
  }).observe(picture);

  return {
    node: picture,
    update,
    /** Mark a daemon as the one whose row is shown. */
    select(id) {
      chosen = id;
      if (drawn.has(id)) active = id;
      focus();
    },
    colour(name) {
      scale = SCALES[name];
      update(mesh);
    },
  };
}

/** Return the legend for a scale. */
export function legend(name) {
  const scale = SCALES[name], { steps, unit } = scale;
  const sample = (...parts) => svg("svg", { width: 34, height: 20, "aria-hidden": "true" }, ...parts);
  const line = kind => sample(svg("line", { x1: 2, y1: 10, x2: 32, y2: 10, class: `mesh-link ${kind}` }));
  const texts = steps.map((end, at) => at === 0 && name === "traffic" ? unit(end) : `under ${unit(end)}`);
  texts.push(`${unit(steps.at(-1))} and more`);
  const node = (kind, ...parts) => sample(svg("g", { class: `mesh-node ${kind}`, transform: "translate(17 10)" }, ...parts));
  const circle = svg("circle", { r: 6 });
  return el("ul.mesh-legend", { ariaLabel: "Legend" },
    ...texts.map((text, at) => el("li", line(`step-${at} wide-2`), text)),
    el("li", line("step-none wide-2"), "not known"),
    el("li", line("step-none wide-4"), "thicker: more traffic"),
    el("li", line("step-none wide-2 bridge"), "dashed: a bridge, the only way between two parts"),
    el("li", node("articulation", svg("rect", { x: -6, y: -6, width: 12, height: 12, transform: "rotate(45)" })),
      "articulation: without it, the mesh falls apart"),
    el("li", node("own", svg("circle", { class: "ring", r: 9 }), circle), "this daemon"),
    el("li", node("away", circle.cloneNode()), "cannot be reached"));
}
