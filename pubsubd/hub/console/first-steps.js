// From an empty page to a first message: what to click, and what to type in a terminal.

import { copyable, el, show } from "./dom.js";
import { decode, frame } from "./line.js";

const KEPT = "pubsubd.steps", TOPIC = "hello", MOST = 50;

/** Return where nc finds the line port, as seen from where this page was loaded. */
export function lineAddress(about) {
  const plain = about.line.find(one => !one.tls) ?? about.line[0];
  if (!plain) return null;
  const everywhere = ["0.0.0.0", "::", ""].includes(plain.host);
  const host = everywhere ? location.hostname.replace(/^\[|\]$/g, "") : plain.host;
  return { host, port: plain.port, tls: plain.tls };
}

/** Make the panel; `hear` takes the totals, which tell whether it is of use. */
export function firstSteps(app) {
  const close = el("button.small", { type: "button" }, "Hide");
  const received = el("ol.received", { "aria-label": "Messages received", "aria-live": "polite" });
  const nothing = el("p.note", "Nothing yet.");
  const subscribe = el("button.main", { type: "button" }, `Subscribe to \u201c${TOPIC}\u201d here`);
  const publish = el("button", { type: "button" }, "Publish one from here");
  const terminal = el("div");
  const node = el("section.panel.steps", { "aria-labelledby": "first", hidden: true },
    el("div.row", el("h3", { id: "first" }, "Your first message"), el("span.gap"), close),
    el("ol",
      el("li", el("p", "Receive every message whose name contains \u201chello\u201d:"), subscribe),
      el("li", el("p", "Publish one, in a terminal:"), terminal, el("p", "or "), publish),
      el("li", el("p", "It appears here:"), nothing, received)),
    el("p.note", "More dialects, any name, JSON and bytes: ",
      el("a", { href: "#messages" }, "Messages"), "."));
  let stop = null, heard = 0, decided = localStorage.getItem(KEPT) === "hidden";

  // What else comes is for the view that is made for it.
  function hear({ data, name }) {
    if (++heard > MOST) {
      stop?.();
      nothing.textContent = `These were ${MOST} messages; the view Messages shows more.`;
      nothing.hidden = false;
      return;
    }
    const item = el("li", el("b", show(name, 60)), " ", show(decode(data) ?? `${data.length} bytes`, 200));
    nothing.hidden = true;
    received.prepend(item);
    while (received.children.length > 5) received.lastChild.remove();
  }

  function listen() {
    stop ??= app.connection.listen(TOPIC, hear);
    subscribe.textContent = "Subscribed";
    subscribe.disabled = true;
  }

  subscribe.onclick = listen;
  publish.onclick = async () => {
    listen();
    try {
      await app.connection.command(frame("hello/world", "Hello from the browser"));
    } catch (error) {
      app.fail(error);
    }
  };
  close.onclick = () => {
    decided = true;
    node.hidden = true;
    stop?.();
    localStorage.setItem(KEPT, "hidden");
  };

  function tellTerminal() {
    const at = lineAddress(app.about);
    if (!at) return terminal.replaceChildren(el("p.note", "This daemon has no TCP port for nc."));
    const tool = at.tls ? `openssl s_client -quiet -connect ${at.host}:${at.port}` :
      `nc -N ${at.host} ${at.port}`;
    const auth = app.login || app.connection.user ? "pub //pubsubd/auth - NAME PASSWORD\\n" : "";
    const line = `printf '${auth}pub hello/world - Hello from nc\\n' | ${tool}`;
    terminal.replaceChildren(copyable(line, "the command"));
  }
  addEventListener("about", tellTerminal);
  tellTerminal();

  return {
    node,
    /** Show it on a daemon that has carried no message yet, as far as one may know. */
    hear(totals) {
      if (decided || (!totals.error && totals.messages_in === undefined)) return;
      decided = true;
      node.hidden = totals.messages_in > 0;
    },
  };
}
