// Publish and subscribe, in any dialect; the page shows what exactly is sent.

import { HubChannel, LineChannel } from "./channels.js";
import { DIALECTS, written } from "./dialects.js";
import { button, el, field, frames, panel, show } from "./dom.js";
import { decode } from "./line.js";
import { messageList } from "./message-list.js";

const SHOWN = 2_000; // characters of what is sent
const WATCH = 2_000; // milliseconds between two looks at how far the page is behind
const KINDS = { text: "Text", json: "JSON" };

function choice(name, label, options) {
	return el("fieldset.msg-choice", el("legend", label), ...Object.entries(options).map(
		([value, title], at) => el("label.check",
			el("input", { type: "radio", name, value, checked: at === 0 }), ` ${title}`)));
}

export default {
	id: "messages",
	title: "Messages",

	create(root, app) {
		const list = messageList(text => app.say(text));
		const titles = Object.fromEntries(Object.entries(DIALECTS).map(([id, one]) => [id, one.title]));
		const words = (label, name, value = "") => field(label, el("input", {
			name, value, autocomplete: "off", spellcheck: false, maxLength: 1024,
		}), ".grow");
		const dialects = choice("dialect", "Dialect", titles), about = el("p.note");
		const [subscribed, published] = [1, 2].map(() => el("p.note", { role: "status" }));
		const [subscribes, publishes] = [1, 2].map(() => el("code.msg-sent"));
		const subscribe = el("form",
			el("div.row", words("Topic", "topic"), el("button.main", "Subscribe")),
			el("p.note", "Sends: ", subscribes), subscribed);
		const type = words("Type", "type", "note");
		const publish = el("form",
			el("div.row", words("Topic", "name"), type),
			choice("kind", "Data", KINDS),
			field("Message", el("textarea", { name: "data", rows: 2 }, "hello")),
			el("p.note", "Sends: ", publishes),
			el("div.row", el("button.main", "Publish"), published));
		const chips = el("ul.msg-chips", { ariaLabel: "Subscriptions" });
		root.append(
			el("h2.unseen", "Messages"),
			el("section.panel", dialects, about),
			el("div.columns",
				panel("Subscribe", subscribe, chips),
				panel("Publish", publish)),
			list.node);

		const channels = new Map(); // dialect -> channel
		const held = new Map(); // key -> {of, topic}
		const numbers = new Map(); // connection -> title

		function channel(of) {
			if (channels.has(of)) return channels.get(of);
			let lost = ""; // whatever is published while it is away is lost, and nobody counts it
			const events = {
				full: () => list.full,
				hear: raw => list.take(raw),
				changed(up, reason) {
					if (up && lost) list.lose(null, `${titles[of]}: connected again, after ${lost}`);
					if (!up && !lost) list.lose(null, `${titles[of]}: disconnected: ${reason}`);
					if (up) identify(of);
					lost = up ? "" : reason;
				},
			};
			const made = of === "line" ? new LineChannel(app.open(), events) :
				new HubChannel(app, of !== "envelope", events);
			channels.set(of, made);
			return made;
		}

		// Events of what was dropped name a connection by number: the page's own is the one that
		// receives a name that nobody else knows.
		async function identify(of) {
			const name = `console/${Math.random().toString(36).slice(2)}`;
			const { subscribe, unsubscribe } = DIALECTS[of === "line" ? of : "hub"];
			try {
				await channel(of).send(id => subscribe(name, id), true);
				const { receivers } = await app.connection.json("explain", name);
				const own = receivers.find(one => one.exact || one.substrings.includes(name));
				if (own) numbers.set(own.connection, titles[of]);
				await channel(of).send(id => unsubscribe(name, id), true);
			} catch {
				// Rights are missing: it is not known what is dropped.
			}
		}

		function hearEvent({ data }) {
			const { connection, detail, event } = JSON.parse(decode(data)), title = numbers.get(connection);
			if (event === "dropped" && title)
				list.lose(parseInt(detail), `${title}: the daemon dropped them, as this page was too slow`);
		}

		// Forms

		const checked = (form, name) => form.querySelector(`[name=${name}]:checked`).value;
		const dialect = () => checked(dialects, "dialect");

		function publication(id) {
			const { data, name, type } = publish.elements, json = checked(publish, "kind") === "json";
			return DIALECTS[dialect()].publish({
				name: name.value, type: type.value, json, data: json ? JSON.parse(data.value) : data.value,
			}, id);
		}

		function preview(code, result, make) {
			try {
				code.replaceChildren(show(written(make()), SHOWN));
			} catch (error) {
				code.textContent = error.message;
			}
			result.textContent = "";
		}

		const draw = frames(() => {
			const one = DIALECTS[dialect()];
			about.textContent = one.about;
			type.hidden = one !== DIALECTS.hub || checked(publish, "kind") !== "json";
			preview(subscribes, subscribed, () => one.subscribe(subscribe.elements.topic.value, "1"));
			preview(publishes, published, () => publication("2"));
		});

		function choose() {
			const { name, topic } = DIALECTS[dialect()];
			subscribe.elements.topic.value = topic;
			publish.elements.name.value = name;
			draw();
		}

		function drawChips() {
			chips.replaceChildren(...[...held].map(([key, { of, topic }]) => {
				const name = topic || "everything", end = button("×", async () => {
					await channel(of).drop(key, id => DIALECTS[of].unsubscribe(topic, id)).catch(app.fail);
					held.delete(key);
					drawChips();
				}, "small");
				end.ariaLabel = `Unsubscribe ${name} (${titles[of]})`;
				return el("li", show(name, 80), el("small", ` ${titles[of]} `), end);
			}));
		}

		async function submit(event, result, act) {
			event.preventDefault();
			result.textContent = "…";
			try {
				result.textContent = await act(dialect());
			} catch (error) {
				result.textContent = (error.code ? `${error.code}: ` : "") + error.message;
			}
		}

		dialects.onchange = choose;
		subscribe.oninput = publish.oninput = draw;
		subscribe.onsubmit = event => submit(event, subscribed, async of => {
			const topic = subscribe.elements.topic.value, key = `${of} ${topic}`;
			if (held.has(key)) return "Subscribed already.";
			if (!held.size) app.connection.listen("//pubsubd/events", hearEvent);
			await channel(of).keep(key, id => DIALECTS[of].subscribe(topic, id));
			if (of !== "line" && ![...held.values()].some(one => one.of === of)) identify(of);
			held.set(key, { of, topic });
			drawChips();
			return of === "envelope" ? "Sent." : "Subscribed.";
		});
		publish.onsubmit = event => submit(event, published, async of => {
			const answer = await channel(of).send(publication);
			return answer ? `Published ${answer}.` : "Published.";
		});
		setInterval(() => {
			for (const of of new Set([...held.values()].map(one => one.of)))
				list.watch(titles[of], () => channel(of).catchUp());
		}, WATCH);
		choose();
		return {};
	},
};
