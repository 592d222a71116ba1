// The console: one connection, the views on it, and who is logged in.

import { Connection } from "./connection.js";
import { age, button, el } from "./dom.js";
import { Live } from "./live.js";
import { Login } from "./login.js";
import connections from "./view-connections.js";
import events from "./view-events.js";
import explain from "./view-explain.js";
import mesh from "./view-mesh.js";
import messages from "./view-messages.js";
import overview from "./view-overview.js";

const VIEWS = [overview, connections, events, messages, explain, mesh];
const $ = id => document.getElementById(id);

const login = new Login($("login"), { enter: () => app.connection.open(), about: () => app.about });
const opened = new Set();

/** What the views share. */
const app = {
	about: { line: [] },
	connection: new Connection({ login: () => login.given, refused: error => login.refuse(error) }),

	/** What the daemon has accepted: null, {user, password} or {token}. */
	get login() {
		return login.given;
	},

	/** Open a further connection, whenever the first one is there. */
	open() {
		const first = app.connection, ready = () => first.state === "ready";
		const connection = new Connection({ login: () => login.given, may: ready });
		first.addEventListener("state", () => ready() && connection.state === "waiting" && connection.open());
		opened.add(connection);
		connection.open();
		return connection;
	},

	/** Tell screen readers something, once a second at most. */
	say(text) {
		if (said.push(text) === 1) setTimeout(() => $("said").textContent = said.splice(0).join(". "), 1000);
	},

	/** Show an error. */
	fail(error) {
		bar($("fault"), error.code ? `${error.code}: ${error.message}` : String(error.message ?? error));
	},

	/** Show how many of something were missed, and why. */
	lost(number, what, why) {
		missed.set(what, { number: (missed.get(what)?.number ?? 0) + number, why });
		const texts = [...missed].map(([kind, one]) => `${one.number} ${kind} missed: ${one.why}`);
		bar($("lost"), texts.join("; "), () => missed.clear());
	},

	/** Go to a view, or to a part of it: go("mesh/n1"). */
	go: route => location.hash = route,
};
app.live = new Live(app.connection, (number, why) => app.lost(number, "updates", why));
const said = [], missed = new Map();

function bar(node, text, dismissed) {
	node.replaceChildren(el("span", text), button("Dismiss", () => {
		node.hidden = true;
		dismissed?.();
	}, "small"));
	node.hidden = false;
}

// Views, each made when it is shown first

const tabs = VIEWS.map(({ id, title }) => el("a.tab", {
	id: `tab-${id}`, role: "tab", href: `#${id}`, "aria-controls": `view-${id}`,
}, title));
const panels = VIEWS.map(({ id }) =>
	el("section.view", { id: `view-${id}`, role: "tabpanel", "aria-labelledby": `tab-${id}` }));
const made = new Map();
let current;

function decode(text) {
	try {
		return decodeURIComponent(text);
	} catch {
		return text;
	}
}

function route() {
	const [id, ...rest] = location.hash.slice(1).split("/");
	if (id === "main") return; // the skip link
	const view = VIEWS.find(one => one.id === id) ?? VIEWS[0], at = VIEWS.indexOf(view);
	if (current !== view) {
		made.get(current)?.hidden?.();
		panels.forEach((panel, i) => panel.hidden = i !== at);
		tabs.forEach((tab, i) => {
			tab.ariaSelected = String(i === at);
			tab.tabIndex = i === at ? 0 : -1;
		});
		document.title = `${view.title} – pubsubd`;
		tabs[at].scrollIntoView({ block: "nearest", inline: "nearest" });
	}
	current = view;
	if (!made.has(view)) made.set(view, view.create(panels[at], app) ?? {});
	made.get(view).shown?.(decode(rest.join("/")));
}

$("tabs").append(...tabs);
$("tabs").onkeydown = event => {
	const at = tabs.indexOf(document.activeElement), last = tabs.length - 1;
	const to = { ArrowRight: (at + 1) % tabs.length, ArrowLeft: at ? at - 1 : last, Home: 0, End: last }[event.key];
	if (at < 0 || to === undefined) return;
	event.preventDefault();
	tabs[to].focus();
	app.go(VIEWS[to].id);
};
$("panels").append(...panels);

// The head of the page

function showState() {
	const { state, reason, user } = app.connection, away = state === "waiting";
	const text = { connecting: state, login: "log in to go on", ready: "connected" }[state] ?? "not connected";
	$("state").textContent = text + (away && reason ? `: ${reason}` : "");
	$("state").className = state === "ready" ? "good" : state === "connecting" ? "" : "bad";
	$("user").textContent = user ?? "";
	$("leave").hidden = !login.given;
	offer();
	if (state === "ready") login.accept();
	askLogin(state === "login" || (Boolean(login.given) && !login.accepted), state === "login");
	$("retry").hidden = !away;
	if (away) {
		$("fault").hidden = true; // the state tells why
		countDown();
	}
	if (state === "ready") learn();
}

function offer() {
	$("enter").hidden = app.connection.state !== "ready" || Boolean(login.given) || !app.about.logins;
}

function askLogin(outside, needed) {
	login.show(outside, needed);
	$("panels").hidden = $("tabs").parentNode.hidden = outside;
}

const left = el("span", { ariaHidden: "true" });
$("retry").append(left, " ", button("Try now", () => app.connection.open(), "small"));

function countDown() {
	if (app.connection.state !== "waiting") return;
	left.textContent = `next try in ${age(Math.max(0, (app.connection.retryAt - Date.now()) / 1000))}`;
	setTimeout(countDown, 500);
}

async function learn() {
	try {
		app.about = await (await fetch("console/about.json")).json();
		$("about").textContent = app.about.version;
		offer();
		dispatchEvent(new Event("about"));
	} catch {} // the connection's state tells that the daemon cannot be reached
}

app.connection.addEventListener("state", showState);
app.connection.addEventListener("fault", ({ detail }) => app.fail(detail));
addEventListener("online", () => app.connection.state === "waiting" && app.connection.open());
addEventListener("hashchange", route);
$("enter").onclick = () => askLogin(true, false);
$("leave").onclick = () => {
	login.forget();
	for (const connection of opened) connection.close();
	opened.clear();
	// Nothing of what one user has seen stays for the next.
	sessionStorage.clear();
	location.reload();
};

learn().finally(() => {
	route();
	app.connection.open();
});
