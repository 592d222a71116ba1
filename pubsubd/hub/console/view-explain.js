// Who would receive a name, and why.

import { some } from "./dialects.js";
import { count, denied, el, field, panel, show, table } from "./dom.js";

function row({ as, connection, exact, matching, patterns = [], peer, substrings }) {
	const reasons = [
		...exact ? [["exactly", as]] : [],
		...substrings.map(text => text ? ["contains", text] : ["everything"]),
		...patterns.map(text => ["wildcard", text]),
	];
	const more = matching - reasons.length;
	return el("tr",
		el("td", connection === null ? "another daemon" : `#${connection}`),
		el("td", show(peer, 120)),
		el("td", el("code", show(as, 200))),
		el("td", ...reasons.map(([kind, text]) =>
			el("div", `${kind} `, text && el("code", show(text, 200)))),
			more > 0 ? `and ${count(more)} more` : ""));
}

export default {
	id: "explain",
	title: "Explain",

	create(root, { connection }) {
		const name = el("input", {
			name: "name", required: true, maxLength: 1024, autocomplete: "off", spellcheck: false,
		});
		const form = el("form.row", field("Name", name, ".grow"), el("button.main", "Explain"));
		const answer = el("p", { role: "status" }), body = el("tbody");
		const found = table("Receivers", ["Connection", "Address", "Receives it as", "Because of"], body);
		found.hidden = true;
		root.append(panel("Who would receive a message",
			el("p.note", "Nothing is published."), form, answer, found));

		async function ask() {
			const asked = name.value;
			found.hidden = true;
			try {
				const { count: number, receivers } = await connection.json("explain", asked);
				body.replaceChildren(...receivers.map(row));
				found.hidden = !number;
				const more = receivers.length < number ? `; ${count(receivers.length)} are listed` : "";
				answer.replaceChildren(`${some(number, "receiver")} of `, el("code", show(asked, 300)), more);
			} catch (error) {
				const { code, message } = error;
				answer.textContent = /^not|^login/.test(code) ? denied("who receives it", error) : `${code}: ${message}`;
			}
		}

		form.onsubmit = event => {
			event.preventDefault();
			ask();
		};
		let part;
		const take = () => {
			if (!part || connection.state !== "ready") return;
			name.value = part;
			part = "";
			ask();
		};
		connection.addEventListener("state", take);
		return {
			shown(wanted) {
				part = wanted;
				take();
			},
		};
	},
};
