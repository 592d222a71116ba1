// A figure with its last minutes as a line: drawn as SVG, and told in words to screen readers.

import { el, svg } from "./dom.js";

const POINTS = 60, WIDTH = 240, HEIGHT = 48;

export function tile(title, format) {
	const values = [], value = el("p.value", "–"), more = el("p.more", "\u00a0");
	const area = svg("path", { class: "area" }), line = svg("path", { class: "line" });
	const chart = svg("svg", {
		viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
		"aria-label": `${title}: nothing yet`,
	}, area, line);
	const node = el("section.tile", { ariaLabel: title }, el("h3", title), value, more, chart);

	function draw() {
		const most = Math.max(...values), step = WIDTH / (POINTS - 1), start = POINTS - values.length;
		const points = values.map((one, i) => ((start + i) * step).toFixed(1) + " " +
			(HEIGHT - 2 - one / (most || 1) * (HEIGHT - 6)).toFixed(1)).join("L");
		line.setAttribute("d", "M" + points);
		area.setAttribute("d", `M${(start * step).toFixed(1)} ${HEIGHT}L${points}L${WIDTH} ${HEIGHT}Z`);
		value.textContent = format(values.at(-1));
		more.textContent = `peak ${format(most)}`;
		chart.setAttribute("aria-label", `${title}: now ${value.textContent}, at most ${format(most)} ` +
			`in the last ${values.length} updates`);
	}

	return {
		node,
		add(number, remark) {
			if (!Number.isFinite(number)) return;
			values.push(number);
			if (values.length > POINTS) values.shift();
			draw();
			if (remark) more.textContent = remark;
		},
	};
}
