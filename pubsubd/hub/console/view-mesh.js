import { el } from "./dom.js";

export default {
  id: "mesh",
  title: "Mesh",
  create(root) {
    root.append(el("p.note", "Not here yet."));
    return {};
  },
};
