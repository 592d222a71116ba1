// The daemons of the mesh and their links, as a picture or as tables.

import { some } from "./dialects.js";
import { button, bytes, count, denied, el, field, fields, frames, rate, show, table } from "./dom.js";
import { legend, meshPicture, SCALES } from "./mesh-picture.js";

const ROWS = 500; // of a table
const LINK = ["Round trip", "Messages", "Traffic", "Bridge"];

const known = (value, make) => value === null || value === undefined ? "–" : make(value);
const yes = value => known(value, () => value ? "yes" : "no");
const address = ({ host, port }) => host ? `${host}:${port}` : "–";
const way = ({ hops }) => hops === null ? "cannot be reached" : some(hops, "hop");
const { compare } = new Intl.Collator("en", { numeric: true });
const sorted = (section, key) =>
	[...section?.rows?.values() ?? []].sort((one, other) => compare(one[key], other[key]));
const route = id => `mesh/${encodeURIComponent(id)}`;
const link = id => el("a", { href: `#${route(id)}` }, show(id, 60));

function rows(caption, columns, all) {
	const more = all.length > ROWS ? `, ${ROWS} of ${count(all.length)}` : "";
	return el("div", el("h3", caption + more),
		table(caption, columns, el("tbody", ...all.slice(0, ROWS).map(cells =>
			el("tr", ...cells.map(cell => el("td", cell)))))));
}

const daemonCells = one => [link(one.node), show(address(one), 80), way(one), String(one.links),
	known(one.interests, count), yes(one.articulation)];
const linkCells = one => [
	known(one.rtt_ms, value => `${value.toFixed(value < 10 ? 2 : 0)} ms`),
	known(one.messages_rate, rate), known(one.bytes_rate, value => `${bytes(value)}/s`), yes(one.bridge)];

// What is drawn anew each second keeps the focus where it is.
function redraw(node, ...children) {
	const places = () => [...node.querySelectorAll("a, button, .scroll")];
	const at = places().indexOf(document.activeElement);
	node.replaceChildren(...children);
	if (at >= 0) places()[at]?.focus({ preventScroll: true });
}

export default {
	id: "mesh",
	title: "Mesh",

	create(root, app) {
		const picture = meshPicture(id => app.go(route(id)));
		const summary = el("p", { role: "status" }), why = el("p.note");
		const legends = el("div"), tables = el("div"), row = el("aside", { ariaLabel: "Daemon" });
		const pick = options => el("select", ...options.map(([value, title]) => el("option", { value }, title)));
		const as = pick([["picture", "Picture"], ["table", "Tables"]]);
		const colour = pick(Object.entries(SCALES).map(([name, { title }]) => [name, title]));
		if (matchMedia("(max-width: 600px)").matches) as.value = "table";
		const drawing = el("div", picture.node, legends);
		const body = el("div.view", { hidden: true },
			fields(field("Show", as), field("Colour", colour)), summary,
			el("div.mesh-body", el("div", drawing, tables), row));
		root.append(el("section.panel", el("h2.unseen", "Mesh"), why, body));

		let mesh = { daemons: [], links: [] }, totals = {}, chosen = "";

		function drawRow() {
			row.hidden = !chosen;
			if (!chosen) return;
			const one = mesh.daemons.find(daemon => daemon.node === chosen);
			const head = el("div.row", el("h3", show(chosen, 80)), el("span.gap"),
				button("Close", () => app.go("mesh"), "small"));
			if (!one) return redraw(row, head, el("p.note", "This daemon is not in the mesh now."));
			const facts = {
				Address: address(one), Way: way(one), Interests: known(one.interests, count),
				Articulation: yes(one.articulation),
			};
			if (chosen === mesh.node && totals.version)
				Object.assign(facts, { Version: totals.version, Connections: count(totals.connections) });
			redraw(row, head,
				el("dl.facts", ...Object.entries(facts).map(([name, value]) =>
					el("div", el("dt", name), el("dd", show(value))))),
				rows("Links", ["To", ...LINK], mesh.links.filter(({ a, b }) => a === chosen || b === chosen)
					.map(one => [link(one.a === chosen ? one.b : one.a), ...linkCells(one)])));
		}

		const draw = frames(() => {
			const { daemons, links, more } = mesh, number = (of, key) => of.filter(one => one[key]).length;
			const away = daemons.filter(one => one.hops === null).length;
			const text = [some(daemons.length, "daemon"), some(links.length, "link"),
				some(number(daemons, "articulation"), "articulation daemon"),
				some(number(links, "bridge"), "bridge"), away && `${some(away, "daemon")} out of reach`,
				more && `${count(more)} more are not listed`].filter(Boolean).join(", ");
			if (summary.textContent !== text) summary.textContent = text;
			drawRow();
			tables.hidden = as.value !== "table";
			drawing.hidden = !tables.hidden;
			if (tables.hidden) return picture.update(mesh);
			redraw(tables,
				rows("Daemons", ["Daemon", "Address", "Way", "Links", "Interests", "Articulation"],
					daemons.map(daemonCells)),
				rows("Links", ["From", "To", ...LINK],
					links.map(one => [link(one.a), link(one.b), ...linkCells(one)])));
		});

		function hear(state, message) {
			totals = state.totals ?? {};
			const section = state.mesh;
			if (!section || (message.n && !message.mesh && mesh.node)) return;
			body.hidden = Boolean(section.error);
			why.textContent = section.error?.code === "no-mesh" ?
				"This daemon is not part of a mesh; see pubsubd-mesh(7)." :
				section.error ? denied("the mesh", section.error) : "";
			mesh = {
				daemons: sorted(section.daemons, "node"), links: sorted(section.links, "link"),
				node: section.node, more: (section.more_daemons ?? 0) + (section.more_links ?? 0),
			};
			draw();
		}

		as.onchange = draw;
		colour.onchange = () => {
			picture.colour(colour.value);
			legends.replaceChildren(legend(colour.value));
		};
		legends.append(legend("rtt"));

		const view = app.live.view("mesh", () => ({ mesh: true, totals: true }), hear);
		return {
			...view,
			shown(node) {
				chosen = node;
				picture.select(node);
				view.shown();
				draw();
			},
		};
	},
};
