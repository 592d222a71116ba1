// The mesh as a picture: positions by Layout, colours by round trip or traffic, marks by shape.

import { some } from "./dialects.js";
import { bytes, el, svg } from "./dom.js";
import { Layout } from "./graph.js";

const MARGIN = 28, NAME = 60; // pixels around all, and for the name of the rightmost
const NAMED = 60, ANIMATED = 400; // daemons up to which all have names, and are seen to move
const BUDGET = 6, STEPS = 2; // milliseconds of layout in a frame; steps, so that one sees it move
const KEYS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
const WEAK = "articulation: without it, the mesh falls apart";

/** What links are coloured by, with the upper ends of all steps but the last. */
export const SCALES = {
	rtt: { title: "Round trip", key: "rtt_ms", steps: [1, 5, 20, 100], unit: value => `${value} ms` },
	traffic: {
		title: "Traffic", key: "bytes_rate", steps: [1, 1024, 102_400, 10_485_760],
		unit: value => `${bytes(value)}/s`,
	},
};

const step = ({ key, steps }, link) =>
	typeof link[key] === "number" ? steps.filter(end => link[key] >= end).length : "none";
const kind = (of, ...more) => `mesh-${of} ${more.filter(Boolean).join(" ")}`;
const dot = (r, more = {}) => svg("circle", { r, ...more });
const diamond = () => svg("path", { d: "M0-9L9 0L0 9L-9 0Z" });
const still = matchMedia("(prefers-reduced-motion: reduce)");

/** Make the picture; `choose(id)` is told which daemon is clicked. */
export function meshPicture(choose) {
	const edges = svg("g", { "aria-hidden": "true" }), points = svg("g");
	const picture = svg("svg", { class: "mesh-picture", role: "group" }, edges, points);
	const layout = new Layout(), drawn = new Map(), lines = new Map();
	let mesh = { daemons: [], links: [], node: "" }, scale = SCALES.rtt, chosen = "", active = "";
	let moving = false, width = 0, height = 0;

	function drawDaemon({ articulation, hops, links, node: id }) {
		const own = id === mesh.node, away = hops === null;
		const label = [id, own && "this daemon", away && "cannot be reached", some(links, "link"),
			articulation && WEAK].filter(Boolean).join(", ");
		const node = drawn.get(id) ?? svg("g", { role: "button", "data-node": id });
		if (node.ariaLabel === label) return;
		drawn.set(id, node);
		node.setAttribute("class", kind("node", own && "own", away && "away", articulation && "articulation"));
		node.ariaLabel = label;
		node.replaceChildren(own ? dot(12, { class: "ring" }) : "", articulation ? diamond() : dot(7),
			svg("title", {}, label),
			svg("text", { x: 12, y: 4 }, id.length > 24 ? id.slice(0, 23) + "\u2026" : id));
		points.append(node);
	}

	function keep(nodes, keys) {
		for (const [key, node] of nodes)
			if (!keys.has(key)) {
				node.remove();
				nodes.delete(key);
			}
	}

	function update(news) {
		mesh = news;
		const names = new Set(mesh.daemons.map(one => one.node));
		mesh.links = mesh.links.filter(one => names.has(one.a) && names.has(one.b));
		layout.update(names, mesh.links.map(one => [one.a, one.b]));
		keep(drawn, names);
		keep(lines, new Set(mesh.links.map(one => one.link)));
		mesh.daemons.forEach(drawDaemon);
		for (const link of mesh.links) {
			const line = lines.get(link.link) ?? svg("line");
			line.setAttribute("class", kind("link", `step-${step(scale, link)}`,
				`wide-${step(SCALES.traffic, link)}`, link.bridge && "bridge"));
			if (!line.parentNode) edges.append(line);
			lines.set(link.link, line);
		}
		picture.classList.toggle("crowded", drawn.size > NAMED);
		picture.classList.toggle("dense", drawn.size > ANIMATED);
		picture.ariaLabel = "Mesh: arrow keys go from one daemon to the next";
		if (!drawn.has(active)) active = mesh.node;
		mark();
		run();
	}

	function mark() {
		for (const [id, node] of drawn) {
			node.tabIndex = id === active ? 0 : -1;
			node.ariaPressed = String(id === chosen);
		}
	}

	function place() {
		const nodes = [...layout.nodes.values()];
		// All fits along each axis.
		function span(axis, room) {
			const all = nodes.map(one => one[axis]), least = Math.min(...all), most = Math.max(...all);
			return { factor: (room - 2 * MARGIN) / (most - least || 1), middle: (least + most) / 2, room };
		}
		const across = span("x", width - (drawn.size > NAMED ? 0 : NAME)), down = span("y", height);
		const factor = Math.min(1.6, across.factor, down.factor);
		const at = (value, { middle, room }) => (room / 2 + (value - middle) * factor).toFixed(1);
		for (const node of nodes) {
			node.at = [at(node.x, across), at(node.y, down)];
			drawn.get(node.id).setAttribute("transform", `translate(${node.at.join(" ")})`);
		}
		for (const { a, b, link } of mesh.links) {
			const ends = [...layout.nodes.get(a).at, ...layout.nodes.get(b).at];
			["x1", "y1", "x2", "y2"].forEach((name, i) => lines.get(link).setAttribute(name, ends[i]));
		}
	}

	function run() {
		if (moving || !width || !drawn.size) return;
		moving = true;
		requestAnimationFrame(frame);
	}

	function frame() {
		const until = performance.now() + BUDGET, atOnce = still.matches || drawn.size > ANIMATED;
		for (let steps = 0; !layout.still && performance.now() < until && (atOnce || steps < STEPS); steps++)
			layout.step();
		if (!atOnce || layout.still) place();
		moving = false;
		if (!layout.still) run();
	}

	points.addEventListener("click", event => {
		active = event.target.closest("[data-node]").dataset.node;
		drawn.get(active).focus();
		choose(active);
	});
	points.addEventListener("keydown", event => {
		const ids = mesh.daemons.map(one => one.node), way = KEYS[event.key];
		if (event.key === "Enter" || event.key === " ") choose(active);
		else if (way) active = ids.at((ids.indexOf(active) + way) % ids.length);
		else return;
		event.preventDefault();
		mark();
		drawn.get(active).focus();
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
			mark();
		},
		colour(name) {
			scale = SCALES[name];
			update(mesh);
		},
	};
}

/** Return the legend for a scale. */
export function legend(name) {
	const { steps, unit } = SCALES[name];
	const item = (text, node) => el("li",
		svg("svg", { viewBox: "-17 -10 34 20", width: 34, height: 20, "aria-hidden": "true" }, node), text);
	const line = (text, ...kinds) =>
		item(text, svg("line", { x1: -15, x2: 15, class: kind("link", "wide-2", ...kinds) }));
	const node = (text, of, ...parts) => item(text, svg("g", { class: kind("node", of) }, ...parts));
	return el("ul.mesh-legend", { ariaLabel: "Legend" },
		...steps.map((end, at) => line(`under ${unit(end)}`, `step-${at}`)),
		line(`${unit(steps.at(-1))} and more`, "step-4"), line("not known"),
		line("thicker: more traffic", "wide-4"),
		line("dashed: a bridge, the only way between two parts", "bridge"),
		node(WEAK, "articulation", diamond()),
		node("this daemon", "own", dot(9, { class: "ring" }), dot(6)),
		node("cannot be reached", "away", dot(6)));
}
