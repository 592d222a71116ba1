// A figure with its last minutes as a line: drawn as SVG, and told in words to screen readers.

import { el, svg } from "./dom.js";

const POINTS = 60, WIDTH = 240, HEIGHT = 48;

/** Make a tile: a title, the present value and a line of those before. */
export function tile(title, format, { tone = "" } = {}) {
  const values = [];
  const value = el("p.value", "\u2013");
  const more = el("p.more", "\u00a0");
  const area = svg("path", { class: "area" }), line = svg("path", { class: "line" });
  const chart = svg("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img",
    "aria-label": `${title}: nothing yet`,
  }, area, line);
  const node = el(`section.tile${tone && "." + tone}`, { "aria-label": title },
    el("h3", title), value, more, chart);

  function draw() {
    const most = Math.max(...values, 1e-9), step = WIDTH / (POINTS - 1);
    const start = POINTS - values.length;
    const points = values.map((one, i) =>
      `${((start + i) * step).toFixed(1)} ${(HEIGHT - 2 - one / most * (HEIGHT - 6)).toFixed(1)}`);
    line.setAttribute("d", "M" + points.join("L"));
    area.setAttribute("d", `M${(start * step).toFixed(1)} ${HEIGHT}L${points.join("L")}L${WIDTH} ${HEIGHT}Z`);
    const now = format(values.at(-1));
    chart.setAttribute("aria-label", `${title}: now ${now}, at most ${format(Math.max(...values))} ` +
      `in the last ${values.length} updates`);
    value.textContent = now;
    more.textContent = `peak ${format(Math.max(...values))}`;
  }

  return {
    node,
    add(number, remark) {
      if (!Number.isFinite(number)) return;
      values.push(number);
      if (values.length > POINTS) values.shift();
      draw();
      if (remark !== undefined) more.textContent = remark;
    },
    clear() {
      values.length = 0;
    },
  };
}
