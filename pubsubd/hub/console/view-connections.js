// Connections: the first ones in the order that is asked for, those closed of late, and kill.

import { age, button, bytes, count, denied, el, field, fields, frames, panel, rate, show, table } from "./dom.js";
import { EVENT, eventRow } from "./view-events.js";

const CLOSED = 20;
const SORTS = {
	rate: row => row.messages_in_rate + row.messages_out_rate,
	backlog: row => row.backlog_bytes,
	dropped: row => row.dropped,
	age: row => -row.connection,
};
// [title, what it is sorted by, class, value of a row]
const COLUMNS = [
	["Subscriptions", "", "number wide", row => row.subscriptions ?? "–"],
	["In", "rate", "number wide", row => rate(row.messages_in_rate)],
	["Out", "rate", "number", row => rate(row.messages_out_rate)],
	["Bytes in", "", "number wide", row => `${bytes(row.bytes_in_rate)}/s`],
	["Bytes out", "", "number wide", row => `${bytes(row.bytes_out_rate)}/s`],
	["Backlog", "backlog", "number", row => bytes(row.backlog_bytes)],
	["Dropped", "dropped", "number mid", row => count(row.dropped)],
	// In one unit, as hundreds of rows need not change each second.
	["Age", "age", "number mid", row => age(Date.now() / 1000 - row.since).split(" ").slice(0, 2).join(" ")],
];

export default {
	id: "connections",
	title: "Connections",

	create(root, app) {
		let sort = "rate", section = {}, closed = {}, own, mayKill, typed;
		const filter = el("input", { type: "search", placeholder: "user, address, dialect, number …" });
		const limit = el("select", ...[20, 50, 100, 200].map(one => el("option", { selected: one === 50 }, one)));
		const summary = el("p.note"), note = el("p.note"), body = el("tbody"), recent = el("tbody");
		const heads = COLUMNS.map(([title, by, className]) => {
			const head = el("th", { scope: "col", className }, by ? button(title, () => {
				sort = by;
				view.shown();
				draw();
			}, "sort") : title);
			head.dataset.by = by;
			return head;
		});
		const question = el("p"), dialog = el("dialog", { ariaLabel: "End a connection" },
			el("form", { method: "dialog" }, question, el("div.row",
				el("button.danger", { value: "yes" }, "End it"),
				el("button", { value: "no", autofocus: true }, "Keep it"))));
		root.append(
			el("h2.unseen", "Connections"),
			fields(field("Filter", filter, ".grow"), field("Rows", limit)), summary,
			table("Connections", ["Connection", ...heads,
				el("th.end", { scope: "col" }, el("span.unseen", "End it"))], body, ".connections"),
			panel("Closed of late", table("Closed of late", EVENT, recent, ".events"), note), dialog);

		// Rows keep their places while somebody points at them or has come there with the keyboard.
		const rows = new Map(), held = () => body.contains(document.activeElement) ||
			(matchMedia("(hover: hover)").matches && body.matches(":hover"));

		function fill(one, row) {
			const words = [row.user, row.transport, row.dialect.replace("none", ""), row.listener,
				row.node && `daemon ${row.node}`];
			const about = [...new Set(words.filter(Boolean))].join(" · ");
			const ours = row.connection === own, told = `${row.peer} ${about} ${ours} ${mayKill}`;
			if (told !== one.told) {
				one.told = told;
				one.who.replaceChildren(show(row.peer, 80),
					el("small", ` #${row.connection}${ours ? " (this page)" : ""}`), el("small.under", show(about, 120)));
				const kill = button("Kill", () => ask(row.connection), "small danger");
				kill.ariaLabel = `End connection ${row.connection}`;
				one.last.replaceChildren(...mayKill && !ours ? [kill] : []);
			}
			COLUMNS.forEach(([, , , value], i) => {
				const text = String(value(row)), cell = one.cells[i];
				if (cell.textContent === text) return;
				cell.textContent = text;
				cell.classList.toggle("zero", /^0\b(?!\.)/.test(text));
			});
			one.tr.classList.toggle("busy", row.backlog_bytes > 0);
		}

		function place(row, i, keep) {
			let one = rows.get(row.connection);
			if (!one) {
				const who = el("td.who"), last = el("td");
				const cells = COLUMNS.map(([, , className]) => el("td", { className }));
				rows.set(row.connection, one = { tr: el("tr", who, ...cells, last), who, cells, last });
				body.append(one.tr);
			}
			fill(one, row);
			if (!keep && body.children[i] !== one.tr) body.insertBefore(one.tr, body.children[i]);
		}

		const draw = frames(() => {
			const found = section.rows ?? new Map(), by = SORTS[sort], keep = held();
			for (const [number, { tr }] of rows)
				if (!found.has(number) && rows.delete(number)) tr.remove();
			[...found.values()].sort((a, b) => by(b) - by(a) || a.connection - b.connection)
				.forEach((row, i) => place(row, i, keep));
			for (const head of heads) head.ariaSort = head.dataset.by === sort ? "descending" : null;
			const { error, matching, count: all } = section;
			summary.textContent = error ? denied("connections", error) : section.rows ?
				`${count(found.size)} of ${count(matching ?? all)} shown` +
				(matching === all ? "" : `, ${count(all)} in all`) : "";
			const ended = (closed.rows ?? []).filter(row => row.event === "closed").slice(-CLOSED).reverse();
			recent.replaceChildren(...ended.map(row => eventRow(row)));
			note.textContent = closed.error ? denied("why connections were closed", closed.error) :
				ended.length ? "" : "The daemon has closed none.";
		});

		// Ending one takes a second step, which names it.
		let asked;
		function ask(number) {
			const row = section.rows?.get(number);
			if (!row) return;
			asked = String(number);
			question.replaceChildren("End connection ", el("b", asked),
				...row.user ? [" of ", show(row.user, 60)] : [], " at ", show(row.peer, 60), "?");
			dialog.returnValue = "no";
			dialog.showModal();
		}
		dialog.onclose = async () => {
			if (dialog.returnValue !== "yes") return;
			try {
				await app.connection.request("kill", asked);
				app.say(`Connection ${asked} was ended`);
			} catch (error) {
				app.fail(error);
			}
		};

		const view = app.live.view("connections", () => {
			const match = filter.value.trim();
			return { connections: { sort, limit: Number(limit.value), ...match && { match } }, events: true };
		}, state => {
			({ connections: section = {}, events: closed = {}, own, may_kill: mayKill } = state);
			draw();
		});
		limit.onchange = view.shown;
		filter.oninput = () => {
			clearTimeout(typed);
			typed = setTimeout(view.shown, 200);
		};
		return view;
	},
};
