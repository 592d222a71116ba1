import { el } from "./dom.js";

export default {
  id: "messages",
  title: "Messages",
  create(root) {
    root.append(el("p.note", "Not here yet."));
    return {};
  },
};
