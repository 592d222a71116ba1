// A layout by forces: daemons push each other away, links pull them together. There is no chance
// in it. It cools down, and rests until the graph changes.

const LENGTH = 70; // of a link at rest
const PUSH = 420, PULL = 0.5, CENTRE = 0.03, KEEP = 0.6; // forces; the speed that is kept
const COOLING = 0.977, STILL = 0.006, WARM = 0.4;
const MANY = 300; // daemons that each one pushes in a step; of more, only some, but harder
const GOLDEN = Math.PI * (3 - Math.sqrt(5));

function shift(node, dx, dy, force) {
	node.vx += dx * force;
	node.vy += dy * force;
}

export class Layout {
	nodes = new Map(); // id -> {id, x, y, vx, vy, beside}
	heat = 0;
	#links = []; // [node, node]
	#round = 0;

	/** Whether nothing moves any more. */
	get still() {
		return this.heat < STILL;
	}

	/** Take the graph as it is now: ids, and pairs of them. Return whether it has changed. */
	update(ids, pairs) {
		const sorted = [...ids].sort(), known = this.nodes, key = JSON.stringify([sorted, pairs]);
		if (key === this.key) return false;
		this.key = key;
		this.nodes = new Map(sorted.map(id => [id, { id, vx: 0, vy: 0, ...known.get(id), beside: [] }]));
		this.#links = pairs.map(pair => pair.map(id => this.nodes.get(id)));
		for (const [a, b] of this.#links) {
			a.beside.push(b);
			b.beside.push(a);
		}
		// New ones: at first on a spiral, later beside one that they are linked to.
		[...this.nodes.values()].forEach((node, at) => {
			if (node.x !== undefined) return;
			const near = node.beside.find(one => known.has(one.id)) ?? { x: 0, y: 0 };
			const far = LENGTH / 2 * (known.size ? 1 : Math.sqrt(at + 0.5));
			node.x = near.x + far * Math.cos(at * GOLDEN);
			node.y = near.y + far * Math.sin(at * GOLDEN);
		});
		this.heat = known.size ? Math.max(this.heat, WARM) : 1;
		return true;
	}

	/** Let everything move a step. */
	step() {
		const nodes = [...this.nodes.values()];
		const every = Math.ceil(nodes.length / MANY), round = this.#round++;
		this.heat *= COOLING;
		for (let i = 0; i < nodes.length; i++)
			for (let j = (i + round) % every; j < i; j += every) this.#push(nodes[i], nodes[j], every);
		for (const [a, b] of this.#links) {
			const dx = b.x + b.vx - a.x - a.vx, dy = b.y + b.vy - a.y - a.vy;
			const length = Math.hypot(dx, dy) || 1, few = Math.min(a.beside.length, b.beside.length);
			const force = (length - LENGTH) / length * this.heat * PULL / few / 2;
			shift(a, dx, dy, force);
			shift(b, dx, dy, -force);
		}
		for (const node of nodes) {
			shift(node, node.x, node.y, -CENTRE * this.heat);
			node.x += node.vx *= KEEP;
			node.y += node.vy *= KEEP;
		}
	}

	#push(a, b, times) {
		const dx = a.x - b.x || 1e-3, dy = a.y - b.y || 1e-3;
		const force = PUSH * times * this.heat / Math.max(dx * dx + dy * dy, 25);
		shift(a, dx, dy, force);
		shift(b, dx, dy, -force);
	}
}
