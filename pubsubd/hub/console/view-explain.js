import { el } from "./dom.js";

export default {
  id: "explain",
  title: "Explain",
  create(root) {
    root.append(el("p.note", "Not here yet."));
    return {};
  },
};
