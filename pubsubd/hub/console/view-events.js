// Events as they come: connections closed and why, links, logins, reloads.

import { clock, denied, el, field, fields, frames, show, table } from "./dom.js";

const BAD = /fail|refused|down|closed|dropped/;
const GAPS = 50; // places where some were missed

export const EVENT = ["Time", "Event", "Who", "Reason", "Details"];

/** Return the row of an event; a brief one has two cells. */
export function eventRow({ id, at, event, reason, detail, user, peer, connection, ...more }, brief) {
	const time = el("td.time", clock(at)), kind = el(`span.tag${BAD.test(event) ? ".bad" : ""}`, show(event, 40));
	const who = show([user, peer, connection && `#${connection}`].filter(Boolean).join(" "), 100);
	const why = show(reason ?? "", 60);
	if (brief) return el("tr", time, el("td", kind, " ", why, el("small", " ", who)));
	const rest = Object.entries(more).filter(([, value]) => value !== null)
		.map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`);
	const text = [detail, ...rest].filter(Boolean).join(" · ");
	return el("tr", time, el("td", kind), el("td.tight", who), el("td.tight", why), el("td.long", show(text, 400)));
}

export default {
	id: "events",
	title: "Events",

	create(root, app) {
		const kind = el("select", el("option", { value: "" }, "all events"));
		const words = el("input", { type: "search", placeholder: "user, address, reason …" });
		const hold = el("input", { type: "checkbox" }), body = el("tbody"), note = el("p.note");
		root.append(el("h2.unseen", "Events"),
			fields(field("Show", kind), field("Filter", words, ".grow"), el("label.check", hold, " Hold")),
			table("Events, the latest first", EVENT, body, ".events"), note);

		let section = {};
		const kinds = new Set(), missed = []; // {before, events, why}
		const draw = frames(() => {
			const wanted = words.value.toLowerCase(), all = section.rows ?? [], shown = [];
			const rows = all.filter(row => (!kind.value || row.event === kind.value) &&
				(!wanted || JSON.stringify(row).toLowerCase().includes(wanted)));
			let next = 0;
			const tell = at => {
				for (; missed[next]?.before <= at; next++)
					shown.push(el("tr.lost", el("td", { colSpan: 5 },
						`${missed[next].events} events missed: ${missed[next].why}`)));
			};
			for (const row of rows) {
				tell(row.at);
				shown.push(eventRow(row));
			}
			tell(Infinity);
			body.replaceChildren(...shown.reverse());
			note.textContent = section.error ? denied("events", section.error) : rows.length ? "" :
				all.length ? "No event matches." : "Nothing has happened yet.";
		});
		kind.onchange = words.oninput = draw;
		hold.onchange = () => hold.checked || draw();

		return app.live.view("events", () => ({ events: true }), ({ events = {} }, message) => {
			section = events;
			for (const { event } of events.rows ?? [])
				if (!kinds.has(event) && kinds.add(event)) kind.append(el("option", event));
			const gap = message.events?.missed;
			if (gap) missed.push({ ...gap, before: message.events.rows?.[0]?.at ?? message.at });
			if (missed.length > GAPS) missed.shift();
			if (!hold.checked) draw();
		});
	},
};
