// The daemons of the mesh and their links, as a picture or as tables.

import { some } from "./dialects.js";
import { bytes, count, denied, el, frames, rate, show } from "./dom.js";
import { legend, meshPicture, SCALES } from "./mesh-picture.js";

const ROWS = 500; // of a table

const milliseconds = value => typeof value === "number" ? `${value.toFixed(value < 10 ? 2 : 0)} ms` : "\u2013";
const traffic = value => typeof value === "number" ? `${bytes(value)}/s` : "\u2013";
const answer = value => value === null || value === undefined ? "not known" : value ? "yes" : "no";
const numeric = new Intl.Collator("en", { numeric: true }).compare;

function table(caption, columns, rows) {
  return el("div.scroll", { tabIndex: 0, role: "region", ariaLabel: caption },
    el("table.table", el("caption", caption),
      el("thead", el("tr", ...columns.map(name => el("th", { scope: "col" }, name)))),
      el("tbody", ...rows.slice(0, ROWS))),
    rows.length > ROWS ? el("p.note", `${count(rows.length - ROWS)} more rows are not shown.`) : "");
}

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
    const go = id => app.go(`mesh/${encodeURIComponent(id)}`);
    const picture = meshPicture(go);
    const link = id => el("a", { href: `#mesh/${encodeURIComponent(id)}` }, show(id, 60));
    const summary = el("p", { role: "status" }), why = el("p.note", { hidden: true });
    const legends = el("div"), tables = el("div", { hidden: true }), row = el("aside", { ariaLabel: "Daemon", hidden: true });
    const narrow = matchMedia("(max-width: 600px)").matches;
    const pick = (label, name, options) => el("label.field", el("span", label),
      el("select", { name }, ...options.map(([value, title, selected = false]) =>
        el("option", { value, selected }, title))));
    const form = el("form.row", { onsubmit: event => event.preventDefault() },
      pick("Show", "as", [["picture", "Picture"], ["table", "Tables", narrow]]),
      pick("Colour", "colour", Object.entries(SCALES).map(([name, { title }]) => [name, title])));
    const drawing = el("div.mesh-drawing", picture.node, legends);
    const body = el("div.view", { hidden: true }, form, summary, el("div.mesh-body", el("div", drawing, tables), row));
    root.append(el("section.panel", el("h2.unseen", "Mesh"), why, body));

    let mesh = { daemons: [], links: [], node: "" }, totals = {}, chosen = "";

    function daemonRow(one) {
      const { articulation, host, hops, interests, links, node, port } = one;
      return el("tr", el("td", link(node), node === mesh.node ? " (this daemon)" : ""),
        el("td", host ? show(`${host}:${port}`, 80) : "\u2013"),
        el("td.number", hops === null ? "cannot be reached" : String(hops)),
        el("td.number", String(links)), el("td.number", count(interests ?? 0)), el("td", answer(articulation)));
    }

    function linkRow({ a, b, bridge, bytes_rate: load, messages_rate: messages, rtt_ms: trip }, of) {
      const ends = of === undefined ? [el("td", link(a)), el("td", link(b))] : [el("td", link(of === a ? b : a))];
      return el("tr", ...ends, el("td.number", milliseconds(trip)),
        el("td.number", typeof messages === "number" ? rate(messages) : "\u2013"),
        el("td.number", traffic(load)), el("td", answer(bridge)));
    }
    const LINK = ["Round trip", "Messages", "Traffic", "Bridge"];

    function drawRow() {
      const one = mesh.daemons.find(daemon => daemon.node === chosen);
      row.hidden = !chosen;
      if (!chosen) return;
      const close = el("button.small", { type: "button", onclick: () => app.go("mesh") }, "Close");
      const head = el("div.row", el("h3", show(chosen, 80)), el("span.gap"), close);
      if (!one) return redraw(row, head, el("p.note", "This daemon is not in the mesh now."));
      const own = chosen === mesh.node;
      const facts = [
        ["Address", one.host ? `${one.host}:${one.port}` : "not known"],
        ["Way", own ? "this daemon" : one.hops === null ? "cannot be reached" : some(one.hops, "hop")],
        ["Interests", count(one.interests ?? 0)],
        ["Articulation", one.articulation ? "yes: without it, the mesh falls apart" : answer(one.articulation)],
        ...own && totals.version ? [["Version", totals.version], ["Connections", count(totals.connections)]] : [],
      ];
      const links = mesh.links.filter(({ a, b }) => a === chosen || b === chosen);
      redraw(row, head,
        el("dl.facts", ...facts.map(([name, value]) => el("div", el("dt", name), el("dd", show(value))))),
        table(`Links of ${chosen.slice(0, 80)}`, ["To", ...LINK], links.map(one => linkRow(one, chosen))));
    }

    const draw = frames(() => {
      const asTable = form.elements.as.value === "table";
      drawing.hidden = asTable;
      tables.hidden = !asTable;
      const weak = mesh.daemons.filter(one => one.articulation).length;
      const bridges = mesh.links.filter(one => one.bridge).length;
      const away = mesh.daemons.filter(one => one.hops === null).length;
      const text = [some(mesh.daemons.length, "daemon"), some(mesh.links.length, "link"),
        some(weak, "articulation daemon"), some(bridges, "bridge"),
        away ? `${some(away, "daemon")} out of reach` : "",
        mesh.more ? `${count(mesh.more)} more are not listed` : ""].filter(Boolean).join(", ");
      if (summary.textContent !== text) summary.textContent = text;
      drawRow();
      if (!asTable) picture.update(mesh);
      else {
        redraw(tables,
          table("Daemons", ["Daemon", "Address", "Hops", "Links", "Interests", "Articulation"],
            mesh.daemons.map(daemonRow)),
          table("Links", ["From", "To", ...LINK], mesh.links.map(one => linkRow(one))));
      }
    });

    function hear(state, message) {
      totals = state.totals ?? {};
      const section = state.mesh;
      if (!section) return;
      why.hidden = !section.error;
      body.hidden = Boolean(section.error);
      if (section.error) {
        why.textContent = section.error.code === "no-mesh" ?
          "This daemon is not part of a mesh. Daemons that are linked by --peer appear here; see " +
          "pubsubd-mesh(7)." : denied("the mesh", section.error);
        return;
      }
      if (message?.n && !message.mesh && mesh.node) return;
      const daemons = [...section.daemons?.rows?.values() ?? []].sort((a, b) => numeric(a.node, b.node));
      const links = [...section.links?.rows?.values() ?? []].sort((a, b) => numeric(a.link, b.link));
      const more = (section.more_daemons ?? 0) + (section.more_links ?? 0);
      mesh = { daemons, links, node: section.node, more };
      draw();
    }

    form.elements.as.onchange = draw;
    form.elements.colour.onchange = () => {
      picture.colour(form.elements.colour.value);
      legends.replaceChildren(legend(form.elements.colour.value));
    };
    legends.replaceChildren(legend("rtt"));

    let stop = null;
    return {
      shown(node) {
        chosen = node;
        picture.select(node);
        stop ??= app.live.want("mesh", { mesh: true, totals: true }, hear);
        hear(app.live.state);
        draw();
      },
      hidden() {
        stop?.();
        stop = null;
      },
    };
  },
};
