// The daemon at a glance: rates, backlog and lag, the busiest names, the latest events.

import { tile } from "./chart.js";
import { age, bytes, count, denied, el, frames, panel, rate, show, table } from "./dom.js";
import { firstSteps } from "./first-steps.js";
import { eventRow } from "./view-events.js";

const NAMES = 15, EVENTS = 8;
const milliseconds = value => `${value < 10 ? value.toFixed(1) : Math.round(value)} ms`;
const percent = value => `${(value * 100).toFixed(value < 0.1 ? 1 : 0)} %`;

export default {
	id: "overview",
	title: "Overview",

	create(root, app) {
		const tiles = {
			messages_in_rate: tile("Published", rate),
			messages_out_rate: tile("Delivered", rate),
			backlog_bytes: tile("Backlog", bytes),
			loop_lag_ms: tile("Loop lag", milliseconds),
			cpu: tile("Processor", percent),
			dropped_rate: tile("Dropped", rate),
		};
		const facts = el("dl.facts"), why = el("p.note"), steps = firstSteps(app);
		const names = el("tbody"), namesNote = el("p.note"), events = el("tbody"), eventsNote = el("p.note");
		root.append(
			el("h2.unseen", "Overview"), steps.node, why,
			el("div.tiles", ...Object.values(tiles).map(one => one.node)), facts,
			el("div.columns",
				panel("Busiest names", table("Busiest names",
					["Name", el("th.number", { scope: "col" }, "Messages")], names), namesNote),
				panel("Latest events", table("Latest events", ["Time", "Event"], events), eventsNote)));

		function drawFacts(totals) {
			const pairs = {
				Connections: count(totals.connections), Subscriptions: count(totals.subscriptions),
				"Messages in": count(totals.messages_in), "Messages out": count(totals.messages_out),
				In: `${bytes(totals.bytes_in_rate)}/s`, Out: `${bytes(totals.bytes_out_rate)}/s`,
				"Dropped in all": count(totals.dropped), Memory: bytes(totals.rss_bytes),
				"Running for": age(Date.now() / 1000 - totals.since),
				...state.interval > 1 && { Updated: `every ${state.interval.toFixed(1)} s` },
				...totals.node && { Daemon: totals.node },
			};
			facts.replaceChildren(...Object.entries(pairs).map(([name, value]) =>
				el("div", el("dt", name), el("dd", show(value)))));
		}

		function drawNames(section) {
			const rows = [...section.rows?.values() ?? []]
				.sort((a, b) => b.rate - a.rate || (a.name < b.name ? -1 : 1)).slice(0, NAMES);
			names.replaceChildren(...rows.map(row => {
				const share = el("span.share");
				share.style.width = `${5 * row.rate / rows[0].rate}rem`;
				return el("tr", el("td.name", show(row.name, 120)),
					el("td.number", rate(row.rate), el("small", row.error ? ` ± ${rate(row.error)}` : ""), share));
			}));
			namesNote.textContent = section.error ? denied("the busiest names", section.error) :
				rows.length ? "" : "No messages in the last seconds.";
		}

		let state = {};
		const draw = frames(() => {
			const { totals = {}, names: busiest = {}, events: latest = {} } = state;
			why.textContent = totals.error ? denied("the daemon's figures", totals.error) : "";
			if (totals.version) drawFacts(totals);
			drawNames(busiest);
			const rows = latest.rows?.slice(-EVENTS).reverse() ?? [];
			events.replaceChildren(...rows.map(row => eventRow(row, true)));
			eventsNote.textContent = latest.error ? denied("events", latest.error) :
				rows.length ? "" : "Nothing has happened yet.";
		});

		return app.live.view("overview", () => ({ totals: true, names: { limit: NAMES }, events: true }),
			(news, { n }) => {
				state = news;
				const { totals = {} } = news;
				if (n && !totals.error)
					for (const [key, one] of Object.entries(tiles))
						one.add(totals[key], key === "dropped_rate" && `${count(totals.dropped)} in all`);
				steps.hear(totals);
				draw();
			});
	},
};
